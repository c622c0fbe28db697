"""The kernel of samples that have no features: a matrix in a file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64

from nsvm_cli.errors import InputError, message_of
from nsvm_cli.models.kernels import KERNELS, Gram, Kernel, Others, Points
from nsvm_cli.storage.files import open_regular

MOST_ROWS = 2**24
"""The most rows of a precomputed matrix: float32 holds all their indices."""


@KERNELS.register("precomputed")
@dataclass(frozen=True)  # pydantic's would wrap an InputError in three lines
class Precomputed(Kernel):
    """K(a, b) = G_ab, where samples are their indices in a symmetric matrix G.

    ``path`` names a file of NumPy's (.npy), which is mapped into memory and read where it is needed.
    """

    path: str

    def __post_init__(self) -> None:
        G, what = self.G, f"kernel.path={self.path}"
        if G.ndim != 2 or len({*G.shape}) > 1 or len(G) > MOST_ROWS or G.dtype.kind not in "iuf":
            raise InputError(
                f"{what}: expected numbers of shape (m, m), m <= 2^24, got {G.dtype} of shape {G.shape}"
            )
        block = G[:256, :256]  # all of a large file would take minutes to read
        if not (np.isfinite(block).all() and np.allclose(block, block.T)):
            raise InputError(f"{what}: expected a symmetric matrix of finite numbers")

    @cached_property
    def G(self) -> np.memmap:
        try:
            file = Path(os.path.expanduser(self.path))
            open_regular(file).close()  # a stranger's settings may name any file
            return np.lib.format.open_memmap(file, mode="r")  # refuses pickled objects
        except (OSError, ValueError) as error:
            reason = message_of(error) if isinstance(error, OSError) else error
            raise InputError(f"kernel.path={self.path} cannot be read as a matrix: {reason}") from None

    def __call__(self, a: Points, b: Others) -> Gram:
        i, j = self._indices(a), self._indices(b)
        return torch.from_numpy(self.G[i[..., None], j[..., None, :]].astype(np.float64)).to(a)

    def _indices(self, a: Points) -> Int64[np.ndarray, "*batch p"]:
        i, m = a.detach().cpu().double().numpy(), len(self.G)
        known = (i == np.floor(i)) & (i >= 0) & (i < m)
        if i.shape[-1] != 1 or not known.all():
            got = f"{i.shape[-1]} features" if i.shape[-1] != 1 else f"{i[~known][0]:g}"
            raise InputError(
                f"kernel precomputed expects samples that are rows of {self.path}, 0 to {m - 1}, got {got}: "
                "expected one feature, the index, with dataset.scaling=none and network=identity"
            )
        return i[..., 0].astype(np.int64)
