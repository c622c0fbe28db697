"""Published files of images with an official split: finding or downloading, verifying, unpacking them."""

from __future__ import annotations

import hashlib
import math
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Annotated, Any, ClassVar, cast

import numpy as np
from jaxtyping import Shaped, UInt8
from pydantic import AfterValidator, BeforeValidator
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.augmentation import Augment
from nsvm_cli.datasets.base import Samples, Source
from nsvm_cli.datasets.download import cache_folder, fetch
from nsvm_cli.datasets.table_files import Stream, unpacked
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.memory import expect_room
from nsvm_cli.storage.files import open_regular
from nsvm_cli.tasks import encode

PER_PIXEL = 1 + 8
"""Bytes of memory for each pixel: one as it is kept, eight while mean and deviation are computed."""

LARGEST = 2**30
"""The most bytes of a file: twice those of the largest that is published."""


def _distinct(classes: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if classes is not None and not 2 <= len(classes) == len({*classes}):
        raise ValueError(f"expected two or more different classes, got [{', '.join(classes)}]")
    return classes


def _as_name(name: object) -> object:
    return str(name) if type(name) is int else name  # a digit from the command line


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
    sums: ClassVar[Mapping[str, str]]
    """The SHA-256 checksums of the files that have a published one; these can be downloaded."""
    archive: ClassVar[str] = ""
    """A tar or zip file that may take the place of all others, if there is one."""
    endings: ClassVar[tuple[str, ...]] = ("",)
    """What may follow the name of a file: ``.gz`` if it may be compressed."""
    pattern: ClassVar[str]
    """The names of the files, for messages."""

    root: str | None = None
    classes: ClassNames = None
    augment: Augment = ()

    @property
    def below(self) -> str:
        """The folder of the files below ``root``."""
        return ""

    @property
    def files(self) -> Sequence[str]:
        """The names of the files in this folder."""
        raise NotImplementedError

    @property
    def names(self) -> Sequence[str]:
        """The names of the classes, in the order of their labels."""
        raise NotImplementedError

    def parse(self, name: str, content: Stream) -> Any:
        """Return what a file holds.

        Raises:
            ValueError, OSError: it is damaged; or one of the errors of damaged compressed files.
        """
        raise NotImplementedError

    def parts(self, contents: Sequence[Any]) -> tuple[Part, Part]:
        """Return the training set and the test set from the content of all files, in their order."""
        raise NotImplementedError

    def load(self, rng: np.random.Generator) -> Samples:
        labels, names = chosen_classes(self.classes, self.names)
        folder = self._find()
        parts = self.parts(self._contents(folder))
        rows = [np.flatnonzero(np.isin(y, labels)) for _, y in parts]
        m, shape = sum(map(len, rows)), parts[0][0].shape[1:]
        expect_room(PER_PIXEL * m * math.prod(shape), f"{self.title}, {m} images,")
        x = np.concatenate([images[chosen] for (images, _), chosen in zip(parts, rows, strict=True)])
        y = np.concatenate([encode(y[chosen], labels) for (_, y), chosen in zip(parts, rows, strict=True)])
        return Samples(x, y, names, str(folder), official_test=len(rows[0]))

    def _find(self) -> Path:
        """Return the folder that holds the files, after downloading them if necessary."""
        try:
            if self.root is None:  # files that have no folder of their own get one
                folder = cache_folder() / (self.below or self.title)
            else:
                folder = Path(self.root).expanduser() / self.below
            missing = [name for name, file in self._found(folder).items() if file is None]
            if self.archive and (folder / self.archive).is_file():
                missing = []
        except (OSError, RuntimeError) as error:
            raise InputError(f"dataset.root={self.root} cannot be read ({error}): {self.ways()}") from None
        if missing and self.root is not None:
            archive = f" and no {PurePath(self.below, self.archive)}" if self.archive else ""
            file = f"{PurePath(self.below, missing[0])}{'[.gz]' if '.gz' in self.endings else ''}"
            raise InputError(f"dataset.root={self.root} has no {file}{archive}: {self.ways()}")
        if missing:
            self._download(folder, [self.archive or f"{name}{self.endings[0]}" for name in missing])
        return folder

    def _found(self, folder: Path) -> dict[str, Path | None]:
        """Return where in a folder each file is, by its name; None if it is missing."""
        places = {name: [folder / f"{name}{ending}" for ending in self.endings] for name in self.files}
        return {name: next(filter(Path.is_file, files), None) for name, files in places.items()}

    def ways(self) -> str:
        """Return advice on how to obtain the files, for the end of a message."""
        omit = "" if self.root is None else "omit dataset.root to download them, "
        layout = " or ".join(str(PurePath(self.below, name)) for name in (self.pattern, self.archive) if name)
        return (
            f"name a folder that holds {layout} with dataset.root=FOLDER, {omit}"
            "or use dataset=digits, which needs no network"
        )

    def _download(self, folder: Path, names: Sequence[str]) -> None:
        try:
            fetch(folder, {name: self.sums[name] for name in names}, self.mirrors)
        except OSError as error:
            raise InputError(
                f"{self.title}: {folder} lacks files, and they cannot be downloaded ({error}): {self.ways()}"
            ) from None

    def _contents(self, folder: Path) -> list[Any]:
        """Return the content of all files, in their order: from the archive, unless the folder has them."""
        contents = {}
        for name, file in self._found(folder).items():
            if file is None:
                return self._unarchived(folder / self.archive)
            with self._verified(file) as stream:
                contents[name] = self.parse(name, unpacked(stream, file))
        return [*contents.values()]

    def _unarchived(self, archive: Path) -> list[Any]:
        names, contents = {PurePath(name).name: name for name in self.files}, {}
        with self._verified(archive) as stream:
            for path, content in _members(stream):
                if (name := names.get(path.name.removesuffix(".gz"))) is not None:
                    contents[name] = self.parse(name, unpacked(content, path))
            for name in names:
                if names[name] not in contents:
                    raise ValueError(f"it has no {name}")
        return [contents[name] for name in self.files]

    @contextmanager
    def _verified(self, file: Path) -> Iterator[Stream]:
        """Open a file and compare its checksum, if there is one; errors say what to do."""
        try:
            with open_regular(file) as stream:
                if (size := os.fstat(stream.fileno()).st_size) > LARGEST:
                    raise ValueError(f"it has {size} bytes, expected at most {LARGEST}")
                if file.name in self.sums:
                    _expect_sum(stream, self.sums[file.name])
                yield stream
        except (ValueError, OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile) as error:
            again = "delete it to download it again, or " if self.root is None else ""
            raise InputError(f"{file} is damaged ({error}): {again}{self.ways()}") from None


def _members(archive: Stream) -> Iterator[tuple[PurePath, Stream]]:
    """Yield the paths and contents of the files in a tar or zip file."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as members:
            for path in members.namelist():
                yield PurePath(path), cast(Stream, members.open(path))
        return
    archive.seek(0)
    with tarfile.open(fileobj=archive, mode="r|*") as members:
        for member in members:
            if content := members.extractfile(member):
                yield PurePath(member.name), cast(Stream, content)


def chosen_classes(
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


def _expect_sum(file: Stream, expected: str) -> None:
    """Raise a ValueError unless this is the SHA-256 checksum of a file, and go back to its start."""
    got = hashlib.file_digest(file, "sha256").hexdigest()
    if got != expected:
        raise ValueError(f"it is not the published file, expected SHA-256 {expected}, got {got}")
    file.seek(0)
