"""The RBF kernel, compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nsvm_cli.engines.numba.exponential import of_exponents, rate_of
from nsvm_cli.engines.numba.forms import Real
from nsvm_cli.engines.numba.jit import jit
from nsvm_cli.engines.numba.kernels.base import gradient, of_products, squared_lengths, values
from nsvm_cli.engines.numba.kernels.columns import Columns, add_columns, column_gradient, shift, term_columns


class RBF(NamedTuple):
    """The kernel of features of the same length."""

    gamma: Real
    bias: Real


class FarRBF(RBF):
    """The kernel of features that may be far from 0, compared with their distances.

    These are then those of differences, so that fewer of their digits cancel.
    """


@of_products.register(RBF)
@jit
def _(K: RBF, P: Any, square_a: Any, square_b: Any) -> None:
    real, rate = P.dtype.type, rate_of(K)
    for i in range(P.shape[0]):
        square = square_a[i]
        for j in range(P.shape[1]):
            distance = square + square_b[j] - real(2) * P[i, j]
            P[i, j] = rate * (distance if not distance < real(0) else real(0))
        of_exponents(K, P, i)


@gradient.register(RBF)
@jit
def _(K: RBF, a: Any, b: Any, K_ab: Any, G: Any) -> Any:
    return _of_weights(a, b, _weights(K, K_ab, G))


@jit
def _weights(K: RBF, K_ab: Any, G: Any) -> Any:
    GK = np.empty_like(K_ab)
    for i in range(GK.shape[0]):
        for j in range(GK.shape[1]):
            GK[i, j] = K_ab.dtype.type(2) * K.gamma * G[i, j] * (K_ab[i, j] - K.bias)
    return GK


@jit
def _of_weights(a: Any, b: Any, GK: Any) -> Any:
    """Return sum_j GK_ij (b_j - a_i) for every i."""
    out = np.dot(GK, b)
    for i in range(a.shape[0]):
        total = a.dtype.type(0)
        for j in range(b.shape[0]):
            total += GK[i, j]
        for k in range(a.shape[1]):
            out[i, k] -= total * a[i, k]
    return out


@column_gradient.register(RBF)
@jit
def _(K: RBF, a: Any, b: Columns, block: int, K_ab: Any, G: Any, out: Any) -> None:
    factor = a.dtype.type(2) * K.gamma
    for i in range(len(a)):
        total = a.dtype.type(0)
        for j in range(G.shape[1]):
            G[i, j] *= factor * (K_ab[i, j] - K.bias)
            total += G[i, j]
        add_columns(a, b.z, block, G, i, total, out)


FEW = 2**13
"""Values of K_ij and its features up to which, or for a single row, the kernel gets differences of features
rather than products, as on torch: these cannot cancel."""


@jit
def _are_few(a: Any, b: Any) -> bool:
    return min(len(a), len(b)) == 1 or len(a) * len(b) * a.shape[1] <= FEW


@jit
def _mean(b: Any) -> Any:
    origin = np.zeros(b.shape[1], b.dtype)
    for j in range(b.shape[0]):
        for k in range(b.shape[1]):
            origin[k] += b[j, k]
    for k in range(b.shape[1]):
        origin[k] /= b.dtype.type(b.shape[0])
    return origin


@jit
def _shifted(a: Any, origin: Any) -> Any:
    out = np.empty(a.shape, a.dtype)
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            out[i, k] = a[i, k] - origin[k]
    return out


@values.register(FarRBF)
@jit
def _(K: FarRBF, a: Any, b: Any) -> Any:
    if not _are_few(a, b):
        origin = _mean(b)
        a, b = _shifted(a, origin), _shifted(b, origin)
        P = np.dot(a, b.T)
        of_products(K, P, squared_lengths(a), squared_lengths(b))
        return P
    P, rate = np.empty((a.shape[0], b.shape[0]), a.dtype), rate_of(K)
    for i in range(P.shape[0]):
        for j in range(P.shape[1]):
            distance = a.dtype.type(0)
            for k in range(a.shape[1]):
                difference = a[i, k] - b[j, k]
                distance += difference * difference
            P[i, j] = rate * distance
        of_exponents(K, P, i)
    return P


@gradient.register(FarRBF)
@jit
def _(K: FarRBF, a: Any, b: Any, K_ab: Any, G: Any) -> Any:
    GK = _weights(K, K_ab, G)
    if _are_few(a, b):
        out = np.zeros_like(a)
        for i in range(a.shape[0]):
            for j in range(b.shape[0]):
                for k in range(a.shape[1]):
                    out[i, k] += GK[i, j] * (b[j, k] - a[i, k])
        return out
    origin = _mean(b)
    return _of_weights(_shifted(a, origin), _shifted(b, origin), GK)


@shift.register(FarRBF)
@jit
def _(K: FarRBF, a: Any, z: Any, k: int, count: int) -> None:
    origin = z.dtype.type(0)
    for j in range(count):
        origin += z[k, j]
    origin /= z.dtype.type(count)
    for j in range(count):
        z[k, j] -= origin
    for i in range(len(a)):
        a[i, k] -= origin


@term_columns.register(FarRBF)
@jit
def _(K: FarRBF, z_s: Any, room: int) -> None:
    return None
