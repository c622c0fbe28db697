"""The compiled RBF kernel: values, gradients and sums of values, with features stored as rows or columns."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from nsvm_cli.engines.numba.arrays import MatrixAt, RowsAt, add_matrix, add_products, exp2, inner
from nsvm_cli.engines.numba.forms import RBF
from nsvm_cli.engines.numba.jit import jit, jit_in_order
from nsvm_cli.models.kernels import FAR

COLUMNS = 768
"""Number of support vectors per block of kernel values. A block fits in a core's cache."""


@jit
def of_exponents(P: Any, i: int) -> None:
    """Replace each exponent P_ij in row i by the kernel value 2^P_ij."""
    for j in range(P.shape[1]):
        P[i, j] = exp2(P[i, j])


@jit
def of_products(K: RBF, P: Any, square_a: Any, square_b: Any) -> None:
    """Replace each P_ij = <a_i, b_j> by K(a_i, b_j), given the squared lengths of all a_i and b_j."""
    real = P.dtype.type
    rate = real(-K.gamma / math.log(2))  # exp(-gamma d) = 2^(rate d)
    for i in range(P.shape[0]):
        square = square_a[i]
        for j in range(P.shape[1]):
            distance = square + square_b[j] - real(2) * P[i, j]
            P[i, j] = rate * (distance if not distance < real(0) else real(0))
        of_exponents(P, i)


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


FEW_VALUES = 2**13
"""Maximum number of multiplications for which distances come from differences, to avoid cancellation."""


@jit
def _takes_differences(K: RBF, a: Any, b: Any) -> bool:
    return not K.normalized and (min(len(a), len(b)) == 1 or len(a) * len(b) * a.shape[1] <= FEW_VALUES)


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
    """Return whether features of these squared lengths are too long for products in float32; see ``FAR``."""
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
        of_exponents(P, i)
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


class FeatureColumns(NamedTuple):
    """Features as columns, in blocks of ``COLUMNS`` columns, and their squared lengths."""

    z: np.ndarray  # contiguous blocks, since rearranging factors takes longer than products with few rows
    squares: np.ndarray


@jit
def columns_of(z: Any, room: int) -> FeatureColumns:
    """Return the rows of z as columns, with memory for ``room`` columns."""
    blocks = (room + COLUMNS - 1) // COLUMNS
    z_of_blocks = np.empty((blocks, z.shape[1], COLUMNS), z.dtype)
    columns = FeatureColumns(z_of_blocks, np.empty((blocks, COLUMNS), z.dtype))
    for j in range(len(z)):
        set_column(columns, j, z[j])
    return columns


@jit
def set_column(b: FeatureColumns, j: int, z: Any) -> None:
    """Set column j to the features z."""
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
    """Centre ``count`` columns of b's first block, unless K is normalized, and set their squared lengths.

    Return the rows of a with the same shift, which leaves distances unchanged.
    """
    real, z = a.dtype.type, b.z[0]
    a, squares = a.copy(), b.squares[0]
    for j in range(count):
        squares[j] = real(0)
    for k in range(len(z)):
        origin = real(0)
        if not K.normalized:
            for j in range(count):
                origin += z[k, j]
            origin /= real(count)
        for j in range(count):
            z[k, j] -= origin
            squares[j] += z[k, j] * z[k, j]
        for i in range(len(a)):
            a[i, k] -= origin
    return a


@jit
def column_values(K: RBF, a: Any, b: FeatureColumns, block: int, count: int) -> Any:
    """Return K(a_i, b_j) for the first ``count`` columns of a block."""
    rows, n = a.shape
    if are_far(K, b.squares[block, :count]):
        return values(K, a, b.z[block, :, :count].T.copy())
    P = np.zeros((rows, count), a.dtype)
    z = RowsAt(b.z.reshape(-1), block * n * COLUMNS, COLUMNS)
    add_products(RowsAt(P.reshape(-1), 0, count), MatrixAt(a.reshape(-1), 0, n, 1), z, rows, n, count)
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
    """Add to ``out`` the gradient with respect to a of sum_ij G_ij K(a_i, b_j), and overwrite G.

    j runs over one ``block`` of b, and K_ab holds the kernel values.
    """
    factor = a.dtype.type(2) * K.gamma
    for i in range(len(a)):
        total = a.dtype.type(0)
        for j in range(G.shape[1]):
            G[i, j] *= factor * K_ab[i, j]
            total += G[i, j]
        for k in range(a.shape[1]):
            grad_a = a.dtype.type(0)
            for j in range(G.shape[1]):
                grad_a += G[i, j] * b.z[block, k, j]
            out[i, k] += grad_a - total * a[i, k]


@jit
def add_term_gradient(
    K: RBF, z: Any, z_s: Any, columns: FeatureColumns, begin: int, end: int, c: Any, grad_z: Any
) -> Any:
    """Return v, the sum of c_ij K(z_i, z_sj) over i and over begin <= j < end; add dv/dz to ``grad_z``."""
    if not K.normalized:
        K_ts = values(K, z, z_s[begin:end])
        add_matrix(grad_z, gradient(K, z, z_s[begin:end], K_ts, c))
        return inner(K_ts, c)
    K_ts = column_values(K, z, columns, begin // COLUMNS, end - begin)
    value = inner(K_ts, c)
    column_gradient(K, z, columns, begin // COLUMNS, K_ts, c, grad_z)
    return value
