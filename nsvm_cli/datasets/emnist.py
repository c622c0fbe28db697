"""EMNIST: handwritten digits and letters in MNIST's format."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import UInt8
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.idx import IDXFiles
from nsvm_cli.datasets.image_files import Part

MERGED = string.digits + string.ascii_uppercase + "abdefghnqrt"
"""The classes after merging lower-case letters with the capital letters that they look like."""

CLASSES = {
    "balanced": MERGED,
    "byclass": string.digits + string.ascii_uppercase + string.ascii_lowercase,
    "bymerge": MERGED,
    "digits": string.digits,
    "letters": string.ascii_lowercase,
    "mnist": string.digits,
}
"""The names of the classes of each subset, in the order of their labels."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class EMNIST(IDXFiles):
    """A subset of EMNIST with the official split (Cohen et al., 2017).

    The files are read from ``root`` in torchvision's layout, ``root/EMNIST/raw/emnist-*-ubyte``, as ``.gz``
    or unpacked, or from the published archive ``root/EMNIST/raw/gzip.zip``. Only the archive has a published
    checksum. Images are turned upright: in the files, rows and columns are exchanged.
    """

    title: ClassVar[str] = "EMNIST"
    mirrors: ClassVar[tuple[str, ...]] = ("https://biometrics.nist.gov/cs_links/EMNIST/",)
    archive: ClassVar[str] = "gzip.zip"
    sums: ClassVar[Mapping[str, str]] = {
        "gzip.zip": "fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e"
    }
    images: ClassVar[Mapping[str, tuple[int, int]]] = {
        "balanced": (112_800, 18_800),
        "byclass": (697_932, 116_323),
        "bymerge": (697_932, 116_323),
        "digits": (240_000, 40_000),
        "letters": (124_800, 20_800),
        "mnist": (60_000, 10_000),
    }
    """The numbers of images for training and for testing in each subset."""

    subset: Literal["balanced", "byclass", "bymerge", "digits", "letters", "mnist"] = "balanced"

    @property
    def pattern(self) -> str:  # type: ignore[override]
        return f"emnist-{self.subset}-*-ubyte[.gz]"

    @property
    def names(self) -> str:
        return CLASSES[self.subset]

    @property
    def counts(self) -> dict[str, int]:
        train, test = self.images[self.subset]
        return {f"emnist-{self.subset}-train": train, f"emnist-{self.subset}-test": test}

    def parts(self, contents: Sequence[UInt8[np.ndarray, "..."]]) -> tuple[Part, Part]:
        first = 1 if self.subset == "letters" else 0
        train, test = (
            (images.swapaxes(2, 3), labels.astype(np.int64) - first)
            for images, labels in super().parts(contents)
        )
        return train, test
