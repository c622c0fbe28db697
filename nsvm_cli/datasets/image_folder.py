"""Images of any size, in a folder for each class or named by a table."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.base import Samples, expect_column
from nsvm_cli.datasets.csv import read_cells
from nsvm_cli.datasets.image_files import Images
from nsvm_cli.datasets.image_reader import ImageReader, images_below, is_hidden
from nsvm_cli.datasets.layout import Dialect
from nsvm_cli.errors import InputError
from nsvm_cli.output import shortened

NAMES = {"train": "train training", "validation": "val valid validation dev", "test": "test testing"}
SPLITS = {name: split for split, names in NAMES.items() for name in names.split()}
"""The names of folders of splits, in lower case."""

FILLERS = {"data", "dataset", "set", "image", "images", "imgs", "samples"}
"""Words beside the names of splits, as in train_images and Test-Data."""

LONGEST_LIST = 1000
"""The maximum length of a list of files in a message."""


def _colour(name: str) -> str:
    from PIL import ImageColor  # slow to import

    ImageColor.getrgb(name)
    return name


Side = Annotated[int, Field(ge=1, le=1024)]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ImageFolder(Images):
    """Images below ``path``, in a folder for each class, or in such folders below train, val and test.

    ``validation_path`` and ``test_path`` name folders elsewhere, which may lack classes. ``labels`` is a
    table with the columns ``file``, a path below ``path``, and ``label``.

    Images are scaled to cover ``size``, a side or height and width, and cropped at the centre. Transparent
    pixels are laid on ``background``.
    """

    path: str
    validation_path: str | None = None
    test_path: str | None = None
    labels: str | None = None
    size: Side | tuple[Side, Side] = 64
    grey: bool = False
    background: Annotated[str, AfterValidator(_colour)] = "white"
    skip_unreadable: bool = False

    def load(self, rng: np.random.Generator) -> Samples:
        remarks = list[str]()
        folders = self._folders(remarks)
        named = {
            split: self._named(folder, remarks) if self.labels is None else self._listed(folder, remarks)
            for split, folder in folders.items()
        }
        names = sorted({name for _, name in named["train"]})
        for split, files in named.items():
            if unknown := sorted({name for _, name in files} - {*names}):
                where = f"{folders[split]} has classes that {folders['train']} lacks"
                raise InputError(f"{where}: {', '.join(unknown)}")
        wanted = self.classes or names
        chosen = [(s, file, name) for s, files in named.items() for file, name in files if name in wanted]
        size = self.size if isinstance(self.size, tuple) else (self.size, self.size)
        reader = ImageReader((1 if self.grey else 3, *size), self.background)
        x, unreadable = reader.cached([file for _, file, _ in chosen])
        if unreadable and not self.skip_unreadable:
            what = f"{len(unreadable)} of {len(x)} images cannot be read"
            reasons = shortened("; ".join(unreadable.values()), LONGEST_LIST)
            raise InputError(f"{what}; dataset.skip_unreadable=true leaves them out: {reasons}")
        y = np.searchsorted(names, [name for _, _, name in chosen])
        splits = np.array([split for split, _, _ in chosen], str)
        splits[[*unreadable]] = ""
        parts = {split: (x[splits == split], y[splits == split]) for split in named}
        remarks += [*reader.remarks, *[f"left out {len(unreadable)} unreadable images"] * bool(unreadable)]
        equal = len(x) - len({hash(image.tobytes()) for image in x})
        if equal >= 0.1 * len(x):
            remarks.append(f"{equal} of {len(x)} images have the same pixels as another one")
        return replace(self.chosen(self.path, names, parts), remarks=tuple(remarks))

    def _folders(self, remarks: list[str]) -> dict[str, Path]:
        """Return the folders of the splits, the training set first."""
        paths = {"train": self.path, "validation": self.validation_path, "test": self.test_path}
        folders = {split: Path(os.path.expanduser(path)) for split, path in paths.items() if path is not None}
        for split, folder in folders.items():
            if not folder.is_dir():
                key = "path" if split == "train" else f"{split}_path"
                what = "is not a folder" if folder.exists() else "does not exist"
                raise InputError(f"dataset.{key}={paths[split]} {what}: expected a folder of images")
        inside = _subfolders(folders["train"])
        named = [(kind, folder) for folder in inside if (kind := _split(folder.name))]
        of_split = dict(sorted(named, key=lambda item: [*paths].index(item[0])))
        whole = len(named) == len(inside)
        if len(folders) > 1 or self.labels is not None or "train" not in of_split or not (named[1:] or whole):
            return folders
        if not whole or len(of_split) < len(named) or not _subfolders(of_split["train"]):
            names = ", ".join(folder.name for folder in inside)
            expected = "expected folders of classes, or train and test with folders of classes in them"
            advice = f"name the training set with dataset.path={of_split['train']}"
            raise InputError(f"dataset.path={self.path}: {expected}, found {names}; {advice}")
        bare = [split for split, folder in of_split.items() if not _subfolders(folder)]
        remarks += [f"{of_split[split]} has no folders of classes: left out" for split in bare]
        folders = {split: folder for split, folder in of_split.items() if split not in bare}
        remarks.append(f"splits: {', '.join(f'{split} from {folder}' for split, folder in folders.items())}")
        return folders

    def _named(self, folder: Path, remarks: list[str]) -> list[tuple[Path, str]]:
        """Return the images in the folders of the classes, each with its class."""
        files, others = images_below(folder)
        in_class = [(file, file.relative_to(folder).parts[0]) for file in files if file.parent != folder]
        if loose := len(files) - len(in_class):
            remarks.append(f"{folder}: left out {loose} images that are in no folder of a class")
        if others:
            counts = (f"{count} {suffix or 'without ending'}" for suffix, count in others.most_common())
            kinds = shortened(", ".join(counts), LONGEST_LIST // 8)
            remarks.append(f"{folder}: left out files of other formats: {kinds}")
        if empty := sorted({below.name for below in _subfolders(folder)} - {name for _, name in in_class}):
            remarks.append(f"{folder}: no images in {', '.join(empty)}")
        if not in_class:
            flat = f"; {loose} images are in no folder: dataset.labels names a table of their classes"
            what = f"{folder}: expected a folder of images for each class, found none"
            raise InputError(what + flat * bool(loose))
        if len({name for _, name in in_class}) == 1 and (inner := _subfolders(folder / in_class[0][1])):
            what = f"{folder}: expected folders of two or more classes, found {in_class[0][1]}"
            raise InputError(f"{what}; if its folders are the classes: dataset.path={inner[0].parent}")
        return in_class

    def _listed(self, folder: Path, remarks: list[str]) -> list[tuple[Path, str]]:
        """Return the images that the table of labels names, by path, name or name without suffix."""
        columns = ["file", "label"]
        table, lines = read_cells(str(self.labels), "dataset.labels", Dialect(), text=columns)
        for name in columns:
            expect_column("dataset.labels", self.labels, name, table)
        if table[columns].isna().any(axis=None):
            raise InputError(f"dataset.labels={self.labels}: expected a file and a label in each row")
        files, _ = images_below(folder)
        by_name = dict[str, set[Path]]()
        for file in files:
            for key in (str(file.relative_to(folder)), file.name, file.stem):
                by_name.setdefault(key, set()).add(file)
        listed = []
        for name, label in zip(table["file"], table["label"], strict=True):
            matches = by_name.get(name, {folder / name})
            if len(matches) > 1 and not (matches := matches & {folder / name}):
                several = ", ".join(map(str, sorted(by_name[name])[:2]))
                advice = f"{name} may be {several}: name paths below {folder}"
                raise InputError(f"dataset.labels={self.labels}: {advice}")
            listed.append((min(matches), label))
        if unlisted := len({*files} - {file for file, _ in listed}):
            lines = [*lines, f"{folder}: left out {unlisted} images that {self.labels} does not name"]
        remarks += lines
        return listed


def _split(folder: str) -> str | None:
    """Return the split that a folder is named after; None for other folders."""
    words = [word for word in re.split(r"[\s_-]+", folder.lower()) if word not in FILLERS]
    return SPLITS.get(" ".join(words))


def _subfolders(folder: Path) -> Sequence[Path]:
    """Return the folders in a folder, except hidden ones."""
    return sorted(below for below in folder.iterdir() if below.is_dir() and not is_hidden(below.name))
