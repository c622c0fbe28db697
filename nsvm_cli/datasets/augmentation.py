"""Image augmentation with torchvision's ``transforms.v2``.

``dataset.augment`` lists transforms in the order in which they apply: names registered in ``AUGMENTATIONS``,
or sections of a name and its settings. Like dropout, augmentation acts only in the forward pass of a theta
step; margins, stored features and predictions are those of the original images.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator
from pydantic.dataclasses import dataclass
from torch import Tensor

from nsvm_cli.config.registry import STRICT, build, shown
from nsvm_cli.datasets.scaling import Scaling
from nsvm_cli.errors import InputError
from nsvm_cli.randomness import DrawingFrom, number_at
from nsvm_cli.torchvision_import import import_torchvision

Change = Callable[[Float[Tensor, "c h w"]], Float[Tensor, "c h w"]]
"""A random change to one image with pixels in 0..1, drawn by functions of torch; see ``DrawingFrom``."""

Size = tuple[int, int]

MAX_TRANSFORMS = 16
"""The largest number of transforms in a run."""


def _ascending(values: tuple[float, float]) -> tuple[float, float]:
    if values[0] > values[1]:
        raise ValueError(f"expected a lower and an upper limit, got {list(values)}")
    return values


Probability = Annotated[float, Field(ge=0, le=1)]
Factor = Annotated[float, Field(gt=0, le=10)]
FactorRange = Annotated[tuple[Factor, Factor], AfterValidator(_ascending)]
AreaRange = Annotated[tuple[Probability, Probability], AfterValidator(_ascending)]


class Transform(ABC):
    """A random change to an image. To add one, derive from this class and list yours in ``AUGMENTATIONS``."""

    @abstractmethod
    def change(self, size: Size) -> Change:
        """Return the change for images of this height and width; it keeps their shape."""


@dataclass(frozen=True, config=STRICT)
class Crop(Transform):
    """Shift the image by up to ``padding`` pixels each way: pad it with zeros, then crop it to its size at a
    random position (RandomCrop)."""

    padding: Annotated[int, Field(ge=1, le=64)] = 2

    def change(self, size: Size) -> Change:
        crop: Change = _v2().RandomCrop(size, padding=self.padding)
        return crop


@dataclass(frozen=True, config=STRICT)
class Flip(Transform):
    """Mirror the image left to right with probability ``p`` (RandomHorizontalFlip). Suits clothes, but not
    digits."""

    p: Probability = 0.5

    def change(self, size: Size) -> Change:
        flip: Change = _v2().RandomHorizontalFlip(self.p)
        return flip


@dataclass(frozen=True, config=STRICT)
class Affine(Transform):
    """Rotate, shift, scale and shear the image about its centre (RandomAffine, bilinear).

    ``degrees`` and ``shear`` limit the angles in either direction, and ``translate`` the shift as a fraction
    of height and width; ``scale`` is the range of the scaling factor. Pixels from outside the image are 0.
    """

    degrees: Annotated[float, Field(ge=0, le=180)] = 10.0
    translate: Probability = 0.1
    scale: FactorRange = (1.0, 1.0)
    shear: Annotated[float, Field(ge=0, lt=90)] = 0.0

    def change(self, size: Size) -> Change:
        v2 = _v2()
        affine: Change = v2.RandomAffine(
            self.degrees,
            translate=(self.translate, self.translate),
            scale=self.scale,
            shear=self.shear,
            interpolation=v2.InterpolationMode.BILINEAR,
        )
        return affine


@dataclass(frozen=True, config=STRICT)
class Elastic(Transform):
    """Displace each pixel by a smooth random field (ElasticTransform, bilinear; Simard et al., 2003).

    The field is uniform noise of up to ``alpha`` pixels, smoothed by a Gaussian of standard deviation
    ``sigma`` pixels. With the defaults, pixels move by about one pixel.
    """

    alpha: Annotated[float, Field(gt=0, le=1000)] = 20.0
    sigma: Annotated[float, Field(ge=0.5, le=100)] = 4.0

    def change(self, size: Size) -> Change:
        if 4 * self.sigma + 1 >= min(size):  # the truncated Gaussian must fit in the image
            raise InputError(
                f"dataset.augment: elastic.sigma={self.sigma} is too large for images of {size[0]}x{size[1]} "
                f"pixels: expected less than {(min(size) - 1) / 4}"
            )
        # torchvision measures alpha in half pixels
        elastic: Change = _v2().ElasticTransform(2 * self.alpha, self.sigma)
        return elastic


@dataclass(frozen=True, config=STRICT)
class Jitter(Transform):
    """Multiply the brightness by a random factor in [1 - ``brightness``, 1 + ``brightness``], and likewise
    the contrast (ColorJitter)."""

    brightness: Probability = 0.2
    contrast: Probability = 0.2

    def change(self, size: Size) -> Change:
        jitter: Change = _v2().ColorJitter(self.brightness, self.contrast)
        return jitter


@dataclass(frozen=True, config=STRICT)
class Erase(Transform):
    """Set a random rectangle to 0 with probability ``p`` (RandomErasing).

    ``scale`` is the range of its area, as a fraction of the image's; ``ratio`` that of height over width.
    """

    p: Probability = 0.5
    scale: AreaRange = (0.02, 0.33)
    ratio: FactorRange = (0.3, 3.3)

    def change(self, size: Size) -> Change:
        erase: Change = _v2().RandomErasing(self.p, scale=self.scale, ratio=self.ratio)
        return erase


AUGMENTATIONS: dict[str, type[Transform]] = {
    "crop": Crop,
    "flip": Flip,
    "affine": Affine,
    "elastic": Elastic,
    "jitter": Jitter,
    "erase": Erase,
}


def _v2() -> Any:
    return import_torchvision("transforms.v2")


def build_transform(section: object) -> Transform:
    """Return the transform for a name, or for a section of a name and its settings.

    Raises:
        InputError: the transform or one of its settings is unknown or out of range.
    """
    if isinstance(section, Transform):
        return section
    values = {"name": section} if isinstance(section, str) else section
    if not isinstance(values, Mapping):
        raise InputError(
            "expected the name of an augmentation, or a section of its name and settings, got "
            f"{shown(section)}"
        )
    return build(AUGMENTATIONS, "augmentation", values)


Augment = Annotated[
    tuple[Annotated[Transform, PlainValidator(build_transform)], ...],
    Field(max_length=MAX_TRANSFORMS),
    BeforeValidator(lambda sections: () if sections is None else sections),
]
"""The type of the setting ``augment`` of image data sets."""


class Augmentation:
    """Apply transforms to standardised images, independently for each image.

    How an image changes depends on the key of the step and on its index in the training set, not on the other
    images of the batch.
    """

    def __init__(self, transforms: Sequence[Transform], scaling: Scaling, size: Size) -> None:
        self._changes = [transform.change(size) for transform in transforms]
        self._scaling = scaling

    def __call__(
        self,
        x: Float[Tensor, "p c h w"],
        i: Int64[np.ndarray, " p"],
        key: int,
    ) -> Float[Tensor, "p c h w"]:
        """Return changed copies of the images x.

        Args:
            i: their indices in the training set.
            key: the key of the step; see ``key_of_step``.
        """
        mean, std = self._scaling.mean, self._scaling.std
        images = x.to("cpu", torch.float64) * std + mean
        with DrawingFrom(torch.Generator()) as drawing:
            for place, seed in enumerate(number_at(key, i).tolist()):
                drawing.generator.manual_seed(seed)
                for change in self._changes:
                    images[place] = change(images[place])
        return ((images - mean) / std).to(x)


def build_augmentation(
    sections: Sequence[object] | None, scaling: Scaling, shape: tuple[int, ...]
) -> Augmentation | None:
    """Return the augmentation that ``dataset.augment`` lists, for samples of this shape.

    Return None if the list is empty; torchvision is then not imported.

    Raises:
        InputError: a transform or a setting is unknown, or does not suit images of this size.
    """
    if not sections:
        return None
    if len(shape) != 3:
        raise InputError(f"dataset.augment expects images, got samples of shape {shape}")
    return Augmentation([build_transform(section) for section in sections], scaling, (shape[1], shape[2]))
