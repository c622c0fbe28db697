"""Samples without labels, block by block: rows of a table of any size, or images."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Real
from torch import Tensor

from nsvm_cli.datasets.base import Table
from nsvm_cli.datasets.encoding import TableEncoder, as_numbers
from nsvm_cli.datasets.tables import (
    MISSING,
    column_names,
    expect_different,
    first_line,
    is_number,
    parsing,
    reading_csv,
    separator_in,
)
from nsvm_cli.errors import InputError
from nsvm_cli.memory import rows_at_a_time
from nsvm_cli.storage.files import open_regular

if TYPE_CHECKING:
    from PIL import Image

BLOCK_ROWS = 2**14
"""The most rows of a table to read at a time."""

PER_NUMBER = 64
"""Bytes of memory for each cell, value and decision value of a sample, until its prediction is written."""

BLOCK_IMAGES = 256
"""The most images to read at a time."""

MODES = {1: "L", 3: "RGB"}
"""Pillow's names for pixels of so many channels."""

EXACT = ("1", "L", "P", "RGB")
"""Pillow's modes that convert to these without clipping and without losing transparency."""

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
"""The endings of the names of images."""


@dataclass(frozen=True)
class Block:
    """Some raw samples, ``(m, *shape)``, and the names of their files, if each has its own."""

    x: Real[Tensor, "m ..."]
    files: Sequence[str] | None = None


def blocks(
    path: Path, shape: tuple[int, ...], encoder: TableEncoder | None, separator: str, outputs: int = 1
) -> Iterator[Block]:
    """Yield the samples of a file or folder in blocks within ``BLOCK_BYTES``.

    Args:
        path: a CSV file with a header, an image, or a folder of images.
        encoder: what a model knows of the columns of its table; without it, they are taken in their order.
        outputs: the decision values of a sample.

    Raises:
        InputError: there are no samples, or they are damaged or have another shape.
    """
    count = 0
    for block in _blocks(path, shape, encoder, separator, outputs + math.prod(shape)):
        count += len(block.x)
        if len(block.x):
            yield block
    if count == 0:
        raise InputError(f"{path} holds no samples: expected at least one")


def _blocks(
    path: Path, shape: tuple[int, ...], encoder: TableEncoder | None, separator: str, numbers: int
) -> Iterator[Block]:
    if not path.is_file() and not path.is_dir():
        what = "is not a file" if path.exists() else "does not exist"
        raise InputError(f"{path} {what}: expected a CSV file, an image or a folder of images")
    if path.is_dir() or path.suffix.lower() in IMAGES:
        return _images(path, shape, numbers)
    return _rows(path, shape, encoder, separator, numbers)


def _rows(
    path: Path, shape: tuple[int, ...], encoder: TableEncoder | None, separator: str, numbers: int
) -> Iterator[Block]:
    import pandas as pd

    with reading_csv(str(path)):
        header = first_line(path, separator)
        _expect_cells(header, math.prod(shape) if encoder is None else len(encoder.columns), path)
        if encoder is None:
            _expect_names(header, path)
        else:
            expect_different(header, str(path), encoder.columns)
        names = column_names(header)
        options = parsing(names, separator, (), encoder.text if encoder else ())
        rows = min(BLOCK_ROWS, rows_at_a_time(PER_NUMBER * (numbers + len(header))))
        first = 0
        with pd.read_csv(path, **options, chunksize=rows) as chunks:
            for cells in chunks:
                cells = cells.set_axis(names, axis=1)
                table = Table(cells, pd.Series(dtype=object), (str(path),), first_row=first)
                yield Block(_features(table, shape, encoder))
                first += len(cells)


def _expect_cells(header: Sequence[str], n: int, path: Path) -> None:
    """Raise an InputError if a header is a single name that seems to hold several."""
    if len(header) == 1 < n and (other := separator_in(header[0])):
        raise InputError(f"{path} has 1 column, expected {n}: is --separator '{other}' meant?")


def _expect_names(header: Sequence[str], path: Path) -> None:
    """Raise an InputError if a header looks like a sample; pandas names columns 0, 1, 2, ..."""
    numbers = all(cell in MISSING or is_number(cell) for cell in header)
    if numbers and header != [*map(str, range(len(header)))]:
        raise InputError(
            f"{path}: expected a header line, got numbers: put the names of the columns above them"
        )


def _features(table: Table, shape: tuple[int, ...], encoder: TableEncoder | None) -> Tensor:
    if encoder is not None:
        return torch.from_numpy(encoder(table))
    n = math.prod(shape)
    if (got := table.cells.shape[1]) != n:
        raise InputError(
            f"{table.source} has {got} columns, expected {n}: the model does not name its columns, they are "
            "matched by their order; leave out others, such as a label"
        )
    return torch.tensor(as_numbers(table)).reshape(-1, *shape)  # pandas may share its memory, read-only


def _images(path: Path, shape: tuple[int, ...], numbers: int) -> Iterator[Block]:
    """Yield an image, or the images of a folder in the order of their names."""
    if len(shape) != 3 or shape[0] not in MODES:
        what = "a folder" if path.is_dir() else "an image"
        raise InputError(f"{path} is {what}: the model expects samples of shape {shape}, which no image has")
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    files = [file for file in files if file.suffix.lower() in IMAGES]
    if not files:
        raise InputError(f"{path} has no images: expected files such as {', '.join(IMAGES[:2])}")
    rows = min(BLOCK_IMAGES, rows_at_a_time(PER_NUMBER * numbers))
    for first in range(0, len(files), rows):
        part = files[first : first + rows]
        yield Block(torch.stack([_image(file, shape) for file in part]), [file.name for file in part])


def _image(file: Path, shape: tuple[int, ...]) -> Tensor:
    from PIL import Image, UnidentifiedImageError

    c, h, w = shape
    try:
        with open_regular(file) as content, Image.open(content) as image:
            pixels = np.array(_upright(image, file, (w, h)).convert(MODES[c]))
    except InputError:
        raise
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        reason = "it does not begin like one" if isinstance(error, UnidentifiedImageError) else error
        raise InputError(f"{file} cannot be read as an image: {reason}") from None
    return torch.from_numpy(pixels).reshape(h, w, c).permute(2, 0, 1)


def _upright(image: Image.Image, file: Path, size: tuple[int, int]) -> Image.Image:
    """Return an image, turned by its EXIF orientation; an unsuitable one is not decoded.

    Raises:
        InputError: it has another size, several frames, or pixels that cannot be converted exactly.
    """
    from PIL import ImageOps

    mode = image.mode + " with transparency" * ("transparency" in image.info)
    if mode not in EXACT:
        raise InputError(
            f"{file} has pixels of mode {mode}: save it as 8-bit grey or RGB, without transparency"
        )
    if (frames := getattr(image, "n_frames", 1)) != 1:
        raise InputError(f"{file} has {frames} frames, expected one: save each as an image of its own")
    turned = image
    if image.size in (size, size[::-1]):
        turned = ImageOps.exif_transpose(image)
    if turned.size != size:
        raise InputError(
            f"{file} has {turned.width} x {turned.height} pixels, expected {size[0]} x {size[1]}"
        )
    return turned
