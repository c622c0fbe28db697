"""MNIST and the data sets that share its file format, all classes or some."""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.augmentation import Augment
from nsvm_cli.datasets.base import Samples, Source
from nsvm_cli.datasets.download import cache_folder, fetch
from nsvm_cli.errors import InputError
from nsvm_cli.storage.files import read_regular
from nsvm_cli.tasks import encode


def _distinct(classes: tuple[int, ...] | None) -> tuple[int, ...] | None:
    if classes is not None and not 2 <= len(classes) == len({*classes}):
        raise ValueError(f"expected two or more different classes, got {list(classes)}")
    return classes


Class = Annotated[int, Field(ge=0, le=9)]
Classes = Annotated[tuple[Class, ...] | None, AfterValidator(_distinct)]
"""Classes to choose; None for all."""

IMAGES = {"train": 60000, "t10k": 10000}
FILES = [f"{split}-{kind}" for split in IMAGES for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class MNIST(Source):
    """MNIST with the official split; pixels in 0..1 (paper, Section 5.2: the classes 0 versus 1).

    The files are read from ``root`` in torchvision's layout, ``root/MNIST/raw/*-ubyte``, as ``.gz`` or
    unpacked, and verified. Without ``root`` they are read from the user's cache folder, and downloaded first
    if they are missing.
    """

    global_scaling: ClassVar[bool] = True
    folder: ClassVar[str] = "MNIST"
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
    root: str | None = None
    augment: Augment = ()

    def load(self, rng: np.random.Generator) -> Samples:
        raw = self._raw()
        x, y, rows = [], [], []
        for split, count in IMAGES.items():
            images = self._read(raw, f"{split}-images-idx3-ubyte", (count, 28, 28))
            labels = self._read(raw, f"{split}-labels-idx1-ubyte", (count,))
            chosen, codes, names = chosen_classes(labels, self.classes or range(10))
            x.append(images[chosen, None] / 255.0)
            y.append(codes)
            rows.append(len(codes))
        return Samples(np.concatenate(x), np.concatenate(y), names, str(raw), official_test=rows[0])

    def _raw(self) -> Path:
        """Return the folder that holds the files, after downloading them if necessary."""
        try:
            root = cache_folder() if self.root is None else Path(self.root).expanduser()
            raw = root / self.folder / "raw"
            missing = [name for name in FILES if not _find(raw, name)]
        except (OSError, RuntimeError) as error:
            raise InputError(f"dataset.root={self.root} cannot be read ({error}): {self._ways()}") from None
        if missing and self.root is not None:
            raise InputError(
                f"dataset.root={self.root} has no {self.folder}/raw/{missing[0]}[.gz]: {self._ways()}"
            )
        if missing:
            self._download(raw, missing)
        return raw

    def _ways(self) -> str:
        """Return advice on how to obtain the files, for the end of a message."""
        return (
            f"name a folder that holds {self.folder}/raw/*-ubyte[.gz] with dataset.root=FOLDER, omit "
            "dataset.root to download them, or use dataset=digits, which needs no network"
        )

    def _download(self, raw: Path, missing: list[str]) -> None:
        try:
            fetch(raw, {f"{name}.gz": self.packed[FILES.index(name)] for name in missing}, self.mirrors)
        except OSError as error:
            raise InputError(
                f"{self.folder}: {raw} lacks files, and they cannot be downloaded ({error}): {self._ways()}"
            ) from None

    def _read(self, raw: Path, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Return the content of one file, unpacked, verified and parsed."""
        file = _find(raw, name)
        if file is None:
            raise InputError(f"{raw} has no {name}[.gz]: {self._ways()}")
        packed = file.suffix == ".gz"
        sums = self.packed if packed else self.unpacked
        size = idx_size(shape)
        try:
            content = read_regular(file, limit=size)  # packed, it is smaller
            got = hashlib.sha256(content).hexdigest()
            if sums and got != (expected := sums[FILES.index(name)]):
                raise ValueError(f"it is not the published file, expected SHA-256 {expected}, got {got}")
            if packed:
                content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(size + 1)
            array = parse_idx(content, shape)
        except (ValueError, OSError, EOFError, zlib.error) as error:
            again = "delete it to download it again, or " if self.root is None else ""
            raise InputError(f"{file} is damaged ({error}): {again}{self._ways()}") from None
        return array


@dataclass(frozen=True, kw_only=True, config=STRICT)
class FashionMNIST(MNIST):
    """Fashion-MNIST. There are no published checksums for its unpacked files."""

    folder: ClassVar[str] = "FashionMNIST"
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

    folder: ClassVar[str] = "KMNIST"
    mirrors: ClassVar[tuple[str, ...]] = ("https://codh.rois.ac.jp/kmnist/dataset/kmnist/",)
    packed: ClassVar[tuple[str, ...]] = (
        "51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4",
        "e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17",
        "edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5",
        "20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c",
    )
    unpacked: ClassVar[tuple[str, ...] | None] = None


def chosen_classes(
    labels: np.ndarray, classes: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Return the rows that belong to some classes, the codes of their labels, and the names of these."""
    rows = np.flatnonzero(np.isin(labels, classes))
    return rows, encode(labels[rows], classes), tuple(map(str, classes))


def parse_idx(data: bytes, shape: tuple[int, ...]) -> np.ndarray:
    """Return the unsigned bytes of an IDX file: magic number, sizes as big-endian int32, content.

    Raises:
        ValueError: the header or the length does not match this shape.
    """
    header = np.array([0x0800 + len(shape), *shape], dtype=">i4").tobytes()
    size = idx_size(shape)
    if not data.startswith(header):
        raise ValueError(f"its header is not that of {'x'.join(map(str, shape))} bytes")
    if len(data) != size:
        raise ValueError(f"expected {size} bytes, got {len(data)}")
    return np.frombuffer(data, dtype=np.uint8, offset=len(header)).reshape(shape)


def idx_size(shape: tuple[int, ...]) -> int:
    """Return the bytes of an IDX file of unsigned bytes of this shape."""
    return 4 + 4 * len(shape) + math.prod(shape)


def _find(raw: Path, name: str) -> Path | None:
    return next((f for f in (raw / f"{name}.gz", raw / name) if f.is_file()), None)
