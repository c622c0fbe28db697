"""The RBF kernel, compiled: values and gradients; and sums, of all values."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from nsvm_cli.engines.numba.elements import add_matrix
from nsvm_cli.engines.numba.exponential import exp2
from nsvm_cli.engines.numba.forms import Real
from nsvm_cli.engines.numba.jit import by_type, jit

COLUMNS = 768
"""Support vectors whose kernel values are computed at a time, so that they stay in a core's cache."""


class RBF(NamedTuple):
    """The kernel of features of the same length."""

    gamma: Real


class FarRBF(RBF):
    """The kernel of features that may be far from 0, compared with their distances.

    These are then those of differences, so that fewer of their digits cancel.
    """


@jit
def rate_of(K: RBF) -> Any:
    """Return the rate of the kernel: exp(-gamma d) = 2^(rate d)."""
    return type(K.gamma)(-K.gamma / math.log(2))


@jit
def of_exponents(K: RBF, P: Any, i: int) -> None:
    """Replace the exponents of 2 in row i by K(a_i, b_j)."""
    for j in range(P.shape[1]):
        P[i, j] = exp2(P[i, j])


@jit
def of_products(K: RBF, P: Any, square_a: Any, square_b: Any) -> None:
    """Replace <a_i, b_j> by K(a_i, b_j), given the squared lengths."""
    real, rate = P.dtype.type, rate_of(K)
    for i in range(P.shape[0]):
        square = square_a[i]
        for j in range(P.shape[1]):
            distance = square + square_b[j] - real(2) * P[i, j]
            P[i, j] = rate * (distance if not distance < real(0) else real(0))
        of_exponents(K, P, i)


@jit
def squared_lengths(a: Any) -> Any:
    """Return ||a_i||^2 for every i."""
    out = np.empty(a.shape[0], a.dtype)
    for i in range(a.shape[0]):
        square = a.dtype.type(0)
        for k in range(a.shape[1]):
            square += a[i, k] * a[i, k]
        out[i] = square
    return out


@by_type
@jit
def values(K: RBF, a: Any, b: Any) -> Any:
    """Return K(a_i, b_j) for all i, j."""
    P = np.dot(a, b.T)
    of_products(K, P, squared_lengths(a), squared_lengths(b))
    return P


@by_type
@jit
def gradient(K: RBF, a: Any, b: Any, K_ab: Any, G: Any) -> Any:
    """Return the gradient of sum_ij G_ij K(a_i, b_j) with respect to a, given K_ab = K(a_i, b_j)."""
    return _of_weights(a, b, _weights(K, K_ab, G))


@jit
def sums(K: RBF, a: Any, b: Any, w: Any) -> Any:
    """Return sum_j w_j K(b_j, a_i) for every i, of shape (p, C), for w of shape (q, C)."""
    out = np.zeros((a.shape[0], w.shape[1]), a.dtype)
    for begin in range(0, b.shape[0], COLUMNS):
        end = min(begin + COLUMNS, b.shape[0])
        add_matrix(out, np.dot(values(K, a, b[begin:end]), w[begin:end]))
    return out


@jit
def _weights(K: RBF, K_ab: Any, G: Any) -> Any:
    GK = np.empty_like(K_ab)
    for i in range(GK.shape[0]):
        for j in range(GK.shape[1]):
            GK[i, j] = K_ab.dtype.type(2) * K.gamma * G[i, j] * K_ab[i, j]
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
