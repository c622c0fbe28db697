"""MNIST and the data sets that share its file format, all classes or some."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.idx import IDXFiles
from nsvm_cli.datasets.image_files import ClassNames

IMAGES = {"train": 60000, "t10k": 10000}


@dataclass(frozen=True, kw_only=True, config=STRICT)
class MNIST(IDXFiles):
    """MNIST with the official split; pixels in 0..1 (paper, Section 5.2: the classes 0 versus 1).

    The files are read from ``root`` in torchvision's layout, ``root/MNIST/raw/*-ubyte``, as ``.gz`` or
    unpacked, and verified. Without ``root`` they are read from the user's cache folder, and downloaded first
    if they are missing.
    """

    title: ClassVar[str] = "MNIST"
    mirrors: ClassVar[tuple[str, ...]] = (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    )
    sums: ClassVar[Mapping[str, str]] = {
        "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    }

    pattern: ClassVar[str] = "*-ubyte[.gz]"
    counts: ClassVar[Mapping[str, int]] = IMAGES
    names: ClassVar[Sequence[str]] = string.digits

    classes: ClassNames = ("0", "1")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class FashionMNIST(MNIST):
    """Fashion-MNIST. There are no published checksums for its unpacked files."""

    title: ClassVar[str] = "FashionMNIST"
    mirrors: ClassVar[tuple[str, ...]] = (
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    )
    sums: ClassVar[Mapping[str, str]] = {
        "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    }


@dataclass(frozen=True, kw_only=True, config=STRICT)
class KMNIST(MNIST):
    """Kuzushiji-MNIST. There are no published checksums for its unpacked files."""

    title: ClassVar[str] = "KMNIST"
    mirrors: ClassVar[tuple[str, ...]] = ("https://codh.rois.ac.jp/kmnist/dataset/kmnist/",)
    sums: ClassVar[Mapping[str, str]] = {
        "train-images-idx3-ubyte.gz": "51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4",
        "train-labels-idx1-ubyte.gz": "e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17",
        "t10k-images-idx3-ubyte.gz": "edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5",
        "t10k-labels-idx1-ubyte.gz": "20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c",
    }
