"""The polynomial kernel, compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nsvm_cli.engines.numba.forms import Real
from nsvm_cli.engines.numba.jit import jit
from nsvm_cli.engines.numba.kernels.base import gradient, of_products
from nsvm_cli.engines.numba.kernels.columns import Columns, add_columns, column_gradient, products_with


class Polynomial(NamedTuple):
    """The kernel."""

    gamma: Real
    c: Real
    degree: int
    bias: Real


@of_products.register(Polynomial)
@jit
def _(K: Polynomial, P: Any, square_a: Any, square_b: Any) -> None:
    for i in range(P.shape[0]):
        for j in range(P.shape[1]):
            P[i, j] = _power(K.gamma * P[i, j] + K.c, K.degree, P.dtype.type(1)) + K.bias


@jit
def _power(x: Any, n: int, one: Any) -> Any:
    result = one
    while n > 0:
        if n & 1:
            result *= x
        x *= x
        n >>= 1
    return result


@gradient.register(Polynomial)
@jit
def _(K: Polynomial, a: Any, b: Any, K_ab: Any, G: Any) -> Any:
    real, slope_of = a.dtype.type, np.dot(a, b.T)
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            slope = _power(K.gamma * slope_of[i, j] + K.c, K.degree - 1, real(1))
            slope_of[i, j] = K.gamma * G[i, j] * real(K.degree) * slope
    return np.dot(slope_of, b)


@column_gradient.register(Polynomial)
@jit
def _(K: Polynomial, a: Any, b: Columns, block: int, K_ab: Any, G: Any, out: Any) -> None:
    real = a.dtype.type
    products, factor = products_with(a, b.z, block, G.shape[1]), K.gamma * real(K.degree)
    for i in range(len(a)):
        for j in range(G.shape[1]):
            G[i, j] *= factor * _power(K.gamma * products[i, j] + K.c, K.degree - 1, real(1))
        add_columns(a, b.z, block, G, i, real(0), out)
