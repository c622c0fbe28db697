"""MNIST and the data sets that share its file format, all classes or some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from jaxtyping import UInt8
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.idx import find_idx, read_idx
from nsvm_cli.datasets.image_files import Classes, ImageFiles, Part, numbered_classes
from nsvm_cli.errors import InputError

IMAGES = {"train": 60000, "t10k": 10000}
FILES = [f"{split}-{kind}" for split in IMAGES for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class MNIST(ImageFiles):
    """MNIST with the official split; pixels in 0..1 (paper, Section 5.2: the classes 0 versus 1).

    The files are read from ``root`` in torchvision's layout, ``root/MNIST/raw/*-ubyte``, as ``.gz`` or
    unpacked, and verified. Without ``root`` they are read from the user's cache folder, and downloaded first
    if they are missing.
    """

    title: ClassVar[str] = "MNIST"
    mirrors: ClassVar[tuple[str, ...]] = (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    )
    # SHA-256 checksums in the order of FILES
    packed: ClassVar[tuple[str, ...]] = (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    )
    unpacked: ClassVar[tuple[str, ...] | None] = (
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    )

    classes: Classes = (0, 1)

    @property
    def folder(self) -> str:
        return f"{self.title}/raw"

    @property
    def layout(self) -> str:
        return f"{self.folder}/*-ubyte[.gz]"

    def sums(self) -> Mapping[str, str]:
        return {f"{name}.gz": sha256 for name, sha256 in zip(FILES, self.packed, strict=True)}

    def missing(self, folder: Path) -> dict[str, str]:
        missing = [name for name in FILES if not find_idx(folder, name)]
        return {f"{self.folder}/{name}[.gz]": f"{name}.gz" for name in missing}

    def chosen(self) -> tuple[Sequence[int], tuple[str, ...]]:
        return numbered_classes(self.classes)

    def read(self, folder: Path) -> tuple[Part, Part]:
        return self._part(folder, "train"), self._part(folder, "t10k")

    def _part(self, folder: Path, name: str) -> Part:
        m = IMAGES[name]
        images = self._read(folder, f"{name}-images-idx3-ubyte", (m, 28, 28))
        return images[:, None], self._read(folder, f"{name}-labels-idx1-ubyte", (m,))

    def _read(self, folder: Path, name: str, shape: tuple[int, ...]) -> UInt8[np.ndarray, "..."]:
        file = find_idx(folder, name)
        if file is None:
            raise InputError(f"{folder} has no {name}[.gz]: {self.ways()}")
        sums = self.packed if file.suffix == ".gz" else self.unpacked
        with self.reading(file):
            return read_idx(file, shape, sums[FILES.index(name)] if sums else None)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class FashionMNIST(MNIST):
    """Fashion-MNIST. There are no published checksums for its unpacked files."""

    title: ClassVar[str] = "FashionMNIST"
    mirrors: ClassVar[tuple[str, ...]] = (
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    )
    packed: ClassVar[tuple[str, ...]] = (
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    )
    unpacked: ClassVar[tuple[str, ...] | None] = None


@dataclass(frozen=True, kw_only=True, config=STRICT)
class KMNIST(MNIST):
    """Kuzushiji-MNIST. There are no published checksums for its unpacked files."""

    title: ClassVar[str] = "KMNIST"
    mirrors: ClassVar[tuple[str, ...]] = ("https://codh.rois.ac.jp/kmnist/dataset/kmnist/",)
    packed: ClassVar[tuple[str, ...]] = (
        "51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4",
        "e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17",
        "edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5",
        "20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c",
    )
    unpacked: ClassVar[tuple[str, ...] | None] = None
