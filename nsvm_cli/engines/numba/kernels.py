"""Kernels, compiled: values, their sums over support vectors, and gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nsvm_cli.engines.numba.elements import add_matrix
from nsvm_cli.engines.numba.exponential import exp2
from nsvm_cli.engines.numba.forms import RBF, Kernel, Laplacian, Linear, Polynomial, ShiftedRBF
from nsvm_cli.engines.numba.jit import by_type, jit

COLUMNS = 768
"""Support vectors whose kernel values are computed at a time, so that they stay in a core's cache."""


@jit
def squared_lengths(a: Any) -> Any:
    out = np.empty(a.shape[0], a.dtype)
    for i in range(a.shape[0]):
        square = a.dtype.type(0)
        for k in range(a.shape[1]):
            square += a[i, k] * a[i, k]
        out[i] = square
    return out


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


FEW = 2**13
"""Values of K_ij and its features up to which, or for a single row, an RBF kernel that needs a shift gets
differences of features rather than products, as on torch: these cannot cancel."""


@jit
def _are_few(a: Any, b: Any) -> bool:
    return min(len(a), len(b)) == 1 or len(a) * len(b) * a.shape[1] <= FEW


@by_type
@jit
def values(K: Kernel, a: Any, b: Any) -> Any:
    """Return K(a_i, b_j) for all i, j."""
    P = np.dot(a, b.T)
    of_products(K, P, squared_lengths(a), squared_lengths(b))
    return P


@values.register(ShiftedRBF)
@jit
def _(K: ShiftedRBF, a: Any, b: Any) -> Any:
    if _are_few(a, b):
        return _of_distances(K, a, b)
    origin = _mean(b)
    a, b = _shifted(a, origin), _shifted(b, origin)
    P = np.dot(a, b.T)
    of_products(K, P, squared_lengths(a), squared_lengths(b))
    return P


@jit
def _of_distances(K: ShiftedRBF | Laplacian, a: Any, b: Any) -> Any:
    P, rate = np.empty((a.shape[0], b.shape[0]), a.dtype), rate_of(K)
    for i in range(P.shape[0]):
        for j in range(P.shape[1]):
            distance = a.dtype.type(0)
            for k in range(a.shape[1]):
                distance += _distance(K, a[i, k] - b[j, k])
            P[i, j] = rate * distance
        of_exponents(K, P, i)
    return P


values.register(Laplacian)(_of_distances)


@by_type
@jit
def _distance(K: ShiftedRBF | Laplacian, difference: Any) -> Any:
    return difference * difference


@_distance.register(Laplacian)
@jit
def _(K: Laplacian, difference: Any) -> Any:
    return abs(difference)


@by_type
@jit
def of_products(K: Any, P: Any, square_a: Any, square_b: Any) -> None:
    """Replace <a_i, b_j> by K(a_i, b_j), unless that is the Laplacian kernel."""
    real, rate = P.dtype.type, rate_of(K)
    for i in range(P.shape[0]):
        square = square_a[i]
        for j in range(P.shape[1]):
            distance = square + square_b[j] - real(2) * P[i, j]
            P[i, j] = rate * (distance if not distance < real(0) else real(0))
        of_exponents(K, P, i)


@of_products.register(Linear)
@jit
def _(K: Linear, P: Any, square_a: Any, square_b: Any) -> None:
    for i in range(P.shape[0]):
        for j in range(P.shape[1]):
            P[i, j] += K.bias


@of_products.register(Polynomial)
@jit
def _(K: Polynomial, P: Any, square_a: Any, square_b: Any) -> None:
    for i in range(P.shape[0]):
        for j in range(P.shape[1]):
            P[i, j] = power(K.gamma * P[i, j] + K.c, K.degree, P.dtype.type(1)) + K.bias


@jit
def rate_of(K: RBF | Laplacian) -> Any:
    """Return the rate of the RBF or Laplacian kernel: exp(-gamma d) = 2^(rate d)."""
    return type(K.gamma)(-K.gamma / math.log(2))


@jit
def of_exponents(K: RBF | Laplacian, P: Any, i: int) -> None:
    """Replace the exponents of 2 in row i by K(a_i, b_j)."""
    for j in range(P.shape[1]):
        P[i, j] = exp2(P[i, j])
    if K.bias != P.dtype.type(0):
        for j in range(P.shape[1]):
            P[i, j] += K.bias


@jit
def power(x: Any, n: int, one: Any) -> Any:
    result = one
    while n > 0:
        if n & 1:
            result *= x
        x *= x
        n >>= 1
    return result


@jit
def sums(K: Kernel, a: Any, b: Any, w: Any) -> Any:
    """Return sum_j w_j K(b_j, a_i) for every i, of shape (p, C), for w of shape (q, C)."""
    out = np.zeros((a.shape[0], w.shape[1]), a.dtype)
    for begin in range(0, b.shape[0], COLUMNS):
        end = min(begin + COLUMNS, b.shape[0])
        add_matrix(out, np.dot(values(K, a, b[begin:end]), w[begin:end]))
    return out


@by_type
@jit
def gradient(K: Any, a: Any, b: Any, K_ab: Any, G: Any) -> Any:
    """Return the gradient of sum_ij G_ij K(a_i, b_j) with respect to a, given K_ab = K(a_i, b_j)."""
    return _of_weights(a, b, _weights(K, K_ab, G))


@gradient.register(ShiftedRBF)
@jit
def _(K: ShiftedRBF, a: Any, b: Any, K_ab: Any, G: Any) -> Any:
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


@gradient.register(Laplacian)
@jit
def _(K: Laplacian, a: Any, b: Any, K_ab: Any, G: Any) -> Any:
    out = np.zeros_like(a)
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            slope = -K.gamma * G[i, j] * (K_ab[i, j] - K.bias)
            for k in range(a.shape[1]):
                out[i, k] += slope * np.sign(a[i, k] - b[j, k])
    return out


@gradient.register(Linear)
@jit
def _(K: Linear, a: Any, b: Any, K_ab: Any, G: Any) -> Any:
    return np.dot(G, b)


@gradient.register(Polynomial)
@jit
def _(K: Polynomial, a: Any, b: Any, K_ab: Any, G: Any) -> Any:
    real, slope_of = a.dtype.type, np.dot(a, b.T)
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            slope = power(K.gamma * slope_of[i, j] + K.c, K.degree - 1, real(1))
            slope_of[i, j] = K.gamma * G[i, j] * real(K.degree) * slope
    return np.dot(slope_of, b)
