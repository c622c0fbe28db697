"""What a kernel's compiled form may define: values and gradients; and sums, of all of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from nsvm_cli.engines.numba.elements import add_matrix
from nsvm_cli.engines.numba.forms import Kernel
from nsvm_cli.engines.numba.jit import by_type, jit

COLUMNS = 768
"""Support vectors whose kernel values are computed at a time, so that they stay in a core's cache."""


@by_type
def of_products(K: Kernel, P: Any, square_a: Any, square_b: Any) -> None:
    """Replace <a_i, b_j> by K(a_i, b_j), given the squared lengths; unless ``values`` does without."""
    raise NotImplementedError


@by_type
def gradient(K: Kernel, a: Any, b: Any, K_ab: Any, G: Any) -> Any:
    """Return the gradient of sum_ij G_ij K(a_i, b_j) with respect to a, given K_ab = K(a_i, b_j)."""
    raise NotImplementedError


@by_type
@jit
def values(K: Kernel, a: Any, b: Any) -> Any:
    """Return K(a_i, b_j) for all i, j."""
    P = np.dot(a, b.T)
    of_products(K, P, squared_lengths(a), squared_lengths(b))
    return P


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
def sums(K: Kernel, a: Any, b: Any, w: Any) -> Any:
    """Return sum_j w_j K(b_j, a_i) for every i, of shape (p, C), for w of shape (q, C)."""
    out = np.zeros((a.shape[0], w.shape[1]), a.dtype)
    for begin in range(0, b.shape[0], COLUMNS):
        end = min(begin + COLUMNS, b.shape[0])
        add_matrix(out, np.dot(values(K, a, b[begin:end]), w[begin:end]))
    return out
