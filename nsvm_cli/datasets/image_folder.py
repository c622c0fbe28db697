"""Images of any size in a folder for each class, as torchvision's ImageFolder reads them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from jaxtyping import UInt8
from pydantic import Field
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.image_files import Images, Labelled
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

    @property
    def source(self) -> str:
        return self.path

    @cached_property
    def _folders(self) -> list[Any]:
        """torchvision's data sets of training and test images."""
        read = partial(square, size=self.size, channels=1 if self.grey else 3)
        folders = []
        for name in ("path", "test_path"):
            if (path := getattr(self, name)) is not None:
                try:
                    kind = import_torchvision("datasets").ImageFolder
                    folders.append(kind(os.path.expanduser(path), loader=read))
                except OSError as error:
                    reason = str(error).partition(". Supported")[0]
                    raise InputError(
                        f"dataset.{name}={path}: expected a folder for each class: {reason}"
                    ) from None
        if len({tuple(folder.classes) for folder in folders}) > 1:
            theirs = ", ".join(folders[1].classes)
            raise InputError(
                f"dataset.test_path={self.test_path}: expected the classes of {self.path}, got {theirs}"
            )
        return folders

    @property
    def names(self) -> Sequence[str]:  # type: ignore[override]
        """The names of the classes."""
        return list(self._folders[0].classes)

    def parts(self) -> Sequence[Labelled]:
        return [
            (np.stack([folder.loader(file) for file, _ in folder.samples]), np.array(folder.targets))
            for folder in self._folders
        ]


MODES = {1: "L", 3: "RGB"}
"""Pillow's names for pixels of so many channels."""


@contextlib.contextmanager
def open_image(file: Path) -> Iterator[Any]:
    """Open a regular file as an image of Pillow's, and say so if it is damaged.

    Raises:
        InputError: it is no image, or damaged.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with open_regular(file) as content, Image.open(content) as image:
            yield image
    except InputError:
        raise
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        reason = "it does not begin like one" if isinstance(error, UnidentifiedImageError) else error
        raise InputError(f"{file} cannot be read as an image: {reason}") from None


def square(file: str | Path, size: int, channels: int) -> UInt8[np.ndarray, "c h w"]:
    """Return the pixels of an image file as ``ImageFolder`` has them, turned by its EXIF orientation.

    Raises:
        InputError: it is damaged, or has more than 8 bits a channel, which Pillow would clip.
    """
    from PIL import Image, ImageOps

    with open_image(Path(file)) as image:
        if image.mode.startswith(("I", "F")):
            raise InputError(f"{file} has pixels of mode {image.mode}: save it as 8-bit grey or RGB")
        turned = ImageOps.exif_transpose(image).convert(MODES[channels])
        fitted = ImageOps.fit(turned, (size, size), Image.Resampling.BILINEAR)
    return np.array(fitted).reshape(size, size, channels).transpose(2, 0, 1)
