"""Image files of any size, in a folder for each class or listed in a table of labels."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from jaxtyping import UInt8
from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from nsvm_cli import __version__
from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.base import Samples, expect_column
from nsvm_cli.datasets.csv import read_cells
from nsvm_cli.datasets.image_files import Images
from nsvm_cli.datasets.layout import Dialect
from nsvm_cli.errors import InputError
from nsvm_cli.memory import expect_room
from nsvm_cli.output import shortened
from nsvm_cli.storage.files import cache_folder, open_regular, write_atomically

FORMATS = {
    ".png": "PNG",
    **dict.fromkeys((".jpg", ".jpeg"), "JPEG"),
    ".gif": "GIF",
    ".webp": "WEBP",
    ".avif": "AVIF",
    ".bmp": "BMP",
    **dict.fromkeys((".tif", ".tiff"), "TIFF"),
    ".tga": "TGA",
    ".jp2": "JPEG2000",
    ".ico": "ICO",
    **dict.fromkeys((".pbm", ".pgm", ".ppm", ".pnm"), "PPM"),
}
"""Maps suffixes of image files to formats. EPS is excluded, because Pillow would run Ghostscript."""

MODES = {1: "L", 3: "RGB"}
"""Maps numbers of channels to Pillow's modes."""

KEPT_SECONDS, KEPT_DAYS = 1.0, 30
"""Images are cached if decoding takes longer than KEPT_SECONDS, and deleted after KEPT_DAYS without use."""


def is_hidden(name: str) -> bool:
    """Return whether the name of a file or folder is hidden, or belongs to the metadata of macOS."""
    return name.startswith(".") or name == "__MACOSX"


def images_below(folder: Path) -> tuple[list[Path], Counter[str]]:
    """Return visible images below a folder in torchvision's order, and counts of other files by suffix."""
    below = sorted(os.walk(folder, followlinks=True))
    files = [Path(root, name) for root, _, names in below for name in sorted(names)]
    visible = [file for file in files if not any(map(is_hidden, file.relative_to(folder).parts))]
    images = [file for file in visible if file.suffix.lower() in FORMATS]
    others = Counter(suffix for file in visible if (suffix := file.suffix.lower()) not in FORMATS)
    return images, others


