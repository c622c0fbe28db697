"""Published files of images with an official split, found or downloaded, and verified before use."""

from __future__ import annotations

import hashlib
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from jaxtyping import UInt8
from pydantic import AfterValidator, BeforeValidator
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.augmentation import Augment
from nsvm_cli.datasets.base import Samples, Source
from nsvm_cli.datasets.download import cache_folder, fetch
from nsvm_cli.errors import InputError, did_you_mean, plainly
from nsvm_cli.storage.files import read_regular
from nsvm_cli.tasks import encode

LARGEST = 2**28
"""The most bytes of a file: more than the largest that is published."""


def _distinct(classes: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if classes is not None and not 2 <= len(classes) == len({*classes}):
        raise ValueError(f"expected two or more different classes, got [{', '.join(classes)}]")
    return classes


def _as_name(name: object) -> object:
    return str(name) if type(name) is int else name  # a digit from the command line


ClassName = Annotated[str, BeforeValidator(_as_name)]
ClassNames = Annotated[tuple[ClassName, ...] | None, AfterValidator(_distinct)]
"""Classes to choose, by their names; None for all."""

Part = tuple[UInt8[np.ndarray, "_ c h w"], UInt8[np.ndarray, " _"]]
"""The images of a training or test set, and their labels."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ImageFiles(Source):
    """Images from files below ``root``; pixels are bytes, which stand for 0..1.

    Without ``root`` they are in the user's cache folder, and downloaded first if they are missing.
    """

    global_scaling: ClassVar[bool] = True
    address: ClassVar[str]
    """The address of the files, without their names."""
    below: ClassVar[str]
    """The folder of the files below ``root``."""
    sums: ClassVar[Mapping[str, str]]
    """The SHA-256 checksums of the files."""
    names: ClassVar[Sequence[str]] = string.digits
    """The names of the classes, in the order of their labels."""

    root: str | None = None
    classes: ClassNames = None
    augment: Augment = ()

    def parts(self) -> tuple[Part, Part]:
        """Return the training set and the test set."""
        raise NotImplementedError

    def load(self, rng: np.random.Generator) -> Samples:
        labels, names = chosen_classes(self.classes, self.names)
        parts = self.parts()
        rows = [np.flatnonzero(np.isin(y, labels)) for _, y in parts]
        x = np.concatenate([images[chosen] for (images, _), chosen in zip(parts, rows, strict=True)])
        y = np.concatenate([encode(y[chosen], labels) for (_, y), chosen in zip(parts, rows, strict=True)])
        return Samples(x, y, names, str(self.folder), official_test=len(rows[0]))

    @property
    def folder(self) -> Path:
        """The folder of the files."""
        if self.root is not None:
            return Path(self.root).expanduser() / self.below
        return cache_folder() / (self.below or type(self).__name__)

    def read(self, name: str) -> bytes:
        """Return the content of a published file.

        Raises:
            InputError: it is missing or damaged, or cannot be downloaded.
        """
        try:
            file = self.folder / name
            if self.root is None:
                fetch(self.address + name, self.sums[name], self.folder)
            content = read_regular(file, LARGEST)
            if (got := hashlib.sha256(content).hexdigest()) != self.sums[name]:
                raise ValueError(f"{file} is not the published file: its SHA-256 is {got}")
        except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: there is no such user's folder
            what = "the files cannot be downloaded" if self.root is None else f"dataset.root={self.root}"
            omit = "" if self.root is None else "omit dataset.root to download them, "
            reason = plainly(error) if isinstance(error, OSError) else error
            raise InputError(
                f"{what}: {reason}; name a folder that holds {Path(self.below, name)} with "
                f"dataset.root=FOLDER, {omit}or use dataset=digits, which needs no network"
            ) from None
        return content


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
