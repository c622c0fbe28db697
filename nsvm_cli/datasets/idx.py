"""IDX files of bytes, the format of MNIST: magic number, sizes as big-endian int32, content."""

from __future__ import annotations

import gzip
import io
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from nsvm_cli.datasets.image_files import expect_sum
from nsvm_cli.datasets.table_files import Stream
from nsvm_cli.storage.files import read_regular


def find_idx(folder: Path, name: str) -> Path | None:
    """Return the IDX file of this name in a folder, compressed or not."""
    return next((file for file in (folder / f"{name}.gz", folder / name) if file.is_file()), None)


def read_idx(file: Path, shape: tuple[int, ...], sha256: str | None) -> UInt8[np.ndarray, "..."]:
    """Return the content of an IDX file, which is compressed if its name ends in ``.gz``.

    Args:
        known: its SHA-256 checksum, if that is published.

    Raises:
        ValueError, OSError: it cannot be read, or is another file; or one of the errors of damaged files.
    """
    limit = 4 + 4 * len(shape) + math.prod(shape)
    content = io.BytesIO(read_regular(file, limit))  # compressed, it is smaller
    if sha256:
        expect_sum(content, sha256)
    return parse_idx(gzip.GzipFile(fileobj=content) if file.suffix == ".gz" else content, shape)


def parse_idx(file: Stream, shape: tuple[int, ...]) -> UInt8[np.ndarray, "..."]:
    """Return the content of an IDX file.

    Raises:
        ValueError: the header or the length does not match this shape.
    """
    if (stated := read_header(file)) != shape:
        raise ValueError(f"expected {'x'.join(map(str, shape))} bytes, got {'x'.join(map(str, stated))}")
    [content] = read_blocks(file, shape, shape[0])
    return content


def read_header(file: Stream) -> tuple[int, ...]:
    """Return the shape of the content of an IDX file, which follows the header.

    Raises:
        ValueError: it does not begin like an IDX file of bytes.
    """
    magic, dimensions = file.read(3), int.from_bytes(file.read(1), "big")
    sizes = file.read(4 * dimensions)
    if magic != b"\0\0\x08" or not 0 < 4 * dimensions == len(sizes):
        raise ValueError("its header is not that of an IDX file of bytes")
    return tuple(np.frombuffer(sizes, ">u4").tolist())  # unsigned: a negative size becomes impossibly large


def read_blocks(file: Stream, shape: tuple[int, ...], rows: int) -> Iterator[UInt8[np.ndarray, "..."]]:
    """Yield the content of an IDX file, ``rows`` rows at a time; without any, one empty block.

    Raises:
        ValueError: the file is not as long as its header says.
    """
    m, *row = shape
    for first in range(0, max(m, 1), rows):
        block = np.empty((min(rows, m - first), *row), np.uint8)
        if file.readinto(block.data) < block.nbytes:
            raise ValueError("it is shorter than its header says")
        yield block
    if file.read(1):
        raise ValueError("it is longer than its header says")