class ImageReader:
    """Read image files as arrays of one shape.

    Args:
        shape: channels (1 or 3), height and width.
        background: the colour behind transparent pixels. Images are scaled and cropped to the shape. With
            None, images must be opaque and have this shape.
    """

    def __init__(self, shape: tuple[int, ...], background: str | None) -> None:
        self.shape, self.background = shape, background
        self._inexact: dict[str, list[str]] = {}

    @property
    def remarks(self) -> tuple[str, ...]:
        """Messages about images that were read inexactly."""
        lines = []
        for issue, files in sorted(self._inexact.items()):
            plural = f"{len(files)} images, such as {min(files)}, have " if len(files) > 1 else ""
            lines.append((plural or "".join(f"{file} has " for file in files)) + issue)
        return tuple(lines)

    def __call__(self, file: Path) -> UInt8[np.ndarray, "c h w"]:
        """Return an image's pixels, rotated by its EXIF orientation, or raise an InputError."""
        from PIL import Image, UnidentifiedImageError

        # the format TGA has no signature, so that any file may look like it
        formats = {"TGA"} if file.suffix.lower() == ".tga" else {*FORMATS.values()} - {"TGA"}
        try:
            with open_regular(file) as content, Image.open(content, formats=[*formats]) as image:
                return self._pixels(image, file)
        except InputError:
            raise
        except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
            cause = getattr(error, "strerror", None) or error
            reason = "the image format is unknown" if isinstance(error, UnidentifiedImageError) else cause
            raise InputError(f"{file} cannot be read as an image: {reason}") from None

    def _pixels(self, image: Any, file: Path) -> np.ndarray:
        from PIL import Image, ImageOps

        c, height, width = self.shape
        if getattr(image, "is_animated", False) and image.format != "MPO":  # MPO: photos with thumbnails
            self._note("several frames; only the first frame is used", file)
        if image.mode == "CMYK":
            self._note("CMYK colours, which were converted to RGB without colour profile", file)
        mode = image.mode + " with transparency" * ("transparency" in image.info)
        if self.background is None and mode not in ("1", "L", "P", "RGB"):  # exact as L or RGB
            advice = "save it as 8-bit grey or RGB, without transparency"
            raise InputError(f"{file} has pixel mode {mode}; {advice}")
        if self.background is not None:
            side = 2 * max(height, width)  # large JPEG images are decoded at a fraction of their size
            image.draft(None, (side, side))
            image = self._opaque(ImageOps.exif_transpose(image), file).convert(MODES[c])
            image = ImageOps.fit(image, (width, height), Image.Resampling.BILINEAR)
        elif {*image.size} == {width, height}:
            image = ImageOps.exif_transpose(image).convert(MODES[c])
        if image.size != (width, height):
            got = f"{image.width} x {image.height}"
            raise InputError(f"{file} has {got} pixels, expected {width} x {height}")
        return np.array(image).reshape(height, width, c).transpose(2, 0, 1)

    def _opaque(self, image: Any, file: Path) -> Any:
        """Return an image with 8 bits per channel and without transparency."""
        from PIL import Image

        advice = "save it with 8 or 16 bits per channel"
        if image.mode.startswith("I"):
            values = np.asarray(image)
            if values.min() < 0 or values.max() >= 2**16:
                raise InputError(f"{file} has pixel values outside the range from 0 to 65535; {advice}")
            self._note("16 bits per channel, which were scaled to 8 bits", file)
            return Image.fromarray((values // 257).astype(np.uint8))
        if image.mode == "F":
            raise InputError(f"{file} has floating-point pixels; {advice}")
        if not image.has_transparency_data:
            return image
        above = image.convert("RGBA")
        if above.getextrema()[3][0] < 255:
            self._note(f"transparent pixels; the background was filled with {self.background}", file)
        return Image.alpha_composite(Image.new("RGBA", above.size, self.background), above)

    def _note(self, issue: str, file: Path) -> None:
        self._inexact.setdefault(issue, []).append(str(file))

    def all(self, files: Sequence[Path]) -> tuple[UInt8[np.ndarray, "m c h w"], dict[int, str]]:
        """Return the pixels of image files, and error messages by index of the files that are unreadable."""
        size = len(files) * int(np.prod(self.shape))
        expect_room(size, f"{len(files)} images")
        x, unreadable = np.zeros((len(files), *self.shape), np.uint8), dict[int, str]()

        def read(n: int) -> None:
            try:
                x[n] = self(files[n])
            except InputError as error:
                unreadable[n] = str(error)

        with warnings.catch_warnings(record=True) as caught, ThreadPoolExecutor() as pool:
            warnings.simplefilter("always")
            try:
                [*pool.map(read, range(len(files)))]
            finally:
                pool.shutdown(cancel_futures=True)
        if caught:
            self._inexact[f"Pillow warned about an image: {caught[0].message}"] = []
        return x, dict(sorted(unreadable.items()))

    def all_cached(self, files: Sequence[Path]) -> tuple[UInt8[np.ndarray, "m c h w"], dict[int, str]]:
        """Return the result of ``all``, using the user's cache folder if the files were decoded before."""
        settings: list[Any] = [__version__, version("pillow"), self.shape, self.background]
        for file in files:
            settings.append(str(file.absolute()))
            with contextlib.suppress(OSError):  # errors are reported when the file is read
                status = file.stat()
                settings += [status.st_size, status.st_mtime_ns]
        name = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:32]
        cache_file = cache_folder() / "images" / f"{name}.safetensors"
        try:
            with safe_open(cache_file, "numpy") as content:
                x, notes = content.get_tensor("x"), json.loads(content.metadata()["about"])
            os.utime(cache_file)
            self._inexact = notes["inexact"]
            return x, {int(n): why for n, why in notes["unreadable"].items()}
        except (OSError, SafetensorError):
            began = time.monotonic()
        x, unreadable = self.all(files)
        if time.monotonic() - began > KEPT_SECONDS:
            notes = {"inexact": self._inexact, "unreadable": unreadable}
            with contextlib.suppress(OSError):  # the cache may be read-only, or full
                cache_file.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(cache_file, save({"x": x}, {"about": json.dumps(notes)}))
                for old in cache_file.parent.glob("*.safetensors"):
                    if time.time() - old.stat().st_mtime > KEPT_DAYS * 86400:
                        old.unlink(missing_ok=True)
        return x, unreadable


NAMES = {"train": "train training", "validation": "val valid validation dev", "test": "test testing"}
SPLITS = {name: split for split, names in NAMES.items() for name in names.split()}
"""Maps names of folders, in lower case, to splits."""

FILLERS = {"data", "dataset", "set", "image", "images", "imgs", "samples"}
"""Words that are ignored in the names of folders of splits, such as train_images and Test-Data."""

LONGEST_LIST = 1000
"""Maximum length of a list of files in a message."""


def _colour(name: str) -> str:
    from PIL import ImageColor  # slow to import

    ImageColor.getrgb(name)
    return name


Side = Annotated[int, Field(ge=1, le=1024)]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ImageFolder(Images):
    """Images in folders of classes. ``path`` contains these folders, or a folder of them for each split.

    Attributes:
        validation_path, test_path: folders of the validation and test images. Classes may be absent there.
        labels: a table with the columns ``file`` (below ``path``) and ``label``, instead of class folders.
        size: side, or height and width; images are scaled to cover this size and cropped at the centre.
        background: the colour behind transparent pixels.
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
        read_labels = self._from_class_folders if self.labels is None else self._from_table
        images = {split: read_labels(folder, remarks) for split, folder in folders.items()}
        names = sorted({name for _, name in images["train"]})
        for split, files in images.items():
            if unknown := sorted({name for _, name in files} - {*names}):
                where = f"expected only classes of the training folder {folders['train']}"
                raise InputError(f"{folders[split]}: {where}, also found {', '.join(unknown)}")
        wanted = self.classes or names
        chosen = [(s, file, name) for s, files in images.items() for file, name in files if name in wanted]
        size = self.size if isinstance(self.size, tuple) else (self.size, self.size)
        reader = ImageReader((1 if self.grey else 3, *size), self.background)
        x, unreadable = reader.all_cached([file for _, file, _ in chosen])
        if unreadable and not self.skip_unreadable:
            problem = f"{len(unreadable)} of {len(x)} images cannot be read"
            reasons = shortened("; ".join(unreadable.values()), LONGEST_LIST)
            raise InputError(f"{problem}; set dataset.skip_unreadable=true to skip them: {reasons}")
        y = np.searchsorted(names, [name for _, _, name in chosen])
        splits = np.array([split for split, _, _ in chosen], str)
        splits[[*unreadable]] = ""
        parts = {split: (x[splits == split], y[splits == split]) for split in images}
        remarks += [*reader.remarks, *[f"skipped unreadable images: {len(unreadable)}"] * bool(unreadable)]
        equal = len(x) - len({hash(image.tobytes()) for image in x})
        if equal >= 0.1 * len(x):
            remarks.append(f"{equal} of {len(x)} images have the same pixels as another image")
        return replace(self.chosen(self.path, names, parts), remarks=tuple(remarks))

    def _folders(self, remarks: list[str]) -> dict[str, Path]:
        """Return the folder of each split, starting with the training set."""
        paths = {"train": self.path, "validation": self.validation_path, "test": self.test_path}
        folders = {split: Path(os.path.expanduser(path)) for split, path in paths.items() if path is not None}
        for split, folder in folders.items():
            if not folder.is_dir():
                key = "path" if split == "train" else f"{split}_path"
                problem = "is not a folder" if folder.exists() else "does not exist"
                raise InputError(f"dataset.{key}={paths[split]} {problem}: expected a folder of images")
        inside = _subfolders(folders["train"])
        split_folders = [(name, folder) for folder in inside if (name := _split(folder.name))]
        of_split = dict(sorted(split_folders, key=lambda item: [*paths].index(item[0])))
        only_splits = len(split_folders) == len(inside)
        is_divided = "train" in of_split and (len(split_folders) > 1 or only_splits)
        if len(folders) > 1 or self.labels is not None or not is_divided:
            return folders
        if not only_splits or len(of_split) < len(split_folders) or not _subfolders(of_split["train"]):
            names = ", ".join(folder.name for folder in inside)
            expected = "expected a folder for each class, or train and test folders with class folders"
            advice = f"to choose the training folder, set dataset.path={of_split['train']}"
            raise InputError(f"dataset.path={self.path}: {expected}, found {names}; {advice}")
        empty = [split for split, folder in of_split.items() if not _subfolders(folder)]
        remarks += [f"{of_split[split]} was skipped because it has no class folders" for split in empty]
        folders = {split: folder for split, folder in of_split.items() if split not in empty}
        places = [f"{split} in {folder}" for split, folder in folders.items()]
        remarks.append(f"found splits: {', '.join(places)}")
        return folders

    def _from_class_folders(self, folder: Path, remarks: list[str]) -> list[tuple[Path, str]]:
        """Return the images in the folders of classes, each with its class."""
        files, others = images_below(folder)
        in_class = [(file, file.relative_to(folder).parts[0]) for file in files if file.parent != folder]
        if loose := len(files) - len(in_class):
            remarks.append(f"{folder}: skipped {loose} images that are not in a class folder")
        if others:
            counts = (f"{count} {suffix or 'without extension'}" for suffix, count in others.most_common())
            kinds = shortened(", ".join(counts), LONGEST_LIST // 8)
            remarks.append(f"{folder}: skipped files in other formats: {kinds}")
        if empty := sorted({below.name for below in _subfolders(folder)} - {name for _, name in in_class}):
            remarks.append(f"{folder}: found no images in the folders {', '.join(empty)}")
        if not in_class:
            outside = f"only {loose} images outside class folders"
            found = f"{outside}; set dataset.labels to a table of their labels" if loose else "none"
            expected = f"{folder}: expected a folder of images for each class, found"
            raise InputError(f"{expected} {found}")
        if len({name for _, name in in_class}) == 1 and (inner := _subfolders(folder / in_class[0][1])):
            problem = f"{folder}: expected folders for at least two classes, found only {in_class[0][1]}"
            raise InputError(
                f"{problem}; if the folders inside {in_class[0][1]} are the classes, "
                f"set dataset.path={inner[0].parent}"
            )
        return in_class

    def _from_table(self, folder: Path, remarks: list[str]) -> list[tuple[Path, str]]:
        """Return the images that the table of labels lists, each with its label.

        The table may name a file without its folder or suffix.
        """
        columns = ["file", "label"]
        table, lines = read_cells(str(self.labels), "dataset.labels", Dialect(), text=columns)
        for name in columns:
            expect_column("dataset.labels", self.labels, name, table)
        if table[columns].isna().any(axis=None):
            raise InputError(
                f"dataset.labels={self.labels}: expected a file and a label in each row, found an empty cell"
            )
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
                advice = f"{name} matches several files ({several}); give the path relative to {folder}"
                raise InputError(f"dataset.labels={self.labels}: {advice}")
            listed.append((min(matches), label))
        if unlisted := len({*files} - {file for file, _ in listed}):
            lines = [*lines, f"{folder}: skipped {unlisted} images that are not listed in {self.labels}"]
        remarks += lines
        return listed


def _split(folder: str) -> str | None:
    """Return the split that a folder is named after, or None."""
    words = [word for word in re.split(r"[\s_-]+", folder.lower()) if word not in FILLERS]
    return SPLITS.get(" ".join(words))


def _subfolders(folder: Path) -> Sequence[Path]:
    return sorted(below for below in folder.iterdir() if below.is_dir() and not is_hidden(below.name))
