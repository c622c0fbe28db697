"""Image augmentation with torchvision's ``transforms.v2``.

Augmentation acts only in the forward pass of a theta step, like dropout. Margins, stored features and
predictions use the original images.
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
"""Classes of ``torchvision.transforms.v2`` that ``dataset.augment`` may contain."""


def _section(value: object) -> Mapping[str, Any]:
    section = {"name": value} if isinstance(value, str) else value
    if not isinstance(section, Mapping):
        raise ValueError(
            f"expected a transform such as RandomCrop or {{name: RandomCrop}}, got {shown(value)}"
        )
    if (name := section.get("name")) not in TRANSFORMS:
        raise ValueError(f"there is no transform {shown(name)}; {did_you_mean(name, TRANSFORMS)}")
    return section


Augment = Annotated[
    tuple[Annotated[dict[str, Any], BeforeValidator(_section)], ...],
    BeforeValidator(lambda sections: () if sections is None else sections),
]
"""Type of ``dataset.augment``: a list of transforms, each a name, or a section of ``name`` and arguments."""


@dataclass(frozen=True)
class Augmentation:
    """Apply random transforms to standardised images.

    The result depends only on the image, its index in the training set and the key of the step.
    """

    transforms: Sequence[nn.Module]
    scaling: Scaling

    def __call__(
        self, x: Float[Tensor, "p c h w"], i: Int64[np.ndarray, " p"], key: int
    ) -> Float[Tensor, "p c h w"]:
        """Return transformed copies of the images x, which have the indices i in the training set."""
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
    """Return the augmentation for images of this shape, or None if there are no sections.

    Raises:
        InputError: an argument is invalid, or does not suit the shape.
    """
    if not sections:
        return None
    if len(shape) != 3:
        raise InputError(
            f"dataset.augment: expected images, got samples of shape {shape}; remove dataset.augment"
        )
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
            raise InputError(
                f"dataset.augment: expected {name} to return images of shape {[*shape]}, got {[*image.shape]}"
            )
        transforms.append(transform)
    return Augmentation(transforms, scaling)
