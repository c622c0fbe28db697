"""Image files as bytes of pixels: turned, laid on a background, scaled and cropped."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from nsvm_cli.datasets.download import cache_folder
from nsvm_cli.errors import InputError
from nsvm_cli.memory import expect_room
from nsvm_cli.storage.files import open_regular, write_atomically

ENDINGS = {
    "PNG": ".png",
    "JPEG": ".jpg .jpeg",
    "GIF": ".gif",
    "WEBP": ".webp",
    "AVIF": ".avif",
    "BMP": ".bmp",
    "TIFF": ".tif .tiff",
    "TGA": ".tga",
    "JPEG2000": ".jp2",
    "ICO": ".ico",
    "PPM": ".pbm .pgm .ppm .pnm",
}
FORMATS = {ending: kind for kind, endings in ENDINGS.items() for ending in endings.split()}
"""Suffixes of images and their formats. EPS is not among them, because Pillow would start Ghostscript."""

MODES = {1: "L", 3: "RGB"}
"""Pillow's modes for one and three channels."""

EXACT = ("1", "L", "P", "RGB")
"""Pillow's modes that convert to ``MODES`` without clipping and without losing transparency."""

KEPT_SECONDS, KEPT_DAYS = 1.0, 30
"""The seconds from which on decoding is cached, and the days after which unused entries are deleted."""


def is_hidden(name: str) -> bool:
    """Return whether a file or folder of this name is hidden, or holds metadata."""
    return name.startswith(".") or name == "__MACOSX"


def images_below(folder: Path) -> tuple[list[Path], Counter[str]]:
    """Return the images in a folder and its subfolders, and counts of the suffixes of other files.

    The images are in the order of torchvision's ImageFolder. Hidden files and folders are skipped.
    """
    images, others = [], Counter[str]()
    for root, _, names in sorted(os.walk(folder, followlinks=True)):
        for file in (Path(root, name) for name in sorted(names)):
            if any(map(is_hidden, file.relative_to(folder).parts)):
                continue
            if file.suffix.lower() in FORMATS:
                images.append(file)
            else:
                others[file.suffix.lower()] += 1
    return images, others


class ImageReader:
    """Read image files as samples of one shape.

    Args:
        shape: channels, 1 or 3, height and width.
        background: the colour below transparent pixels, a name or #rrggbb. Images are scaled to cover height
            and width, and cropped at the centre. With None, an image must have this shape and be opaque.
    """

    def __init__(self, shape: tuple[int, ...], background: str | None) -> None:
        self.shape, self.background = shape, background
        self._inexact: dict[str, list[str]] = {}

    @property
    def remarks(self) -> tuple[str, ...]:
        """Lines about images that were read inexactly."""
        lines = []
        for what, files in sorted(self._inexact.items()):
            many = f"{len(files)} images, such as {min(files)}, have " if len(files) > 1 else ""
            lines.append((many or "".join(f"{file} has " for file in files)) + what)
        return tuple(lines)

    def __call__(self, file: Path) -> UInt8[np.ndarray, "c h w"]:
        """Return the pixels of an image file, turned by its EXIF orientation.

        Raises:
            InputError: the image is damaged or has another size, or would be clipped or lose transparency.
        """
        from PIL import Image, UnidentifiedImageError

        # any file may look like a TGA
        formats = {"TGA"} if file.suffix.lower() == ".tga" else ENDINGS.keys() - {"TGA"}
        try:
            with open_regular(file) as content, Image.open(content, formats=[*formats]) as image:
                return self._pixels(image, file)
        except InputError:
            raise
        except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
            what = getattr(error, "strerror", None) or error
            reason = "it does not begin like one" if isinstance(error, UnidentifiedImageError) else what
            raise InputError(f"{file} cannot be read as an image: {reason}") from None

    def _pixels(self, image: Any, file: Path) -> np.ndarray:
        from PIL import Image, ImageOps

        c, height, width = self.shape
        if getattr(image, "is_animated", False) and image.format != "MPO":  # a photo with its thumbnails
            self._note("several frames; the first is used", file)
        if image.mode == "CMYK":
            self._note("CMYK colours: RGB is computed without their profile", file)
        mode = image.mode + " with transparency" * ("transparency" in image.info)
        if self.background is None and mode not in EXACT:
            advice = "save it as 8-bit grey or RGB, without transparency"
            raise InputError(f"{file} has pixels of mode {mode}: {advice}")
        if self.background is not None:
            side = 2 * max(height, width)  # large photographs are decoded at a half, a quarter or an eighth
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
        """Return an image with 8 bits a channel and without transparency."""
        from PIL import Image

        if image.mode.startswith("I"):
            values = np.asarray(image)
            if values.min() < 0 or values.max() >= 2**16:
                raise InputError(f"{file} has pixels beyond 16 bits: save it with 8 or 16 bits a channel")
            self._note("16 bits a channel, which are scaled to 8", file)
            return Image.fromarray((values // 257).astype(np.uint8))
        if image.mode == "F":
            raise InputError(f"{file} has pixels of mode F: save it with 8 or 16 bits a channel")
        if not image.has_transparency_data:
            return image
        above = image.convert("RGBA")
        if above.getextrema()[3][0] < 255:
            self._note(f"transparency, which is laid on {self.background}", file)
        return Image.alpha_composite(Image.new("RGBA", above.size, self.background), above)

    def _note(self, what: str, file: Path) -> None:
        self._inexact.setdefault(what, []).append(str(file))

    def all(self, files: Sequence[Path]) -> tuple[UInt8[np.ndarray, "m c h w"], dict[int, str]]:
        """Return the pixels of image files, and the reasons why some cannot be read, by index."""
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
            self._inexact[f"Pillow warns of some image: {caught[0].message}"] = []
        return x, dict(sorted(unreadable.items()))

    def cached(self, files: Sequence[Path]) -> tuple[UInt8[np.ndarray, "m c h w"], dict[int, str]]:
        """Return the result of ``all``, from the user's cache folder if the files were decoded before."""
        settings: list[Any] = [self.shape, self.background]
        for file in files:
            settings.append(str(file.absolute()))
            with contextlib.suppress(OSError):  # which reading the file reports
                settings += [file.stat().st_size, file.stat().st_mtime_ns]
        name = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:32]
        kept = cache_folder() / "images" / f"{name}.safetensors"
        try:
            with safe_open(kept, "numpy") as content:
                x, notes = content.get_tensor("x"), json.loads(content.metadata()["about"])
            os.utime(kept)
            self._inexact = notes["inexact"]
            return x, {int(n): why for n, why in notes["unreadable"].items()}
        except (OSError, SafetensorError):
            began = time.monotonic()
        x, unreadable = self.all(files)
        if time.monotonic() - began > KEPT_SECONDS:
            notes = {"inexact": self._inexact, "unreadable": unreadable}
            with contextlib.suppress(OSError):  # the cache may be read-only, or full
                kept.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(kept, save({"x": x}, {"about": json.dumps(notes)}))
                for old in kept.parent.glob("*.safetensors"):
                    if time.time() - old.stat().st_mtime > KEPT_DAYS * 86400:
                        old.unlink(missing_ok=True)
        return x, unreadable
