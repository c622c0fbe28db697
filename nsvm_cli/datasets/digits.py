"""Handwritten digits that come with scikit-learn: real images without a download."""

from __future__ import annotations

import string
from typing import ClassVar

import numpy as np
import torch
from pydantic.dataclasses import dataclass
from torch.nn import functional

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.augmentation import Augment
from nsvm_cli.datasets.base import Samples, Source
from nsvm_cli.datasets.image_files import ClassNames, chosen_classes
from nsvm_cli.tasks import encode


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SklearnDigits(Source):
    """scikit-learn's 8x8 digits, pixels in 0..1, enlarged to MNIST's 28x28 by bilinear interpolation."""

    global_scaling: ClassVar[bool] = True

    classes: ClassNames = ("0", "1")
    augment: Augment = ()

    def load(self, rng: np.random.Generator) -> Samples:
        from sklearn.datasets import load_digits  # slow to import, and needed only here

        digits = load_digits()
        images = torch.from_numpy(digits.images[:, None] / 16.0)
        images = functional.interpolate(images, size=(28, 28), mode="bilinear", align_corners=False)
        labels, names = chosen_classes(self.classes, string.digits)
        rows = np.flatnonzero(np.isin(digits.target, labels))
        y = encode(digits.target[rows], labels)
        return Samples(images.numpy()[rows], y, names, "scikit-learn's digits, 28x28")
