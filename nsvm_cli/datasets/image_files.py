"""Published files of images with an official split: finding or downloading, verifying, unpacking them."""

from __future__ import annotations

import hashlib
import math
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import IO, Annotated, ClassVar

import numpy as np
from jaxtyping import Shaped, UInt8
from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.augmentation import Augment
from nsvm_cli.datasets.base import Samples, Source
from nsvm_cli.datasets.download import cache_folder, fetch
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.memory import expect_room
from nsvm_cli.tasks import encode

PER_PIXEL = 1 + 8
"""Bytes of memory for each pixel: one as it is kept, eight while mean and deviation are computed."""


def _distinct(classes: tuple[int | str, ...] | None) -> tuple[int | str, ...] | None:
    if classes is not None and not 2 <= len(classes) == len({*classes}):
        raise ValueError(f"expected two or more different classes, got {[*classes]}")
    return classes


def _as_name(name: object) -> object:
    return str(name) if type(name) is int else name  # a digit from the command line


Class = Annotated[int, Field(ge=0, le=9)]
Classes = Annotated[tuple[Class, ...] | None, AfterValidator(_distinct)]
"""Classes to choose, by their numbers; None for all."""

ClassName = Annotated[str, BeforeValidator(_as_name)]
ClassNames = Annotated[tuple[ClassName, ...] | None, AfterValidator(_distinct)]
"""Classes to choose, by their names; None for all."""

Part = tuple[UInt8[np.ndarray, "_ c h w"], Shaped[np.ndarray, " _"]]
"""The images of a training or test set, and their labels."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ImageFiles(Source):
    """Images from files in a folder below ``root``; pixels are bytes, which stand for 0..1.

    Without ``root`` they are in the user's cache folder, and downloaded first if they are missing.
    """

    global_scaling: ClassVar[bool] = True
    title: ClassVar[str]
    mirrors: ClassVar[tuple[str, ...]]

    root: str | None = None
    augment: Augment = ()

    @property
    def folder(self) -> str:
        """The folder of the files below ``root``."""
        raise NotImplementedError

    @property
    def layout(self) -> str:
        """The files below ``root``, for messages."""
        raise NotImplementedError

    def sums(self) -> Mapping[str, str]:
        """Return the names and SHA-256 checksums of the files that can be downloaded."""
        raise NotImplementedError

    def missing(self, folder: Path) -> dict[str, str]:
        """Return the files that the folder lacks, in words, and the download of each."""
        raise NotImplementedError

    def read(self, folder: Path) -> tuple[Part, Part]:
        """Return the training set and the test set.

        Raises:
            InputError: a file is missing or damaged.
        """
        raise NotImplementedError

    def chosen(self) -> tuple[Sequence[int], tuple[str, ...]]:
        """Return the labels of the classes to load, and their names."""
        raise NotImplementedError

    def load(self, rng: np.random.Generator) -> Samples:
        labels, names = self.chosen()
        folder = self._find()
        parts = self.read(folder)
        rows = [np.flatnonzero(np.isin(y, labels)) for _, y in parts]
        m, shape = sum(map(len, rows)), parts[0][0].shape[1:]
        expect_room(PER_PIXEL * m * math.prod(shape), f"{self.title}, {m} images,")
        x = np.concatenate([images[chosen] for (images, _), chosen in zip(parts, rows, strict=True)])
        y = np.concatenate([encode(y[chosen], labels) for (_, y), chosen in zip(parts, rows, strict=True)])
        return Samples(x, y, names, str(folder), official_test=len(rows[0]))

    def _find(self) -> Path:
        """Return the folder that holds the files, after downloading them if necessary."""
        try:
            root = cache_folder() if self.root is None else Path(self.root).expanduser()
            folder = root / self.folder
            missing = self.missing(folder)
        except (OSError, RuntimeError) as error:
            raise InputError(f"dataset.root={self.root} cannot be read ({error}): {self.ways()}") from None
        if missing and self.root is not None:
            raise InputError(f"dataset.root={self.root} has no {next(iter(missing))}: {self.ways()}")
        if missing:
            self._download(folder, [*dict.fromkeys(missing.values())])
        return folder

    def ways(self) -> str:
        """Return advice on how to obtain the files, for the end of a message."""
        omit = "" if self.root is None else "omit dataset.root to download them, "
        return (
            f"name a folder that holds {self.layout} with dataset.root=FOLDER, {omit}"
            "or use dataset=digits, which needs no network"
        )

    def _download(self, folder: Path, names: Sequence[str]) -> None:
        try:
            fetch(folder, {name: self.sums()[name] for name in names}, self.mirrors)
        except OSError as error:
            raise InputError(
                f"{self.title}: {folder} lacks files, and they cannot be downloaded ({error}): {self.ways()}"
            ) from None

    @contextmanager
    def reading(self, file: Path) -> Iterator[None]:
        """Turn errors within the context into InputErrors that say what to do."""
        try:
            yield
        except (ValueError, OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile) as error:
            again = "delete it to download it again, or " if self.root is None else ""
            raise InputError(f"{file} is damaged ({error}): {again}{self.ways()}") from None


def numbered_classes(classes: tuple[int, ...] | None) -> tuple[Sequence[int], tuple[str, ...]]:
    """Return the labels of these of the ten classes 0 to 9, and their names; those of all ten for None."""
    chosen = classes or range(10)
    return chosen, tuple(map(str, chosen))


def named_classes(
    classes: tuple[str, ...] | None, names: Sequence[str]
) -> tuple[Sequence[int], tuple[str, ...]]:
    """Return the labels of the classes with these names, and the names; those of all classes for None.

    Raises:
        InputError: there is no class of this name.
    """
    label = {name: r for r, name in enumerate(names)}
    if unknown := [name for name in classes or () if name not in label]:
        hint = did_you_mean(unknown[0], label)
        raise InputError(f"dataset.classes: there is no class {unknown[0]!r}; {hint}")
    chosen = tuple(classes or label)
    return [label[name] for name in chosen], chosen


def expect_sum(file: BufferedIOBase | IO[bytes], expected: str) -> None:
    """Raise a ValueError unless this is the SHA-256 checksum of a file, and go back to its start."""
    got = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    if got != expected:
        raise ValueError(f"it is not the published file, expected SHA-256 {expected}, got {got}")
    file.seek(0)
