"""The RBF kernel, compiled: values and gradients, and sums of values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nsvm_cli.engines.numba.arrays import add_matrix, exp2
from nsvm_cli.engines.numba.forms import RBF
from nsvm_cli.engines.numba.jit import jit
from nsvm_cli.models.kernels import FAR

COLUMNS = 768
"""Support vectors whose kernel values are computed at a time, so that they stay in a core's cache."""


@jit
def of_exponents(K: RBF, P: Any, i: int) -> None:
    """Replace the exponents of 2 in row i by K(a_i, b_j)."""
    for j in range(P.shape[1]):
        P[i, j] = exp2(P[i, j])


@jit
def of_products(K: RBF, P: Any, square_a: Any, square_b: Any) -> None:
    """Replace <a_i, b_j> by K(a_i, b_j), given the squared lengths."""
    real = P.dtype.type
    rate = real(-K.gamma / math.log(2))  # exp(-gamma d) = 2^(rate d)
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


FEW = 2**13
"""Values of K_ij and its features up to which, or for a single row, the kernel gets differences of features
rather than products, as on torch: these cannot cancel."""


@jit
def _takes_differences(K: RBF, a: Any, b: Any) -> bool:
    return not K.normalized and (min(len(a), len(b)) == 1 or len(a) * len(b) * a.shape[1] <= FEW)


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


@jit
def values(K: RBF, a: Any, b: Any) -> Any:
    """Return K(a_i, b_j) for all i, j."""
    if _takes_differences(K, a, b):
        return _values_by_differences(K, a, b)
    shifted_a, shifted_b = a, b
    if not K.normalized:
        origin = _mean(b)
        shifted_a, shifted_b = _shifted(a, origin), _shifted(b, origin)
    square_b = squared_lengths(shifted_b)
    if are_far(K, square_b):
        return _values_by_differences(K, a, b)
    P = np.dot(shifted_a, shifted_b.T)
    of_products(K, P, squared_lengths(shifted_a), square_b)
    return P


@jit
def are_far(K: RBF, squares: Any) -> bool:
    """Return whether float32 has too few digits for products of features of these squared lengths."""
    return squares.itemsize == 4 and (K.gamma * squares > FAR).any()


@jit
def _values_by_differences(K: RBF, a: Any, b: Any) -> Any:
    P, rate = np.empty((a.shape[0], b.shape[0]), a.dtype), a.dtype.type(-K.gamma / math.log(2))
    for i in range(P.shape[0]):
        for j in range(P.shape[1]):
            distance = a.dtype.type(0)
            for k in range(a.shape[1]):
                difference = a[i, k] - b[j, k]
                distance += difference * difference
            P[i, j] = rate * distance
        of_exponents(K, P, i)
    return P


@jit
def gradient(K: RBF, a: Any, b: Any, K_ab: Any, G: Any) -> Any:
    """Return the gradient of sum_ij G_ij K(a_i, b_j) with respect to a, given K_ab = K(a_i, b_j)."""
    GK = np.empty_like(K_ab)
    for i in range(GK.shape[0]):
        for j in range(GK.shape[1]):
            GK[i, j] = K_ab.dtype.type(2) * K.gamma * G[i, j] * K_ab[i, j]
    if _takes_differences(K, a, b):
        return _sums_of_differences(a, b, GK)
    if not K.normalized:
        origin = _mean(b)
        a, b = _shifted(a, origin), _shifted(b, origin)
    out = np.dot(GK, b)
    for i in range(a.shape[0]):
        total = a.dtype.type(0)
        for j in range(b.shape[0]):
            total += GK[i, j]
        for k in range(a.shape[1]):
            out[i, k] -= total * a[i, k]
    return out


@jit
def _sums_of_differences(a: Any, b: Any, GK: Any) -> Any:
    """Return sum_j GK_ij (b_j - a_i) for every i."""
    out = np.zeros_like(a)
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            for k in range(a.shape[1]):
                out[i, k] += GK[i, j] * (b[j, k] - a[i, k])
    return out


@jit
def sums(K: RBF, a: Any, b: Any, w: Any) -> Any:
    """Return sum_j w_j K(b_j, a_i) for every i, of shape (p, C), for w of shape (q, C)."""
    out = np.zeros((a.shape[0], w.shape[1]), a.dtype)
    for begin in range(0, b.shape[0], COLUMNS):
        end = min(begin + COLUMNS, b.shape[0])
        add_matrix(out, np.dot(values(K, a, b[begin:end]), w[begin:end]))
    return out
