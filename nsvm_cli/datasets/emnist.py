"""EMNIST: handwritten digits and letters in MNIST's format."""

from __future__ import annotations

import gzip
import string
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import UInt8
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.idx import find_idx, parse_idx, read_idx
from nsvm_cli.datasets.image_files import ClassNames, ImageFiles, Part, expect_sum, named_classes
from nsvm_cli.storage.files import open_regular

ARCHIVE = "gzip.zip"
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
class EMNIST(ImageFiles):
    """A subset of EMNIST with the official split (Cohen et al., 2017).

    The files are read from ``root`` in torchvision's layout, ``root/EMNIST/raw/emnist-*-ubyte``, as ``.gz``
    or unpacked, or from the published archive ``root/EMNIST/raw/gzip.zip``. Only the archive has a published
    checksum. Images are turned upright: in the files, rows and columns are exchanged.
    """

    title: ClassVar[str] = "EMNIST"
    mirrors: ClassVar[tuple[str, ...]] = ("https://biometrics.nist.gov/cs_links/EMNIST/",)
    packed: ClassVar[str] = "fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e"
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
    classes: ClassNames = None

    @property
    def folder(self) -> str:
        return "EMNIST/raw"

    @property
    def layout(self) -> str:
        return f"{self.folder}/emnist-{self.subset}-*-ubyte[.gz] or {self.folder}/{ARCHIVE}"

    def sums(self) -> Mapping[str, str]:
        return {ARCHIVE: self.packed}

    def missing(self, folder: Path) -> dict[str, str]:
        if (folder / ARCHIVE).is_file():
            return {}
        absent = [name for name in self._shapes() if not find_idx(folder, name)]
        return {f"{self.folder}/{name}[.gz] and no {self.folder}/{ARCHIVE}": ARCHIVE for name in absent}

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of each file: images and labels for training, then for testing."""
        shapes: dict[str, tuple[int, ...]] = {}
        for part, m in zip(("train", "test"), self.images[self.subset], strict=True):
            shapes[f"emnist-{self.subset}-{part}-images-idx3-ubyte"] = (m, 28, 28)
            shapes[f"emnist-{self.subset}-{part}-labels-idx1-ubyte"] = (m,)
        return shapes

    def chosen(self) -> tuple[Sequence[int], tuple[str, ...]]:
        return named_classes(self.classes, CLASSES[self.subset])

    def read(self, folder: Path) -> tuple[Part, Part]:
        files = {name: find_idx(folder, name) for name in self._shapes()}
        if all(files.values()):
            arrays = [self._read_file(file, self._shapes()[name]) for name, file in files.items() if file]
        else:
            arrays = self._read_archive(folder / ARCHIVE)
        return self._part(*arrays[:2]), self._part(*arrays[2:])

    def _part(self, images: UInt8[np.ndarray, "m 28 28"], labels: UInt8[np.ndarray, " m"]) -> Part:
        first = 1 if self.subset == "letters" else 0
        return images.swapaxes(1, 2)[:, None], labels.astype(np.int64) - first

    def _read_file(self, file: Path, shape: tuple[int, ...]) -> UInt8[np.ndarray, "..."]:
        with self.reading(file):
            return read_idx(file, shape, None)

    def _read_archive(self, file: Path) -> list[UInt8[np.ndarray, "..."]]:
        arrays = []
        with self.reading(file), open_regular(file) as stream:
            expect_sum(stream, self.packed)
            with zipfile.ZipFile(stream) as archive:
                for name, shape in self._shapes().items():
                    with archive.open(f"gzip/{name}.gz") as member:
                        arrays.append(parse_idx(gzip.GzipFile(fileobj=member), shape))
        return arrays
