"""MNIST and the data sets that share its file format, all classes or some."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from jaxtyping import UInt8
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.image_files import ClassNames, ImageFiles, Part


@dataclass(frozen=True, kw_only=True, config=STRICT)
class MNIST(ImageFiles):
    """MNIST with the official split; pixels in 0..1 (paper, Section 5.2: the classes 0 versus 1).

    The files are read from ``root`` in torchvision's layout, ``root/MNIST/raw/*-ubyte.gz``, and verified.
    Without ``root`` they are read from the user's cache folder, and downloaded first if they are missing.
    """

    address: ClassVar[str] = "https://ossci-datasets.s3.amazonaws.com/mnist/"
    below: ClassVar[str] = "MNIST/raw"
    sums: ClassVar[Mapping[str, str]] = {
        "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    }

    classes: ClassNames = ("0", "1")

    def parts(self) -> tuple[Part, Part]:
        images, labels, test_images, test_labels = (_values(self.read(name)) for name in self.sums)
        return (images[:, None], labels), (test_images[:, None], test_labels)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class FashionMNIST(MNIST):
    """Fashion-MNIST."""

    address: ClassVar[str] = (
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
    )
    below: ClassVar[str] = "FashionMNIST/raw"
    sums: ClassVar[Mapping[str, str]] = {
        "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    }


@dataclass(frozen=True, kw_only=True, config=STRICT)
class KMNIST(MNIST):
    """Kuzushiji-MNIST."""

    address: ClassVar[str] = "https://codh.rois.ac.jp/kmnist/dataset/kmnist/"
    below: ClassVar[str] = "KMNIST/raw"
    sums: ClassVar[Mapping[str, str]] = {
        "train-images-idx3-ubyte.gz": "51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4",
        "train-labels-idx1-ubyte.gz": "e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17",
        "t10k-images-idx3-ubyte.gz": "edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5",
        "t10k-labels-idx1-ubyte.gz": "20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c",
    }


def _values(file: bytes) -> UInt8[np.ndarray, "..."]:
    """Return what a packed IDX file of bytes holds: after its shape, whose length is the fourth byte."""
    content = gzip.decompress(file)
    shape = np.frombuffer(content, ">u4", count=content[3], offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)
