"""Street View House Numbers, as cropped digits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.image_files import Classes, ImageFiles, Part, expect_sum, numbered_classes
from nsvm_cli.storage.files import open_regular


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SVHN(ImageFiles):
    """SVHN's cropped digits with the official split, 99,289 colour images (Netzer et al., 2011).

    The files are read from ``root/train_32x32.mat`` and ``root/test_32x32.mat``. The set of extra images is
    left out.
    """

    title: ClassVar[str] = "SVHN"
    mirrors: ClassVar[tuple[str, ...]] = ("https://ufldl.stanford.edu/housenumbers/",)
    published: ClassVar[Mapping[str, str]] = {
        "train_32x32.mat": "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
        "test_32x32.mat": "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
    }

    classes: Classes = None

    @property
    def folder(self) -> str:
        return "SVHN" if self.root is None else ""

    @property
    def layout(self) -> str:
        return "train_32x32.mat and test_32x32.mat"

    def sums(self) -> Mapping[str, str]:
        return self.published

    def missing(self, folder: Path) -> dict[str, str]:
        return {name: name for name in self.published if not (folder / name).is_file()}

    def chosen(self) -> tuple[Sequence[int], tuple[str, ...]]:
        return numbered_classes(self.classes)

    def read(self, folder: Path) -> tuple[Part, Part]:
        return self._part(folder / "train_32x32.mat"), self._part(folder / "test_32x32.mat")

    def _part(self, file: Path) -> Part:
        from scipy.io import loadmat  # slow to import, and needed only here

        with self.reading(file), open_regular(file) as stream:
            expect_sum(stream, self.published[file.name])
            content = loadmat(stream, variable_names=["X", "y"])
        images, labels = content["X"].transpose(3, 2, 0, 1), content["y"].ravel()
        return images, labels % 10  # the label of the digit 0 is 10
