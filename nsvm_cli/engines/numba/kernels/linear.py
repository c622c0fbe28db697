"""The linear kernel, compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nsvm_cli.engines.numba.forms import Real
from nsvm_cli.engines.numba.jit import jit
from nsvm_cli.engines.numba.kernels.base import gradient, of_products
from nsvm_cli.engines.numba.kernels.columns import Columns, add_columns, column_gradient


class Linear(NamedTuple):
    """The kernel."""

    bias: Real


@of_products.register(Linear)
@jit
def _(K: Linear, P: Any, square_a: Any, square_b: Any) -> None:
    for i in range(P.shape[0]):
        for j in range(P.shape[1]):
            P[i, j] += K.bias


@gradient.register(Linear)
@jit
def _(K: Linear, a: Any, b: Any, K_ab: Any, G: Any) -> Any:
    return np.dot(G, b)


@column_gradient.register(Linear)
@jit
def _(K: Linear, a: Any, b: Columns, block: int, K_ab: Any, G: Any, out: Any) -> None:
    for i in range(len(a)):
        add_columns(a, b.z, block, G, i, a.dtype.type(0), out)
