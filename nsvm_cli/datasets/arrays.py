"""Samples in NumPy files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.augmentation import Augment
from nsvm_cli.datasets.base import Samples, Source
from nsvm_cli.errors import InputError, message_of
from nsvm_cli.storage.files import open_regular
from nsvm_cli.tasks import encode


@dataclass(frozen=True, kw_only=True, config=STRICT)
class NPY(Source):
    """Arrays in files (.npy) of samples, of shape (m, ...), and of their labels, of shape (m,).

    Labels of a floating-point type are real targets. All other labels are the names of classes. Arrays of
    bytes with more than two dimensions are images.
    """

    global_scaling: ClassVar[None] = None

    path: str
    labels: str
    test_path: str | None = None
    test_labels: str | None = None
    augment: Augment = ()

    def load(self, rng: np.random.Generator) -> Samples:
        x, y = self._arrays("path", "labels")
        m = None
        if self.test_path or self.test_labels:
            m, (x_test, y_test) = len(y), self._arrays("test_path", "test_labels")
            if x_test.shape[1:] != x.shape[1:]:
                expected = f"expected samples of shape {x.shape[1:]}, as in {self.path}"
                raise InputError(f"dataset.test_path={self.test_path}: {expected}, got {x_test.shape[1:]}")
            x, y = np.concatenate([x, x_test]), np.concatenate([y, y_test])
        is_image = x.dtype == np.uint8 and x.ndim > 2
        x = np.ascontiguousarray(x, np.uint8 if is_image else np.float64)
        if y.dtype.kind == "f":
            return Samples(x, y.astype(np.float64), (), self.path, m)
        names = np.unique(y)
        return Samples(x, encode(y, names.tolist()), tuple(map(str, names)), self.path, m)

    def _arrays(self, path: str, labels: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the arrays of samples and labels in the files that these two settings contain."""
        x, y = (open_array(f"dataset.{name}", getattr(self, name)) for name in (path, labels))
        if x.dtype.kind not in "iufb" or x.ndim < 2:
            found = f"{x.dtype} of shape {x.shape}"
            raise InputError(f"dataset.{path}: expected numbers of shape (m, ...), got {found}")
        if y.dtype.kind not in "iufbU" or y.shape != x.shape[:1]:
            expected = (
                f"expected numbers or text of shape ({len(x)},), as dataset.{path} has {len(x)} samples"
            )
            raise InputError(f"dataset.{labels}: {expected}, got {y.dtype} of shape {y.shape}")
        return x, y


def open_array(setting: str, path: str | None) -> np.ndarray:
    """Return the array in a NumPy file (.npy), whose path is the value of a setting, as a memory map."""
    try:
        file = Path(os.path.expanduser(path or ""))
        open_regular(file).close()  # settings from an untrusted source may contain any path
        return np.lib.format.open_memmap(file, mode="r")  # No pickle: it refuses objects
    except (OSError, ValueError) as error:
        reason = message_of(error) if isinstance(error, OSError) else error
        raise InputError(f"{setting}={path} cannot be read as an array: {reason}") from None
