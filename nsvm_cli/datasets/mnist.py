"""MNIST, and the data sets that come in the same files: two of the ten classes."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import textwrap
import zlib
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from nsvm_cli.datasets.base import Samples, Source
from nsvm_cli.errors import InputError
from nsvm_cli.registry import STRICT


def _distinct(classes: tuple[int, int]) -> tuple[int, int]:
    if classes[0] == classes[1]:
        raise ValueError(f"expected two different classes, got {list(classes)}")
    return classes


Class = Annotated[int, Field(ge=0, le=9)]
Classes = Annotated[tuple[Class, Class], AfterValidator(_distinct)]

IMAGES = {"train": 60000, "t10k": 10000}
FILES = [f"{part}-{what}" for part in IMAGES for what in ("images-idx3-ubyte", "labels-idx1-ubyte")]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class MNIST(Source):
    """Two classes of MNIST with the official split; pixels in 0..1 (paper, Section 5.2: 0 versus 1).

    The files are read from ``root`` in torchvision's layout, ``root/MNIST/raw/*-ubyte``, as ``.gz`` or
    unpacked, and verified. Without ``root`` they are taken from the user's cache folder, where
    torchvision downloads them first if they are missing.
    """

    by_pixel: ClassVar[bool] = True
    folder: ClassVar[str] = "MNIST"
    # MD5 sums in the order of FILES; those of the .gz files are published, and torchvision checks them too
    packed: ClassVar[tuple[str, ...]] = (
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    )
    unpacked: ClassVar[tuple[str, ...] | None] = (
        "6bbc9ace898e44ae57da46a324031adb",
        "a25bea736e30d166cdddb491f175f624",
        "2646ac647ad5339dbf082846283269ea",
        "27ae3e4e09519cfbb04c329615203637",
    )

    classes: Classes = (0, 1)
    root: str | None = None

    def load(self, rng: np.random.Generator) -> Samples:
        raw = self._raw()
        x, y, rows = [], [], []
        for part, count in IMAGES.items():
            images = self._read(raw, f"{part}-images-idx3-ubyte", (count, 28, 28))
            labels = self._read(raw, f"{part}-labels-idx1-ubyte", (count,))
            chosen, signs = two_classes(labels, self.classes)
            x.append(images[chosen, None] / 255.0)
            y.append(signs)
            rows.append(len(signs))
        negative, positive = self.classes
        return Samples(
            np.concatenate(x),
            np.concatenate(y),
            (str(negative), str(positive)),
            str(raw),
            official_test=rows[0],
        )

    def _raw(self) -> Path:
        """The folder that holds the files, after a download where that is called for."""
        try:
            root = cache_folder() if self.root is None else Path(self.root).expanduser()
            raw = root / self.folder / "raw"
            missing = [name for name in FILES if not _find(raw, name)]
        except (OSError, RuntimeError) as error:
            raise InputError(
                f"dataset.root={self.root} cannot be looked into ({error}): {self._ways()}"
            ) from None
        if missing and self.root is not None:
            raise InputError(
                f"dataset.root={self.root} has no {self.folder}/raw/{missing[0]}[.gz]: {self._ways()}"
            )
        if missing:
            self._download(root)
        return raw

    def _ways(self) -> str:
        """How to get at the files, for the end of a sentence."""
        return (
            f"name a folder that holds {self.folder}/raw/*-ubyte[.gz] with dataset.root=FOLDER, leave it "
            "out to have torchvision download them, or take dataset=digits, which needs no network"
        )

    def _download(self, root: Path) -> None:
        try:
            # Not at the top: beside a torch built for other hardware this very import fails.
            from torchvision import datasets

            with contextlib.redirect_stdout(io.StringIO()):
                getattr(datasets, self.folder)(str(root), download=True)
        except ImportError as error:
            reason = f"torchvision is not installed: {error}"
        except OSError as error:
            reason = str(error)
        except (RuntimeError, AttributeError) as error:
            reason = str(error)
            if "torchvision" in reason:
                reason = f"the installed torchvision was built for another torch: {reason}"
        else:
            return
        reason = textwrap.shorten(reason, 200, placeholder=" ...")
        raise InputError(
            f"{self.folder}: {root} lacks the files, and they cannot be downloaded ({reason}): {self._ways()}"
        )

    def _read(self, raw: Path, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """One file, unpacked, verified and parsed."""
        file = _find(raw, name)
        if file is None:
            raise InputError(f"{raw} has no {name}[.gz]: {self._ways()}")
        sums = self.packed if file.suffix == ".gz" else self.unpacked
        try:
            content = file.read_bytes()
            array = parse_idx(gzip.decompress(content) if file.suffix == ".gz" else content, shape)
            got = hashlib.md5(content, usedforsecurity=False).hexdigest()
            if sums and got != (expected := sums[FILES.index(name)]):
                raise ValueError(f"it is not the published file, expected MD5 {expected}, got {got}")
        except (ValueError, OSError, EOFError, zlib.error) as error:
            again = "delete it to have it downloaded again, or " if self.root is None else ""
            raise InputError(f"{file} is damaged ({error}): {again}{self._ways()}") from None
        return array


@dataclass(frozen=True, kw_only=True, config=STRICT)
class FashionMNIST(MNIST):
    """Two classes of Fashion-MNIST. No sums of its unpacked files are published: their shape is checked."""

    folder: ClassVar[str] = "FashionMNIST"
    packed: ClassVar[tuple[str, ...]] = (
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    )
    unpacked: ClassVar[tuple[str, ...] | None] = None


@dataclass(frozen=True, kw_only=True, config=STRICT)
class KMNIST(MNIST):
    """Two classes of Kuzushiji-MNIST. No sums of its unpacked files are published: their shape is checked."""

    folder: ClassVar[str] = "KMNIST"
    packed: ClassVar[tuple[str, ...]] = (
        "bdb82020997e1d708af4cf47b453dcf7",
        "e144d726b3acfaa3e44228e80efcd344",
        "5c965bf0a639b31b8f53240b1b52f4d7",
        "7320c461ea6c1c855c0b718fb2a4b134",
    )
    unpacked: ClassVar[tuple[str, ...] | None] = None


def cache_folder() -> Path:
    """Where downloads are kept: ``$XDG_CACHE_HOME/nsvm``, by default ``~/.cache/nsvm``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nsvm"


def two_classes(labels: np.ndarray, classes: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """The rows of two classes, and their labels: -1 for the first, +1 for the second."""
    rows = np.flatnonzero(np.isin(labels, classes))
    return rows, np.where(labels[rows] == classes[1], 1.0, -1.0)


def parse_idx(data: bytes, shape: tuple[int, ...]) -> np.ndarray:
    """The unsigned bytes of an IDX file: magic number, sizes as big-endian int32, content.

    Raises:
        ValueError: the header or the length is not that of this shape.
    """
    header = np.array([0x0800 + len(shape), *shape], dtype=">i4").tobytes()
    size = len(header) + int(np.prod(shape))
    if not data.startswith(header):
        raise ValueError(f"its header does not say {'x'.join(map(str, shape))} bytes")
    if len(data) != size:
        raise ValueError(f"expected {size} bytes, got {len(data)}")
    return np.frombuffer(data, dtype=np.uint8, offset=len(header)).reshape(shape)


def _find(raw: Path, name: str) -> Path | None:
    return next((f for f in (raw / f"{name}.gz", raw / name) if f.is_file()), None)
