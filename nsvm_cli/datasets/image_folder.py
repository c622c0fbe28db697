"""Images of any size in a folder for each class, as torchvision's ImageFolder reads them."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from jaxtyping import UInt8
from pydantic import Field
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.base import Samples
from nsvm_cli.datasets.image_files import Images
from nsvm_cli.datasets.torchvision_import import import_torchvision
from nsvm_cli.errors import InputError
from nsvm_cli.storage.files import open_regular


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ImageFolder(Images):
    """The images in the folders in ``path``, whose names are the classes; those in ``test_path`` are the test
    set. An image is scaled until its shorter side has ``size`` pixels, and the square in its middle is taken.
    """

    path: str
    test_path: str | None = None
    size: Annotated[int, Field(ge=1, le=1024)] = 64
    grey: bool = False

    def load(self, rng: np.random.Generator) -> Samples:
        remarks: dict[str, str] = {}
        given = {"path": self.path, "test_path": self.test_path}
        folders = [self._folder(name, path, remarks) for name, path in given.items() if path is not None]
        names, *others = (folder.classes for folder in folders)
        for theirs in others:
            if theirs != names:
                expected = f"expected the classes of {self.path}, got {', '.join(theirs)}"
                raise InputError(f"dataset.test_path={self.test_path}: {expected}")
        parts = [
            (np.stack([folder.loader(file) for file, _ in folder.samples]), np.array(folder.targets))
            for folder in folders
        ]
        return replace(self.chosen(self.path, names, *parts), remarks=tuple(remarks.values()))

    def _folder(self, name: str, path: str, remarks: dict[str, str]) -> Any:
        """Return torchvision's data set of the images in a folder."""
        shape = 1 if self.grey else 3, self.size, self.size
        kind = import_torchvision("datasets").ImageFolder
        how = {"loader": partial(read_image, shape=shape, squared=True, remarks=remarks)}
        try:
            return kind(os.path.expanduser(path), **how, is_valid_file=lambda f: f.lower().endswith(IMAGES))
        except OSError as error:
            reason = str(error).partition(". Supported")[0]
            raise InputError(f"dataset.{name}={path}: expected a folder for each class: {reason}") from None


IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
"""The endings of the names of images, and their formats: for EPS, Pillow would start Ghostscript."""

MODES = {1: "L", 3: "RGB"}
"""Pillow's names for pixels of so many channels."""

EXACT = ("1", "L", "P", "RGB")
"""Pillow's modes that convert to these without clipping and without losing transparency."""


def read_image(
    file: str | Path, shape: tuple[int, ...], squared: bool, remarks: dict[str, str]
) -> UInt8[np.ndarray, "c h w"]:
    """Return the pixels of an image file, turned by its EXIF orientation.

    If it is to be ``squared``, it is scaled until its shorter side fits, its middle is taken, and its
    transparency is left out. Else it has to have this shape already, or is not decoded. Lines about images
    that are read inexactly are added to ``remarks``, for the first of each kind.

    Raises:
        InputError: it is damaged or of another size, or would be clipped or lose its transparency.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with open_regular(Path(file)) as content, Image.open(content, formats=FORMATS) as image:
            if getattr(image, "is_animated", False) and image.format != "MPO":  # a photo with its thumbnails
                remarks.setdefault("frames", f"{file} has several frames: of such images the first is used")
            if image.mode == "CMYK":
                remarks.setdefault("CMYK", f"{file} has CMYK colours: RGB is computed without their profile")
            return _pixels(image, file, shape, squared)
    except InputError:
        raise
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        reason = "it does not begin like one" if isinstance(error, UnidentifiedImageError) else error
        raise InputError(f"{file} cannot be read as an image: {reason}") from None


def _pixels(image: Any, file: str | Path, shape: tuple[int, ...], squared: bool) -> np.ndarray:
    from PIL import Image, ImageOps

    c, *size = shape
    mode = image.mode + " with transparency" * ("transparency" in image.info)
    if mode.startswith(("I", "F")) or not (squared or mode in EXACT):
        advice = "save it as 8-bit grey or RGB, without transparency"
        raise InputError(f"{file} has pixels of mode {mode}: {advice}")
    if squared or {*image.size} == {*size}:
        image = ImageOps.exif_transpose(image).convert(MODES[c])
    if squared:
        image = ImageOps.fit(image, (size[1], size[0]), Image.Resampling.BILINEAR)
    if [image.height, image.width] != size:
        got = f"{image.width} x {image.height}"
        raise InputError(f"{file} has {got} pixels, expected {size[1]} x {size[0]}")
    return np.array(image).reshape(*size, c).transpose(2, 0, 1)
