"""Random transforms of samples: torchvision's ``transforms.v2`` for images, and the user's own.

Augmentation acts only in the forward pass of a theta step, like dropout. Margins, stored features and
predictions use the original samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from pydantic import BeforeValidator
from torch import Tensor

from nsvm_cli.config.registry import NAMED, OWN_PART, build, shown
from nsvm_cli.datasets.torchvision_import import import_torchvision
from nsvm_cli.errors import InputError, did_you_mean, first_line
from nsvm_cli.plugins import location
from nsvm_cli.randomness import number_at, seed_generators, seeded

AUGMENTATIONS: dict[str, Callable[..., Any] | None] = dict.fromkeys(
    (
        *("RandomCrop", "RandomResizedCrop", "RandomHorizontalFlip", "RandomVerticalFlip", "RandomRotation"),
        *("RandomAffine", "RandomPerspective", "RandomErasing"),
        *("ElasticTransform", "ColorJitter", "GaussianBlur"),
    )
)
"""Transforms that ``dataset.augment`` may contain. None stands for torchvision's class of the same name.

All others are functions of one sample and settings, or classes whose instances are functions of one sample.
"""
NAMED.append(AUGMENTATIONS)


def _section(value: object) -> Mapping[str, Any]:
    section = {"name": value} if isinstance(value, str) else value
    if not isinstance(section, Mapping):
        raise ValueError(
            f"expected a transform such as RandomCrop or {{name: RandomCrop}}, got {shown(value)}"
        )
    if (name := section.get("name")) not in (known := [*AUGMENTATIONS]):
        raise ValueError(f"there is no transform {shown(name)}; {did_you_mean(name, known)}; {OWN_PART}")
    return section


Augment = Annotated[
    tuple[Annotated[dict[str, Any], BeforeValidator(_section)], ...],
    BeforeValidator(lambda sections: () if sections is None else sections),
]
"""Type of ``dataset.augment``: a list of transforms, each a name, or a section of ``name`` and arguments."""


@dataclass(frozen=True)
class Augmentation:
    """Apply random transforms to samples x that were scaled to (x - mean) / std.

    The result depends only on the sample, its index in the training set and the key of the step.
    """

    transforms: Sequence[Callable[[Tensor], Any]]
    mean: Float64[Tensor, "..."]
    std: Float64[Tensor, "..."]

    def __call__(
        self, x: Float[Tensor, "p ..."], i: Int64[np.ndarray, " p"], key: int
    ) -> Float[Tensor, "p ..."]:
        """Return transformed copies of the samples x, which have the indices i in the training set."""
        samples = x.to("cpu", torch.float64) * self.std + self.mean
        with seeded(0), torch.no_grad():
            for place, seed in enumerate(number_at(key, i).tolist()):
                seed_generators(seed)
                for transform in self.transforms:
                    samples[place] = torch.as_tensor(transform(samples[place]))
        return ((samples - self.mean) / self.std).to(x)


def build_augmentation(
    sections: Sequence[object] | None, mean: Tensor, std: Tensor, shape: tuple[int, ...]
) -> Augmentation | None:
    """Return the augmentation for samples of this shape, or None if there are no sections.

    Raises:
        InputError: an argument is invalid, or does not suit the shape.
    """
    if not sections:
        return None
    transforms: list[Callable[[Tensor], Any]] = []
    for section in map(_section, sections):
        name, size = section["name"], {}
        if (part := AUGMENTATIONS[name]) is None:
            if len(shape) != 3:
                raise InputError(f"dataset.augment: expected images for {name}, got samples of shape {shape}")
            part = getattr(import_torchvision("transforms.v2"), name)
            size = {"size": list(shape[1:])} if name in ("RandomCrop", "RandomResizedCrop") else {}
        make: Any = partial(build, {name: part}, "augmentation", {**size, **section})
        transform = make() if isinstance(part, type) else make
        try:
            with seeded(0):  # torchvision rejects some arguments only when a transform is applied
                sample = torch.as_tensor(transform(torch.zeros(shape, dtype=torch.float64)))
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"dataset.augment: {name}: {first_line(error)}{location(error)}") from None
        if sample.shape != shape:
            raise InputError(
                f"dataset.augment: expected {name} to return samples of shape {[*shape]}, "
                f"got {[*sample.shape]}"
            )
        transforms.append(transform)
    return Augmentation(transforms, mean, std)
