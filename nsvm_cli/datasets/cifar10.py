"""CIFAR-10 in its binary release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from jaxtyping import UInt8
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.image_files import ImageFiles, Part
from nsvm_cli.datasets.table_files import Stream

NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FOLDER = "cifar-10-batches-bin"
SHAPE = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32
"""Bytes of an image: its label, then its pixels, red, green and blue, row by row."""

Records = UInt8[np.ndarray, "m bytes"]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class CIFAR10(ImageFiles):
    """CIFAR-10 with the official split, 60,000 colour images of ten classes (Krizhevsky, 2009).

    The files are read from ``root/cifar-10-batches-bin/*.bin``, or from ``root/cifar-10-binary.tar.gz``.
    """

    title: ClassVar[str] = "CIFAR10"
    mirrors: ClassVar[tuple[str, ...]] = ("https://www.cs.toronto.edu/~kriz/",)
    archive: ClassVar[str] = "cifar-10-binary.tar.gz"
    pattern: ClassVar[str] = f"{FOLDER}/*.bin"
    sums: ClassVar[Mapping[str, str]] = {
        "cifar-10-binary.tar.gz": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    }
    images: ClassVar[int] = 10_000
    """The number of images in a file."""

    names: ClassVar[Sequence[str]] = NAMES
    files: ClassVar[Sequence[str]] = [
        *(f"{FOLDER}/data_batch_{number}.bin" for number in range(1, 6)),
        f"{FOLDER}/test_batch.bin",
    ]

    def parse(self, name: str, content: Stream) -> Records:
        records = content.read(self.images * RECORD + 1)
        if len(records) != self.images * RECORD:
            raise ValueError(f"expected {self.images * RECORD} bytes, got {len(records)}")
        return np.frombuffer(records, np.uint8).reshape(-1, RECORD)

    def parts(self, contents: Sequence[Records]) -> tuple[Part, Part]:
        *train, test = contents
        return _part(np.concatenate(train)), _part(test)


def _part(records: Records) -> Part:
    return records[:, 1:].reshape(-1, *SHAPE), records[:, 0]
