"""The kernel of few samples and features that stay as they are: values, sums and gradients, compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nsvm_cli.engines.numba.arrays import add_matrix, inner
from nsvm_cli.engines.numba.forms import RBF, FarRBF
from nsvm_cli.engines.numba.jit import by_type, jit, jit_in_order
from nsvm_cli.engines.numba.kernels import COLUMNS, gradient, of_products, squared_lengths, sums, values


class FeatureColumns(NamedTuple):
    """Features that stay as they are, and their squared lengths, unless the kernel shifts them.

    ``z`` has blocks of ``COLUMNS`` columns, so that a block lies together: for few rows, to rearrange factors
    would take longer than to multiply them.
    """

    z: np.ndarray
    squares: np.ndarray


@jit
def columns_of(z: Any, room: int) -> FeatureColumns:
    """Return the rows of z as columns, with room for others."""
    blocks = (room + COLUMNS - 1) // COLUMNS
    z_of_blocks = np.empty((blocks, z.shape[1], COLUMNS), z.dtype)
    columns = FeatureColumns(z_of_blocks, np.empty((blocks, COLUMNS), z.dtype))
    for j in range(len(z)):
        set_column(columns, j, z[j])
    return columns


@jit
def set_column(b: FeatureColumns | None, j: int, z: Any) -> None:
    """Let column j be the features z, if there are columns."""
    if b is None:
        return
    block, column = divmod(j, COLUMNS)
    for k in range(len(z)):
        b.z[block, k, column] = z[k]
    b.squares[block, column] = _squared_length(z)


@jit_in_order
def _squared_length(z: Any) -> Any:
    square = z.dtype.type(0)
    for k in range(len(z)):
        square += z[k] * z[k]
    return square


@jit
def centre(K: RBF, a: Any, b: FeatureColumns, count: int) -> Any:
    """Set the squared lengths of the first columns of b's first block, after a shift if K needs one.

    Returns the rows of a, shifted alike: their distances stay as they are.
    """
    real, z = a.dtype.type, b.z[0]
    a, squares = a.copy(), b.squares[0]
    for j in range(count):
        squares[j] = real(0)
    for k in range(len(z)):
        shift(K, a, z, k, count)
        for j in range(count):
            squares[j] += z[k, j] * z[k, j]
    return a


@by_type
@jit
def shift(K: RBF, a: Any, z: Any, k: int, count: int) -> None:
    """Shift feature k of the rows of a and of the first columns of z, if that keeps digits."""


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


@jit
def products_with(a: Any, b: Any, block: int, count: int) -> Any:
    """Return <a_i, b_j> for the first columns of a block, four features and four rows at a time.

    Here and below, arrays are passed whole, with numbers of rows: a row by itself would be a new reference to
    count, which takes as long as some hundred products.
    """
    rows, n = a.shape
    P = np.empty((rows, count), a.dtype)
    if n < 4:
        P[:] = 0
    else:
        _add_4_features(P, None, a, 0, b, block)
    for k in range(4, n - 3, 4):
        _add_4_features(P, 1, a, k, b, block)
    for k in range(n - n % 4, n):
        for i in range(rows):
            factor = a[i, k]
            for j in range(count):
                P[i, j] += factor * b[block, k, j]
    return P


@jit
def _add_4_features(P: Any, begun: Any, a: Any, k: int, b: Any, block: int) -> None:
    """Add the products of four features to P, or if ``begun`` is None, write them.

    As None has a type of its own, these are compiled apart, and their loops do not ask which it is.
    """
    rows = len(a)
    for i in range(0, rows - 3, 4):
        _add_4_products(P, begun, i, a, k, b, block)
    for i in range(rows - rows % 4, rows):
        _add_products(P, begun, i, a, k, b, block)


@jit
def _sum(begun: Any, before: Any, more: Any) -> Any:
    return more if begun is None else before + more


@jit
def _add_products(P: Any, begun: Any, i: int, a: Any, k: int, b: Any, block: int) -> None:
    a_0, a_1, a_2, a_3 = a[i, k], a[i, k + 1], a[i, k + 2], a[i, k + 3]
    for j in range(P.shape[1]):
        c_0, c_1, c_2, c_3 = b[block, k, j], b[block, k + 1, j], b[block, k + 2, j], b[block, k + 3, j]
        P[i, j] = _sum(begun, P[i, j], a_0 * c_0 + a_1 * c_1 + a_2 * c_2 + a_3 * c_3)


@jit
def _add_4_products(P: Any, begun: Any, i: int, a: Any, k: int, b: Any, block: int) -> None:
    # as numbers, they stay in registers
    p_0, p_1, p_2, p_3 = a[i, k], a[i, k + 1], a[i, k + 2], a[i, k + 3]
    q_0, q_1, q_2, q_3 = a[i + 1, k], a[i + 1, k + 1], a[i + 1, k + 2], a[i + 1, k + 3]
    r_0, r_1, r_2, r_3 = a[i + 2, k], a[i + 2, k + 1], a[i + 2, k + 2], a[i + 2, k + 3]
    s_0, s_1, s_2, s_3 = a[i + 3, k], a[i + 3, k + 1], a[i + 3, k + 2], a[i + 3, k + 3]
    for j in range(P.shape[1]):
        c_0, c_1, c_2, c_3 = b[block, k, j], b[block, k + 1, j], b[block, k + 2, j], b[block, k + 3, j]
        P[i, j] = _sum(begun, P[i, j], p_0 * c_0 + p_1 * c_1 + p_2 * c_2 + p_3 * c_3)
        P[i + 1, j] = _sum(begun, P[i + 1, j], q_0 * c_0 + q_1 * c_1 + q_2 * c_2 + q_3 * c_3)
        P[i + 2, j] = _sum(begun, P[i + 2, j], r_0 * c_0 + r_1 * c_1 + r_2 * c_2 + r_3 * c_3)
        P[i + 3, j] = _sum(begun, P[i + 3, j], s_0 * c_0 + s_1 * c_1 + s_2 * c_2 + s_3 * c_3)


@jit
def column_values(K: RBF, a: Any, b: FeatureColumns, block: int, count: int) -> Any:
    """Return K(a_i, b_j) for the first columns of a block."""
    P = products_with(a, b.z, block, count)
    of_products(K, P, squared_lengths(a), b.squares[block])
    return P


@jit
def column_sums(K: RBF, a: Any, b: FeatureColumns, w: Any) -> Any:
    """Return sum_j w_j K(b_j, a_i) for every i, of shape (p, C), for w of shape (q, C)."""
    out, numbers = np.zeros((a.shape[0], w.shape[1]), a.dtype), w.reshape(-1)
    for begin in range(0, len(w), COLUMNS):
        end = min(begin + COLUMNS, len(w))
        P = column_values(K, a, b, begin // COLUMNS, end - begin)
        if w.shape[1] == 1:
            of_block = numbers[begin:end]
            for i in range(len(a)):
                total = a.dtype.type(0)
                for j in range(len(of_block)):
                    total += P[i, j] * of_block[j]
                out[i, 0] += total
        else:
            add_matrix(out, np.dot(P, w[begin:end]))
    return out


@jit
def column_gradient(K: RBF, a: Any, b: FeatureColumns, block: int, K_ab: Any, G: Any, out: Any) -> None:
    """Add the gradient of sum_ij G_ij K(a_i, b_j) with respect to a, given K_ab = K(a_i, b_j), to ``out``.

    The sum is over the first columns of a block. It overwrites G.
    """
    factor = a.dtype.type(2) * K.gamma
    for i in range(len(a)):
        total = a.dtype.type(0)
        for j in range(G.shape[1]):
            G[i, j] *= factor * K_ab[i, j]
            total += G[i, j]
        for k in range(a.shape[1]):
            by_a = a.dtype.type(0)
            for j in range(G.shape[1]):
                by_a += G[i, j] * b.z[block, k, j]
            out[i, k] += by_a - total * a[i, k]


@by_type
@jit
def term_columns(K: RBF, z_s: Any, room: int) -> Any:
    """Return the features of the terms as columns, with room for others, or None if K does without."""
    return columns_of(z_s, room)


@term_columns.register(FarRBF)
@jit
def _(K: FarRBF, z_s: Any, room: int) -> None:
    return None


@jit
def term_sums(K: RBF, z: Any, z_s: Any, columns: FeatureColumns | None, alpha_s: Any) -> Any:
    """Return sum_s alpha_s K(z_s, z_i) for every i."""
    if columns is None:
        return sums(K, z, z_s, alpha_s)
    return column_sums(K, z, columns, alpha_s)


@jit
def add_term_gradient(
    K: RBF, z: Any, z_s: Any, columns: FeatureColumns | None, begin: int, end: int, c: Any, by_z: Any
) -> Any:
    """Return sum_is c_is K(z_i, z_s) over these terms, and add its gradient with respect to z to ``by_z``."""
    if columns is None:
        K_ts = values(K, z, z_s[begin:end])
        add_matrix(by_z, gradient(K, z, z_s[begin:end], K_ts, c))
        return inner(K_ts, c)
    K_ts = column_values(K, z, columns, begin // COLUMNS, end - begin)
    value = inner(K_ts, c)
    column_gradient(K, z, columns, begin // COLUMNS, K_ts, c, by_z)
    return value
