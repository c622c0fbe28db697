"""Street View House Numbers, as cropped digits."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.image_files import ImageFiles, Part
from nsvm_cli.datasets.table_files import Stream


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SVHN(ImageFiles):
    """SVHN's cropped digits with the official split, 99,289 colour images (Netzer et al., 2011).

    The files are read from ``root/train_32x32.mat`` and ``root/test_32x32.mat``. The set of extra images is
    left out.
    """

    title: ClassVar[str] = "SVHN"
    mirrors: ClassVar[tuple[str, ...]] = ("https://ufldl.stanford.edu/housenumbers/",)
    pattern: ClassVar[str] = "train_32x32.mat and test_32x32.mat"
    sums: ClassVar[Mapping[str, str]] = {
        "train_32x32.mat": "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
        "test_32x32.mat": "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
    }
    files: ClassVar[Sequence[str]] = ("train_32x32.mat", "test_32x32.mat")
    names: ClassVar[Sequence[str]] = string.digits

    def parse(self, name: str, content: Stream) -> Part:
        from scipy.io import loadmat  # slow to import, and needed only here

        arrays = loadmat(content, variable_names=["X", "y"])
        return arrays["X"].transpose(3, 2, 0, 1), arrays["y"].ravel() % 10  # the label of the digit 0 is 10

    def parts(self, contents: Sequence[Part]) -> tuple[Part, Part]:
        train, test = contents
        return train, test
