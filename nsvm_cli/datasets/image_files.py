"""Image data sets: scikit-learn's digits, MNIST, Fashion-MNIST, KMNIST and CIFAR-10."""

from __future__ import annotations

import gzip
import hashlib
import io
import string
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Annotated, ClassVar, cast

import numpy as np
import torch
from jaxtyping import UInt8
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch.nn import functional

from nsvm_cli.config.registry import STRICT, Text
from nsvm_cli.datasets.base import Samples, Source
from nsvm_cli.datasets.download import fetch
from nsvm_cli.errors import InputError, did_you_mean, message_of
from nsvm_cli.storage.files import cache_folder, read_regular
from nsvm_cli.tasks import encode

Classes = Annotated[tuple[Text, ...], Field(min_length=1)] | None
"""Names of the classes to select; None selects all classes."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Images(Source):
    """Base class of image data sets."""

    global_scaling: ClassVar[bool] = True

    classes: Classes = None

    def chosen(
        self, source: str, names: Sequence[str], parts: Mapping[str, tuple[np.ndarray, np.ndarray]]
    ) -> Samples:
        """Return the images of the selected classes.

        ``names`` are the classes in the order of their labels. ``parts`` maps ``train``
        and the official splits ``validation`` and ``test``, in this order, to images (m, c, h, w) and labels.
        """
        label = {name: r for r, name in enumerate(names)}
        classes = tuple(dict.fromkeys(self.classes or label))
        if unknown := [name for name in classes if name not in label]:
            known = did_you_mean(unknown[0], label)
            raise InputError(f"dataset.classes: there is no class {unknown[0]!r}; {known}")
        labels = [label[name] for name in classes]
        used = {split: (x[rows], y[rows]) for split, (x, y) in parts.items() for rows in [np.isin(y, labels)]}
        x, y = map(np.concatenate, zip(*used.values(), strict=True))
        starts = dict(zip(used, np.cumsum([0, *(len(y) for _, y in used.values())]).tolist(), strict=False))
        validation, test = starts.get("validation"), starts.get("test")
        return Samples(x, encode(y, labels), classes, source, test, official_validation=validation)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SklearnDigits(Images):
    """scikit-learn's 8x8 digits in 0..1, enlarged to MNIST's 28x28 pixels by bilinear interpolation."""

    classes: Classes = ("0", "1")

    def load(self, rng: np.random.Generator) -> Samples:
        from sklearn.datasets import load_digits  # slow to import, and needed only here

        digits = load_digits()
        images = torch.from_numpy(digits.images[:, None] / 16.0)
        images = functional.interpolate(images, size=(28, 28), mode="bilinear", align_corners=False)
        parts = {"train": (images.numpy(), digits.target)}
        return self.chosen("scikit-learn's digits, 28x28", string.digits, parts)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ImageFiles(Images):
    """Images from published files, which are read from ``root`` or downloaded once into the cache folder."""

    address: ClassVar[str]
    """URL of the files, without their names."""
    below: ClassVar[str]
    """The folder in ``root`` that holds the files."""
    sums: ClassVar[Mapping[str, str]]
    """SHA-256 checksums of the files by name."""

    root: str | None = None

    @property
    def folder(self) -> Path:
        if self.root is not None:
            return Path(self.root).expanduser() / self.below
        published = next(kind for kind in type(self).__mro__ if "sums" in vars(kind))
        return cache_folder() / (self.below or published.__name__)

    def read(self, name: str) -> bytes:
        """Return the content of a published file, or raise an InputError if it is missing or damaged."""
        try:
            file = self.folder / name
            if self.root is None:
                fetch(self.address + name, self.sums[name], self.folder)
            content = read_regular(file, 2**28)  # bytes; all published files are smaller
            if (got := hashlib.sha256(content).hexdigest()) != self.sums[name]:
                raise ValueError(f"{file} is not the published file: its SHA-256 is {got}")
        except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: ~name of an unknown user
            what = "the files cannot be downloaded" if self.root is None else f"dataset.root={self.root}"
            omit = "" if self.root is None else "remove dataset.root to download the files, "
            reason = message_of(error) if isinstance(error, OSError) else error
            raise InputError(
                f"{what}: {reason}; set dataset.root to a folder that "
                f"contains {Path(self.below, name)}, {omit}or use dataset=digits, which requires no download"
            ) from None
        return content


@dataclass(frozen=True, kw_only=True, config=STRICT)
class MNIST(ImageFiles):
    """MNIST with its official split; by default, the classes 0 and 1 (paper, Section 5.2).

    The files are ``root/MNIST/raw/*-ubyte.gz``, as in torchvision.
    """

    address = "https://ossci-datasets.s3.amazonaws.com/mnist/"
    below = "MNIST/raw"
    sums: ClassVar[Mapping[str, str]] = {
        "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    }

    classes: Classes = ("0", "1")

    def load(self, rng: np.random.Generator) -> Samples:
        images, labels, test_images, test_labels = (_values(self.read(name)) for name in self.sums)
        parts = {"train": (images[:, None], labels), "test": (test_images[:, None], test_labels)}
        return self.chosen(str(self.folder), string.digits, parts)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class FashionMNIST(MNIST):
    """Fashion-MNIST, with the same settings as MNIST."""

    address = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
    below = "FashionMNIST/raw"
    sums: ClassVar[Mapping[str, str]] = {
        "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    }


@dataclass(frozen=True, kw_only=True, config=STRICT)
class KMNIST(MNIST):
    """Kuzushiji-MNIST, with the same settings as MNIST."""

    address = "https://codh.rois.ac.jp/kmnist/dataset/kmnist/"
    below = "KMNIST/raw"
    sums: ClassVar[Mapping[str, str]] = {
        "train-images-idx3-ubyte.gz": "51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4",
        "train-labels-idx1-ubyte.gz": "e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17",
        "t10k-images-idx3-ubyte.gz": "edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5",
        "t10k-labels-idx1-ubyte.gz": "20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c",
    }


def _values(file: bytes) -> UInt8[np.ndarray, "..."]:
    """Return the array in a compressed IDX file. The fourth byte is the number of dimensions."""
    content = gzip.decompress(file)
    shape = np.frombuffer(content, ">u4", count=content[3], offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)


ARCHIVE = "cifar-10-binary.tar.gz"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class CIFAR10(ImageFiles):
    """CIFAR-10 with its official split: 60,000 colour images of ten classes (Krizhevsky, 2009).

    The images are read from ``root/cifar-10-binary.tar.gz``, not from torchvision's archive of pickles.
    """

    address = "https://www.cs.toronto.edu/~kriz/"
    below = ""
    sums: ClassVar[Mapping[str, str]] = {
        ARCHIVE: "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
    }

    def load(self, rng: np.random.Generator) -> Samples:
        batches = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
        with tarfile.open(fileobj=io.BytesIO(self.read(ARCHIVE))) as archive:
            files = [archive.extractfile(f"cifar-10-batches-bin/{batch}.bin") for batch in batches]
            *training, test = (cast(IO[bytes], file).read() for file in files)
        parts = {"train": _records(b"".join(training)), "test": _records(test)}
        names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
        return self.chosen(str(self.folder), names, parts)


def _records(content: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return images and labels from records of one label byte and the red, green and blue pixels."""
    records = np.frombuffer(content, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]
