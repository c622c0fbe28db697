"""The Laplacian kernel, compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nsvm_cli.engines.numba.exponential import of_exponents, rate_of
from nsvm_cli.engines.numba.forms import Real
from nsvm_cli.engines.numba.jit import jit
from nsvm_cli.engines.numba.kernels.base import gradient, values
from nsvm_cli.engines.numba.kernels.columns import Columns, column_gradient, column_values


class Laplacian(NamedTuple):
    """The kernel."""

    gamma: Real
    bias: Real


@values.register(Laplacian)
@jit
def _(K: Laplacian, a: Any, b: Any) -> Any:
    P, rate = np.empty((a.shape[0], b.shape[0]), a.dtype), rate_of(K)
    for i in range(P.shape[0]):
        for j in range(P.shape[1]):
            distance = a.dtype.type(0)
            for k in range(a.shape[1]):
                distance += abs(a[i, k] - b[j, k])
            P[i, j] = rate * distance
        of_exponents(K, P, i)
    return P


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


@column_values.register(Laplacian)
@jit
def _(K: Laplacian, a: Any, b: Columns, block: int, count: int) -> Any:
    P, columns, rate = np.zeros((len(a), count), a.dtype), b.z, rate_of(K)
    for i in range(len(a)):
        for k in range(a.shape[1]):
            value = a[i, k]
            for j in range(count):
                P[i, j] += rate * abs(value - columns[block, k, j])
        of_exponents(K, P, i)
    return P


@column_gradient.register(Laplacian)
@jit
def _(K: Laplacian, a: Any, b: Columns, block: int, K_ab: Any, G: Any, out: Any) -> None:
    columns = b.z
    for i in range(len(a)):
        for j in range(G.shape[1]):
            G[i, j] *= -K.gamma * (K_ab[i, j] - K.bias)
        for k in range(a.shape[1]):
            value, by_a = a[i, k], a.dtype.type(0)
            for j in range(G.shape[1]):
                by_a += G[i, j] * np.sign(value - columns[block, k, j])
            out[i, k] += by_a
