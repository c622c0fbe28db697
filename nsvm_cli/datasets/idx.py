"""IDX files of bytes, the format of MNIST: magic number, sizes as big-endian int32, content."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
from jaxtyping import UInt8
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.image_files import ImageFiles, Part
from nsvm_cli.datasets.table_files import Stream

KINDS = {"images-idx3": (28, 28), "labels-idx1": ()}
"""The two files of each part, and the shape of what they hold for a sample."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class IDXFiles(ImageFiles):
    """Grey images of 28 x 28 pixels in MNIST's format and torchvision's layout."""

    endings: ClassVar[tuple[str, ...]] = (".gz", "")

    @property
    def below(self) -> str:
        return f"{self.title}/raw"

    @property
    def counts(self) -> Mapping[str, int]:
        """The numbers of images for training and for testing, by the names that their files begin with."""
        raise NotImplementedError

    @property
    def files(self) -> Sequence[str]:
        return [f"{part}-{kind}-ubyte" for part in self.counts for kind in KINDS]

    def parse(self, name: str, content: Stream) -> UInt8[np.ndarray, "..."]:
        shapes = [(m, *shape) for m in self.counts.values() for shape in KINDS.values()]
        return parse_idx(content, shapes[self.files.index(name)])

    def parts(self, contents: Sequence[UInt8[np.ndarray, "..."]]) -> tuple[Part, Part]:
        images, labels, test_images, test_labels = contents
        return (images[:, None], labels), (test_images[:, None], test_labels)


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
