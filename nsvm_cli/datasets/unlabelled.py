"""Samples without labels, read in blocks from a table of any size or from images."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Real
from torch import Tensor

from nsvm_cli.datasets.base import Table, expect_column
from nsvm_cli.datasets.csv import blocks_of_cells, kind_of, layout_of, pandas_errors
from nsvm_cli.datasets.encoding import TableEncoder, features
from nsvm_cli.datasets.image_folder import FORMATS, MODES, ImageReader, images_below
from nsvm_cli.datasets.layout import Dialect
from nsvm_cli.errors import InputError
from nsvm_cli.memory import rows_at_a_time
from nsvm_cli.output import say

TABLE_ROWS, BLOCK_IMAGES = 2**14, 256
"""Maximum number of rows of a table, and of images, to read at a time."""

PER_NUMBER = 64
"""Estimated memory in bytes for a cell of the table, a feature or a decision value."""

Block = tuple[Real[Tensor, "m ..."], Mapping[str, Any]]
"""Samples as a tensor with m rows, and columns to copy: the ``file`` of each image, or columns of a table."""


def blocks(
    path: Path,
    shape: tuple[int, ...],
    encoder: TableEncoder | None,
    dialect: Dialect = Dialect(),  # noqa: B008
    outputs: int = 1,
    background: str | None = None,
    skip: bool = False,
    keep: Sequence[str] = (),
) -> Iterator[Block]:
    """Yield the samples of a table, an image or a folder of images in blocks; bad data raise an InputError.

    Args:
        background: see ``ImageReader``.
        skip: whether to skip damaged images.
        keep: columns of a table to yield beside its samples.
    """
    count, numbers = 0, outputs + math.prod(shape)
    parquet = path.is_dir() and kind_of(path) == "Parquet"
    if (path.is_dir() and not parquet) or (path.is_file() and path.suffix.lower() in FORMATS):
        if keep:
            raise InputError(f"--keep requires a table, but {path} contains images; remove --keep")
        parts = _images(path, shape, numbers, background, skip)
    elif path.is_file() or parquet:
        parts = _rows(path, shape, encoder, dialect, numbers, keep)
    else:
        what = "is not a file" if path.exists() else "does not exist"
        raise InputError(f"{path} {what}: expected a table, an image or a folder of images")
    for x, beside in parts:
        count += len(x)
        if len(x):
            yield x, beside
    if count == 0:
        raise InputError(f"{path}: expected at least one sample, found none")


def _rows(
    path: Path,
    shape: tuple[int, ...],
    encoder: TableEncoder | None,
    dialect: Dialect,
    numbers: int,
    keep: Sequence[str],
) -> Iterator[Block]:
    with pandas_errors(str(path), path):
        layout = layout_of(path, dialect)
        if encoder is None and len(layout.names) != (n := math.prod(shape)):
            raise InputError(
                f"{path}: expected {n} columns in the order of training, because the model has no column "
                f"names, got {len(layout.names)} columns; remove other columns, such as the label"
            )
        keep = [*dict.fromkeys(keep)]
        for name in keep:
            expect_column("--keep", path, name, layout.names)
        text = encoder.text if encoder else ()
        written = [name for name in keep if encoder and name not in encoder.columns]
        rows = min(TABLE_ROWS, rows_at_a_time(PER_NUMBER * (numbers + len(layout.names))))
        for cells in blocks_of_cells(path, layout, dialect, written, text, rows):
            x = features(Table(cells, (str(path),), signs=dialect.signs), encoder)
            kept = cells[keep].convert_dtypes()  # gaps turned integers into floats
            columns: Any = kept.astype(object).where(kept.notna(), None).to_dict("list")
            yield torch.from_numpy(x).reshape(-1, *shape), columns


def _images(
    path: Path, shape: tuple[int, ...], numbers: int, background: str | None, skip: bool
) -> Iterator[Block]:
    """Yield an image, or all images below a folder."""
    if len(shape) != 3 or shape[0] not in MODES:
        what = "a folder" if path.is_dir() else "an image"
        raise InputError(
            f"{path}: expected a table, because the model requires samples of shape {shape}, got {what}"
        )
    folder, files = (path, images_below(path)[0]) if path.is_dir() else (path.parent, [path])
    if not files:
        raise InputError(f"{path}: expected image files such as {' or '.join([*FORMATS][:2])}, found none")
    rows = min(BLOCK_IMAGES, rows_at_a_time(PER_NUMBER * numbers))
    damaged, reader = 0, ImageReader(shape, background)
    for first in range(0, len(files), rows):
        part = files[first : first + rows]
        x, unreadable = reader.all(part)
        if unreadable and not skip:
            raise InputError("; ".join(unreadable.values()))
        damaged += len(unreadable)
        kept = [n for n in range(len(part)) if n not in unreadable]
        yield torch.from_numpy(x[kept]), {"file": [str(part[n].relative_to(folder)) for n in kept]}
    if damaged:
        say(f"skipped unreadable images: {damaged}")
    for line in reader.remarks:
        say(line)
