"""CIFAR-10 in its binary release."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping, Sequence
from typing import IO, ClassVar, cast

import numpy as np
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.image_files import ImageFiles, Part

ARCHIVE = "cifar-10-binary.tar.gz"
SHAPE = (3, 32, 32)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class CIFAR10(ImageFiles):
    """CIFAR-10 with the official split, 60,000 colour images of ten classes (Krizhevsky, 2009).

    They are read from the archive ``root/cifar-10-binary.tar.gz``; torchvision reads that of another release,
    which holds pickles.
    """

    address: ClassVar[str] = "https://www.cs.toronto.edu/~kriz/"
    below: ClassVar[str] = ""
    sums: ClassVar[Mapping[str, str]] = {
        ARCHIVE: "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
    }
    names: ClassVar[Sequence[str]] = (
        *("airplane", "automobile", "bird", "cat", "deer"),
        *("dog", "frog", "horse", "ship", "truck"),
    )

    def parts(self) -> tuple[Part, Part]:
        with tarfile.open(fileobj=io.BytesIO(self.read(ARCHIVE))) as archive:
            content = {
                member.name.rpartition("/")[2]: cast(IO[bytes], archive.extractfile(member)).read()
                for member in archive
                if member.isfile()
            }
        training = b"".join(content[f"data_batch_{number}.bin"] for number in range(1, 6))
        return _part(training), _part(content["test_batch.bin"])


def _part(content: bytes) -> Part:
    """Return images and labels from records: a label, then the pixels, red, green and blue, row by row."""
    records = np.frombuffer(content, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    return records[:, 1:].reshape(-1, *SHAPE), records[:, 0]
