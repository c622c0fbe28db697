"""A trained model with the data of its run, and how samples are shown: as images, or in columns."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Real
from torch import Tensor

from nsvm_cli.artifacts.evaluation import checked_split
from nsvm_cli.artifacts.model_file import SavedModel
from nsvm_cli.datasets import Data, SampleCache, Split, load_data
from nsvm_cli.datasets.base import ARRAYS
from nsvm_cli.errors import InputError
from nsvm_cli.models.nsvm import NSVM
from nsvm_cli.models.objectives import random_subset
from nsvm_cli.output import shortened
from nsvm_cli.page.document import Picture
from nsvm_cli.runs.experiment import initial_network
from nsvm_cli.runs.open_model import open_model
from nsvm_cli.tasks import Classification
from nsvm_cli.trainers import Trainer, build_trainer

CHANNELS = (1, 3)
"""Samples of shape (channels, height, width) are images if they have so many: grey, or red, green, blue."""


@dataclass(frozen=True)
class Trained:
    """A trained model, and the data that it was trained and evaluated on.

    ``split`` is the name of the held-out samples: ``validation``, or without these ``test``.
    """

    saved: SavedModel
    data: Data
    split: str

    def __post_init__(self) -> None:
        i, m = self.model.expansion.i, len(self.train)
        if i is not None and len(i) and (last := int(i.max())) >= m:
            raise InputError(f"the model file names training sample {last}, and there are {m}")

    @property
    def model(self) -> NSVM:
        """The model."""
        return self.saved.model

    @cached_property
    def algorithm(self) -> Trainer[Any]:
        """The algorithm that trained it."""
        return build_trainer(self.saved.settings.algorithm)

    @property
    def train(self) -> Split:
        """The training samples."""
        return self.data.splits["train"]

    @property
    def held_out(self) -> Split:
        """The held-out samples."""
        return self.data.splits[self.split]

    @cached_property
    def before(self) -> NSVM | None:
        """The model with theta as it was before training; None if there is no theta."""
        settings, facts, z = self.saved.settings, self.saved.facts, self.model.expansion.z
        if not self.model.parameters:
            return None
        initial = initial_network(settings, facts.shape, facts.task.outputs).to(z)
        return replace(self.model, network=initial)

    @property
    def classifies(self) -> bool:
        """Whether it tells classes apart."""
        return isinstance(self.model.task, Classification)

    @property
    def are_images(self) -> bool:
        """Whether the samples are images."""
        shape = self.saved.facts.shape
        return len(shape) == 3 and shape[0] in CHANNELS

    def image(self, x: Real[Tensor, "channels height width"], text: str) -> Picture:
        """Return a sample as a picture that is black at the least value of any training sample."""
        from PIL import Image  # slow to import, and not needed for tables

        low, high = self._range
        scaled = (np.moveaxis(x.double().numpy(), 0, -1) - low) / (high - low or 1.0)
        pixels = np.rint(255 * scaled.clip(0, 1)).astype(np.uint8)
        png = io.BytesIO()
        Image.fromarray(pixels.squeeze(-1) if len(x) == 1 else pixels).save(png, "png", optimize=True)
        return Picture(png.getvalue(), text)

    @cached_property
    def _range(self) -> tuple[float, float]:
        return float(self.train.x.min()), float(self.train.x.max())

    @property
    def columns(self) -> list[str]:
        """The names of the features of samples that are no images, as the network gets them."""
        encoder, width = self.saved.facts.known.encoder, math.prod(self.saved.facts.shape)
        if encoder is None:
            return [f"feature {n}" for n in range(1, width + 1)]
        texts = [f"{name}: {text}" for name, categories in encoder.text.items() for text in categories]
        return [*encoder.numbers, *texts]

    def label(self, y: float) -> str:
        """Return a label, as the data have it, in words."""
        task = self.model.task
        if not isinstance(task, Classification):
            return f"{y:.10g}"
        return shortened(task.classes[int(task.index(torch.tensor(y)))])

    def some(self, split: Split, most: int) -> Split:
        """Return up to so many samples, chosen at random."""
        m = len(split)
        rows = random_subset(m, min(m, most), self.saved.settings.seed, torch.device("cpu"))
        return Split(split.x[rows], split.y[rows])


def load_trained(run: Path, runtime: Mapping[str, Any], say: Callable[[str], object] = str) -> Trained:
    """Return the model of a run and its data; see ``open_model``.

    Args:
        runtime: ``device`` and ``memory_budget`` that take the place of the run's.

    Raises:
        InputError: the model file or the data are missing, damaged or in no file, or do not match.
    """
    _, saved = open_model(run, runtime, say, samples := SampleCache())
    settings, facts = saved.settings, saved.facts
    if facts.source == ARRAYS:
        raise InputError(
            f"{run} was saved by an estimator, without the arrays that it was trained on: expected the model "
            "of a run, for which nsvm train reads its data from a file"
        )
    how = settings.task, facts.known, samples, settings.memory_budget
    data = load_data(settings.dataset, settings.seed, *how)
    if data.sha256 != facts.sha256:
        raise InputError(f"{data.source} or its test set has changed since the run")
    checked_split(facts, data, data.splits.held_out)
    return Trained(saved, data, data.splits.held_out)
