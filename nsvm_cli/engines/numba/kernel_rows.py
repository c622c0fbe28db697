"""Rows of the kernel matrix of the training samples, cached within the memory budget.

The bits of a row depend neither on when it is computed nor on which rows are computed with it. Matrix
products have this property if shapes are multiples of 8 and samples begin at multiples of 64 bytes. This was
found by trial with MKL, and a test checks it.
"""

from __future__ import annotations

import math
import weakref
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64, UInt8
from torch import Tensor

from nsvm_cli.config.registry import keeps
from nsvm_cli.engines.numba.arrays import exp2
from nsvm_cli.engines.numba.jit import jit, loaded
from nsvm_cli.models.composed_kernels import Learnt
from nsvm_cli.models.kernels import FAR, RBF, Kernel, Laplacian, or_one_over_n

DUAL = "svc"
"""The first part of the name of the solver's unit of compiled code (see ``code``), before the dtype."""

LANES = 64
"""Rows are padded to a multiple of this length."""

FEW_FEATURES = 24
"""Maximum number of features for which distances are computed from differences, which avoid cancellation."""

GATHERED = 128
"""Minimum number of features for which reading a value from a cached row is faster than computing it."""

POOL: list[UInt8[np.ndarray, " bytes"]] = []
"""Memory of deleted rows for reuse, since touching new memory can take half as long as computing rows."""


class Matrix(NamedTuple):
    """The kernel matrix of a working set, with rows padded to a multiple of ``LANES``, and its diagonal."""

    K: Any
    diagonal: Any
    there: Any  # marks the computed rows
    z: Any  # missing rows are computed on first use, from a row of z and all ``columns``
    columns: Any
    size: int  # rows and columns from ``size`` on are 0
    squared: bool  # whether missing rows depend on squared differences; see ``Differences``


