"""Image augmentation with torchvision's ``transforms.v2``.

``dataset.augment`` lists transforms in the order in which they are applied: each is a name in ``TRANSFORMS``,
or a section with a name and the arguments of torchvision's class. Like dropout, augmentation acts only in the
forward pass of a theta step; margins, stored features and predictions use the original images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from pydantic import BeforeValidator
from torch import Tensor, nn

from nsvm_cli.config.registry import build, shown
from nsvm_cli.datasets.scaling import Scaling
from nsvm_cli.datasets.torchvision_import import import_torchvision
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.randomness import number_at, seeded

TRANSFORMS = (
    *("RandomCrop", "RandomResizedCrop", "RandomHorizontalFlip", "RandomVerticalFlip", "RandomRotation"),
    *("RandomAffine", "RandomPerspective", "RandomErasing"),
    *("ElasticTransform", "ColorJitter", "GaussianBlur"),
)
"""The classes of ``torchvision.transforms.v2`` that ``dataset.augment`` may name."""


def _section(value: object) -> Mapping[str, Any]:
    section = {"name": value} if isinstance(value, str) else value
    if not isinstance(section, Mapping):
        raise ValueError(f"expected the name of a transform, or a section with its name, got {shown(value)}")
    if (name := section.get("name")) not in TRANSFORMS:
        raise ValueError(f"there is no transform {shown(name)}; {did_you_mean(name, TRANSFORMS)}")
    return section


Augment = Annotated[
    tuple[Annotated[dict[str, Any], BeforeValidator(_section)], ...],
    BeforeValidator(lambda sections: () if sections is None else sections),
]
"""The type of the setting ``dataset.augment``."""


@dataclass(frozen=True)
class Augmentation:
    """Apply transforms to standardised images, independently for each image.

    The change of an image depends on the key of the step and on the image's index in the training set, not on
    the other images of the batch.
    """

    transforms: Sequence[nn.Module]
    scaling: Scaling

    def __call__(
        self, x: Float[Tensor, "p c h w"], i: Int64[np.ndarray, " p"], key: int
    ) -> Float[Tensor, "p c h w"]:
        """Return transformed copies of images, given their indices i in the training set."""
        mean, std = self.scaling.mean, self.scaling.std
        images = x.to("cpu", torch.float64) * std + mean
        with seeded(0):
            for place, seed in enumerate(number_at(key, i).tolist()):
                torch.default_generator.manual_seed(seed)
                for transform in self.transforms:
                    images[place] = transform(images[place])
        return ((images - mean) / std).to(x)


def build_augmentation(
    sections: Sequence[object] | None, scaling: Scaling, shape: tuple[int, ...]
) -> Augmentation | None:
    """Return the augmentation for samples of this shape; None if ``dataset.augment`` lists no transforms.

    Raises:
        InputError: an argument is unknown or invalid, or does not suit images of this size.
    """
    if not sections:
        return None
    if len(shape) != 3:
        raise InputError(f"dataset.augment expects images, got samples of shape {shape}")
    v2, transforms = import_torchvision("transforms.v2"), []
    for section in map(_section, sections):
        name = section["name"]
        size = {"size": list(shape[1:])} if name in ("RandomCrop", "RandomResizedCrop") else {}
        transform: nn.Module = build({name: getattr(v2, name)}, "augmentation", {**size, **section})
        try:
            with seeded(0):  # torchvision rejects some arguments only when a transform is applied
                image = transform(torch.zeros(shape))
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"dataset.augment: {name}: {str(error).splitlines()[0]}") from None
        if image.shape != shape:
            raise InputError(f"dataset.augment: {name} makes images of {[*image.shape]}, expected {[*shape]}")
        transforms.append(transform)
    return Augmentation(transforms, scaling)
