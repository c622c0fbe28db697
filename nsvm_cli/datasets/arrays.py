"""Samples in files of arrays: NumPy's .npy and .npz, and .safetensors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar
from zipfile import BadZipFile

import numpy as np
from pydantic.dataclasses import dataclass
from safetensors import SafetensorError, safe_open

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.base import Samples, Source
from nsvm_cli.errors import InputError, message_of
from nsvm_cli.storage.files import open_regular
from nsvm_cli.tasks import encode

COLLECTIONS = (".npz", ".safetensors")
"""Endings of files that contain several arrays."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class NPY(Source):
    """Arrays of samples, of shape (m, ...), and of their labels, of shape (m,) or (m, 1).

    Labels of a floating-point type are real targets. All other labels are the names of classes. Arrays
    with four dimensions, and arrays of bytes with three, are images of shape (m, channels, height, width).
    """

    global_scaling: ClassVar[None] = None

    path: str
    labels: str
    test_path: str | None = None
    test_labels: str | None = None

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
        x = x[:, None] if is_image and x.ndim == 3 else x
        if x.ndim == 4 and x.shape[-1] in (1, 3) and x.shape[1] not in (1, 3):
            x = np.moveaxis(x, -1, 1)
        x = x if is_image else np.ascontiguousarray(x, np.float64)
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
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        m = len(x)
        if y.dtype.kind not in "iufbU" or y.shape != (m,):
            expected = f"expected numbers or text of shape ({m},), as dataset.{path} has {m} samples"
            raise InputError(f"dataset.{labels}: {expected}, got {y.dtype} of shape {y.shape}")
        return x, y


def file_and_name(path: str | None) -> tuple[Path, str]:
    """Return the file of a path FILE or FILE:NAME, and the name, which is empty if there is none."""
    file, _, name = str(path or "").rpartition(":")
    file, name = (file, name) if file.endswith(COLLECTIONS) else (path or "", "")
    return Path(os.path.expanduser(file)), name


def open_array(setting: str, path: str | None) -> np.ndarray:
    """Return the array at a path, which is the value of a setting.

    The path is a NumPy file (.npy), which is opened as a memory map, or FILE:NAME for an array in a file of
    several arrays (.npz or .safetensors).
    """
    file, name = file_and_name(path)
    is_npz = file.suffix == ".npz"
    try:
        with open_regular(file) as content:  # settings from an untrusted source may contain any path
            if file.suffix not in COLLECTIONS:
                return np.lib.format.open_memmap(file, mode="r")  # No pickle: it refuses objects
            opened: Any = np.load(content) if is_npz else safe_open(file, "numpy")  # No pickle, as above
            with opened as arrays:
                if name in (names := [*arrays.keys()]):
                    return arrays[name] if is_npz else arrays.get_tensor(name)
    except (OSError, ValueError, TypeError, SafetensorError, BadZipFile) as error:
        reason = message_of(error) if isinstance(error, OSError) else error
        raise InputError(f"{setting}={path} cannot be read as an array: {reason}") from None
    hint = f"write {setting}={file}:NAME with one of the names {', '.join(names)}"
    raise InputError(f"{setting}={path}: expected the name of an array in the file; {hint}")