class Rows:
    """A cache of rows of the kernel matrix, padded with zeros.

    Sample m is the additional sample of a ``Dual`` without bias. It is not in z, and its row is 0.
    """

    def __init__(self, K: Kernel, z: Float[Tensor, "m n"], memory_budget: int) -> None:
        self.K, self.z, self.m, self.clock = K, z, len(z), 0
        self.dtype, self.width = z[:0].cpu().numpy().dtype, _rounded_up(self.m + 1, LANES)
        self.unit = f"{DUAL}-{self.dtype}"
        self.formula: Any = _formula(K, z, self.width)
        differences = isinstance(self.formula, Differences)
        self.lazy = differences and self.formula.z.shape[1] <= FEW_FEATURES
        products = isinstance(self.formula, Products) and self.formula.z.dtype == torch.float32
        # with these formulas, the bits of a value also do not depend on the other columns
        self.gathers = (differences or products) and z.shape[1] >= GATHERED and not self.lazy
        self.diagonal = np.append(self.formula.diagonal[: self.m], 0).astype(self.dtype)
        row = self.width * self.dtype.itemsize
        self.most = int(np.clip(memory_budget * 2**20 // row, LANES, self.m))
        self.cache = self._memory(self.most * row).view(self.dtype).reshape(self.most, self.width)
        self.slot, self.owner = np.full(self.m, -1), np.full(self.most, -1)
        self.used = np.full(self.most, -1)

    def _memory(self, size: int) -> UInt8[np.ndarray, " bytes"]:
        """Return a buffer for rows. It goes back to the pool when this object is deleted."""
        memory = POOL.pop() if POOL else np.empty(0, np.uint8)
        if len(memory) < size + 64:
            # NumPy would request huge pages, which a virtual machine may have to get from its host first
            memory = torch.empty(size + 64, dtype=torch.uint8).numpy()
        weakref.finalize(self, POOL.__setitem__, slice(None), [memory])
        begin = -memory.ctypes.data % 64
        return memory[begin : begin + size]

    def slots(self, i: Int64[np.ndarray, " q"], free: Bool[np.ndarray, " s"]) -> Int64[np.ndarray, " q"]:
        """Return the positions in the cache (slots) of the rows of samples i, after computing missing rows.

        Rows of samples outside the mask ``free`` are replaced first, starting with the least recently used.
        """
        self.clock += 1
        self.used[self.slot[i][self.slot[i] >= 0]] = self.clock
        missing = np.unique(i[self.slot[i] < 0])
        if len(missing):
            stays = 2 * (self.used == self.clock) + (free[self.owner] & (self.owner >= 0))
            at = np.argpartition(self.used + self.clock * stays, len(missing) - 1)[: len(missing)]
            self.slot[self.owner[at][self.owner[at] >= 0]] = -1
            self.owner[at], self.slot[missing], self.used[at] = missing, at, self.clock
            self.formula.write(missing, self.formula.columns, self.cache, at)
            self.cache[at, self.m :] = 0
        return self.slot[i]

    def block(self, i: Int64[np.ndarray, " q"]) -> Matrix:
        """Return the kernel matrix of samples i. The last of these samples may be sample m."""
        size, padding = len(i) - int(i[-1] == self.m), -len(i) % LANES
        padded, diagonal = np.pad(i, (0, padding)) % self.m, np.pad(self.diagonal[i], (0, padding))
        K = np.empty((len(i), len(padded)), self.dtype)
        K[size:] = 0
        if self.lazy:
            z, there = self.formula.z[padded], np.arange(len(i)) >= size
            columns = self.formula.columns_of(padded)
            return Matrix(K, diagonal, there, z, columns, size, self.formula.squared)
        slots = self.slot[i[:size]] if self.gathers else np.full(size, -1)
        loaded(gather, self.unit)(self.cache, slots, padded, K)
        if len(new := np.flatnonzero(slots < 0)):
            self.formula.write(padded[new], self.formula.columns_of(padded), K, new)
        K[:, size:] = 0
        return Matrix(K, diagonal, np.ones(len(i), bool), K[:0], K[:0], size, False)

    def add(self, K: Any, at: Int64[np.ndarray, " q"], c: Float64[np.ndarray, " q"], g: Any) -> None:
        """Add sum_k c_k K[at_k] to g, in float64."""
        padding = -len(at) % 4
        at, c = np.append(at, at[:1].repeat(padding)), np.append(c, np.zeros(padding))
        loaded(add_rows, self.unit)(K, at, c, g)


def _rounded_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _formula(K: Kernel, z: Float[Tensor, "m n"], width: int) -> Any:
    """Return the fastest formula for K on these samples, padded to ``width`` samples."""
    if isinstance(K, Learnt):
        K, s = K.with_values()
        z = s * z
    kind = RBF if isinstance(K, RBF) else Laplacian
    if not (isinstance(K, kind) and keeps(type(K), kind, "__call__", "diag") and z.device.type == "cpu"):
        return AnyKernel(K, z, width)
    gamma, z = or_one_over_n(K.gamma, z), z[:, (z != z[0]).any(0)]  # constant features do not matter
    squared = kind is RBF
    products = squared and z.shape[1] > FEW_FEATURES
    far = products and bool((gamma * (z - z.mean(0)).square().sum(1) > FAR).any())
    z = z.double() if far else z
    scaled = z.new_zeros(width, _rounded_up(z.shape[1], 8))
    torch.sub(z, z.mean(0), out=scaled[: len(z), : z.shape[1]])
    factor = (2 if products else 1) * gamma / math.log(2)
    scaled *= math.sqrt(factor) if squared else factor
    return Products(scaled) if products else Differences(scaled, squared)


class AnyKernel:
    """Any kernel K, evaluated by its own formula on z's device."""

    def __init__(self, K: Kernel, z: Tensor, width: int) -> None:
        self.K, self.columns = K, torch.cat([z, z[:1].expand(width - len(z), -1)])
        self.diagonal = K.diag(z).cpu().numpy()

    def columns_of(self, i: Any) -> Any:
        return self.columns[i]

    def write(self, i: Any, columns: Any, out: Any, slots: Any) -> None:
        # always 32 rows, with even samples in even rows and odd samples in odd rows, to get the same bits
        for begin in range(0, len(i), 16):
            rows = i[begin : begin + 16]
            places, taken = 2 * np.arange(len(rows)) + rows % 2, np.zeros(32, np.int64)
            taken[places] = rows
            out[slots[begin : begin + 16]] = self.K(self.columns[taken], columns).cpu().numpy()[places]


class Products:
    """Compute rows of the RBF kernel from inner products, as 2^(<a, b> - h_a - h_b) with h_a = <a, a> / 2.

    The features are scaled so that this equals K(a, b).
    """

    def __init__(self, z: Tensor) -> None:
        self.z, self.diagonal = z, np.ones(len(z))
        # computed by the same products, so that K of equal samples is exactly 1
        h = torch.cat([torch.mm(a, a.T).diagonal() / 2 for a in self.z.split(LANES)])
        self.columns, self.product = (self.z, h.numpy()), z.new_empty(512 * 256)  # fits in a core's cache

    def columns_of(self, i: Any) -> Any:
        return self.z[i], self.columns[1][i]

    def write(self, i: Any, columns: Any, out: Any, slots: Any) -> None:
        finish = loaded(write_powers, f"{DUAL}-{out.dtype}")
        for rows in np.split(np.arange(len(i)), range(512, len(i), 512)):
            a, h = self.columns_of(np.pad(i[rows], (0, -len(rows) % 8)))
            for begin in range(0, len(columns[0]), 256):
                b, h_b = (part[begin : begin + 256] for part in columns)
                G = self.product[: len(a) * len(b)].view(len(a), len(b))
                torch.mm(a, b.T, out=G)
                finish(G.numpy(), h, h_b, out, slots[rows], begin)


class Differences:
    """Compute rows of the RBF kernel for few features, or of the Laplacian kernel, from differences.

    The features are scaled so that K(a, b) is 2^-|a - b|^2 if ``squared``, and 2^-|a - b|_1 otherwise.
    """

    def __init__(self, z: Tensor, squared: bool) -> None:
        self.z, self.columns, self.squared = z.numpy(), np.ascontiguousarray(z.numpy().T), squared
        self.diagonal = np.ones(len(z))

    def columns_of(self, i: Any) -> Any:
        return np.ascontiguousarray(self.z[i].T)

    def write(self, i: Any, columns: Any, out: Any, slots: Any) -> None:
        loaded(write_differences, f"{DUAL}-{out.dtype}")(self.z[i], columns, out, slots, self.squared)


def write_powers(G: Any, h_a: Any, h_b: Any, out: Any, slots: Any, first: int) -> None:
    """Write 2^(G_ij - h_a_i - h_b_j) to row slots_i of ``out``, from column ``first`` on (``Products``)."""
    for i in range(len(slots)):
        row, products, h = out[slots[i], first : first + G.shape[1]], G[i], h_a[i]
        for j in range(G.shape[1]):
            row[j] = exp2(min(products[j] - h - h_b[j], h - h))


def write_differences(a: Any, columns: Any, out: Any, slots: Any, squared: bool) -> None:
    """Write the values for a_i and all columns to row slots_i of ``out`` (``Differences``)."""
    for i in range(len(slots)):
        write_difference_row(a[i], columns, out[slots[i]], squared)


@jit
def write_difference_row(a: Any, b: Any, out: Any, squared: bool) -> None:
    """Write the values for a and all columns of b, in blocks that fit in the first-level cache."""
    exponents = np.empty(512, a.dtype)
    for begin in range(0, len(out), 512):
        end = min(begin + 512, len(out))
        exponents[:] = 0
        for k in range(0, len(a), 4):
            p, q, r, s = a[k], a[k + 1], a[k + 2], a[k + 3]
            b_p, b_q = b[k, begin:end], b[k + 1, begin:end]
            b_r, b_s = b[k + 2, begin:end], b[k + 3, begin:end]
            for j in range(end - begin if squared else 0):
                exponents[j] += (p - b_p[j]) ** 2 + (q - b_q[j]) ** 2 + (r - b_r[j]) ** 2 + (s - b_s[j]) ** 2
            for j in range(0 if squared else end - begin):
                exponents[j] += abs(p - b_p[j]) + abs(q - b_q[j]) + abs(r - b_r[j]) + abs(s - b_s[j])
        for j in range(end - begin):
            out[begin + j] = exp2(-exponents[j])


def gather(cache: Any, slots: Any, i: Any, out: Any) -> None:
    """Copy columns i of the cached rows ``slots`` to ``out``. Negative slots are skipped."""
    for k in range(len(slots)):
        row = cache[slots[k]]
        for j in range(len(i) if slots[k] >= 0 else 0):
            out[k, j] = row[i[j]]


def add_rows(K: Any, at: Any, c: Any, g: Any) -> None:
    """Add sum_k c_k K[at_k] to g, four rows at a time, in blocks that fit in the first-level cache."""
    total = np.empty(2048)
    for begin in range(0, len(g), 2048):
        end = min(begin + 2048, len(g))
        total[:] = 0
        for k in range(0, len(at), 4):
            p, q = K[at[k], begin:end], K[at[k + 1], begin:end]
            r, s = K[at[k + 2], begin:end], K[at[k + 3], begin:end]
            c_p, c_q, c_r, c_s = c[k], c[k + 1], c[k + 2], c[k + 3]
            for j in range(end - begin):
                total[j] += c_p * p[j] + c_q * q[j] + c_r * r[j] + c_s * s[j]
        for j in range(end - begin):
            g[begin + j] += total[j]
