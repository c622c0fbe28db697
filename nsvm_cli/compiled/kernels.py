"""Kernels, compiled: values, their sums over support vectors, and gradients."""

from __future__ import annotations

import inspect
import math
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from nsvm_cli.compiled.forms import LAPLACIAN, LINEAR, POLYNOMIAL, RBF, Kernel
from nsvm_cli.compiled.jit import FAST, compiled

COLUMNS = 768
"""Support vectors whose kernel values are computed at a time, so that they stay in a core's cache."""

SERIES = tuple(math.log(2) ** n / math.factorial(n) for n in range(14))
"""The Taylor series of 2^x at 0."""

SHORT = 8
"""Terms of the series that float32 needs for x in [-1/2, 1/2]; float64 needs them all."""


@intrinsic
def _float32_of_bits(context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic
def _float64_of_bits(context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


def _exp2_float32(x: Any) -> Any:
    whole = np.int32(x - np.float32(0.5))  # rounds towards 0: to the nearest
    f = x - np.float32(whole)
    p = np.float32(SERIES[SHORT - 1])
    for n in range(SHORT - 2, -1, -1):
        p = p * f + np.float32(SERIES[n])
    power: Any = _float32_of_bits((whole + np.int32(127)) << np.int32(23))  # type: ignore[call-arg]
    return p * power if x > np.float32(-126) else np.float32(0) if x <= np.float32(-126) else x


def _exp2_float64(x: Any) -> Any:
    whole = np.int64(x - 0.5)
    f = x - np.float64(whole)
    p = SERIES[13]
    for n in range(12, -1, -1):
        p = p * f + SERIES[n]
    power: Any = _float64_of_bits((whole + np.int64(1023)) << np.int64(52))  # type: ignore[call-arg]
    return p * power if x > -1022.0 else 0.0 if x <= -1022.0 else x


def _exp2(x: Any) -> Any:
    """Return 2^x for x <= 0: 0 where that is not a normal number, NaN for NaN.

    Unlike that of the standard library, loops over it compute several at a time.
    """
    raise NotImplementedError("for compiled functions")


@overload(_exp2, jit_options={"fastmath": FAST, "error_model": "numpy"})
def _exp2_of_type(x: Any) -> Any:
    return inspect.unwrap(_exp2_float32 if x == types.float32 else _exp2_float64)  # see jit


@compiled
def _squares(a: Any) -> Any:
    out = np.empty(a.shape[0], a.dtype)
    for i in range(a.shape[0]):
        square = a.dtype.type(0)
        for k in range(a.shape[1]):
            square += a[i, k] * a[i, k]
        out[i] = square
    return out


@compiled
def _mean(b: Any) -> Any:
    origin = np.zeros(b.shape[1], b.dtype)
    for j in range(b.shape[0]):
        for k in range(b.shape[1]):
            origin[k] += b[j, k]
    return origin / b.dtype.type(b.shape[0])


@compiled
def _shifted(a: Any, origin: Any) -> Any:
    out = np.empty(a.shape, a.dtype)
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            out[i, k] = a[i, k] - origin[k]
    return out


FEW = 2**13
"""Values of K_ij and its features up to which, or for a single row, an RBF kernel that needs a shift gets
differences of features rather than products, as on torch: these cannot cancel."""


@compiled
def _by_differences(K: Kernel, a: Any, b: Any) -> bool:
    few = min(len(a), len(b)) == 1 or len(a) * len(b) * a.shape[1] <= FEW
    return bool(K.kind == RBF and K.shift and few)


@compiled
def values(K: Kernel, a: Any, b: Any) -> Any:
    """Return K(a_i, b_j) for all i, j."""
    if _by_differences(K, a, b):
        P, no_squares = _squared_distances(a, b), a[0, :0]
        of_products(K, P, no_squares, no_squares)
        return P
    if K.kind == LAPLACIAN:
        P = np.empty((a.shape[0], b.shape[0]), a.dtype)
        for i in range(P.shape[0]):
            for j in range(P.shape[1]):
                distance = a.dtype.type(0)
                for k in range(a.shape[1]):
                    distance += abs(a[i, k] - b[j, k])
                P[i, j] = distance
    else:
        if K.shift:
            origin = _mean(b)
            a, b = _shifted(a, origin), _shifted(b, origin)
        P = np.dot(a, b.T)
    of_products(K, P, _squares(a), _squares(b))
    return P


@compiled
def _squared_distances(a: Any, b: Any) -> Any:
    P = np.empty((a.shape[0], b.shape[0]), a.dtype)
    for i in range(P.shape[0]):
        for j in range(P.shape[1]):
            square = a.dtype.type(0)
            for k in range(a.shape[1]):
                square += (a[i, k] - b[j, k]) ** 2
            P[i, j] = square
    return P


@compiled
def of_products(K: Kernel, P: Any, square_a: Any, square_b: Any) -> None:
    """Replace <a_i, b_j>, or for the Laplacian kernel ||a_i - b_j||_1, by K(a_i, b_j).

    For the RBF kernel without squared lengths, replace ||a_i - b_j||^2.
    """
    real = P.dtype.type
    rate = real(-K.gamma / math.log(2))  # exp(x) = 2^(x / ln 2)
    for i in range(P.shape[0]):
        if K.kind == RBF and len(square_b) > 0:
            square = square_a[i]
            for j in range(P.shape[1]):
                distance = square + square_b[j] - real(2) * P[i, j]
                P[i, j] = rate * (distance if not distance < real(0) else real(0))
        elif K.kind == RBF or K.kind == LAPLACIAN:
            for j in range(P.shape[1]):
                P[i, j] *= rate
        elif K.kind == POLYNOMIAL:
            for j in range(P.shape[1]):
                P[i, j] = _power(K.gamma * P[i, j] + K.c, K.degree, real(1))
        if K.kind == RBF or K.kind == LAPLACIAN:
            for j in range(P.shape[1]):
                P[i, j] = _exp2(P[i, j])
        if K.bias != real(0):
            for j in range(P.shape[1]):
                P[i, j] += K.bias


@compiled
def _power(x: Any, n: int, one: Any) -> Any:
    result = one
    while n > 0:
        if n & 1:
            result *= x
        x *= x
        n >>= 1
    return result


@compiled
def sums(K: Kernel, a: Any, b: Any, w: Any) -> Any:
    """Return sum_j w_j K(b_j, a_i) for every i, of shape (p, C), for w of shape (q, C)."""
    out = np.zeros((a.shape[0], w.shape[1]), a.dtype)
    for begin in range(0, b.shape[0], COLUMNS):
        end = min(begin + COLUMNS, b.shape[0])
        out += np.dot(values(K, a, b[begin:end]), w[begin:end])
    return out


@compiled
def gradient(K: Kernel, a: Any, b: Any, K_ab: Any, G: Any) -> Any:
    """Return the gradient of sum_ij G_ij K(a_i, b_j) with respect to a, given K_ab = K(a_i, b_j)."""
    real = a.dtype.type
    if K.kind == RBF:
        return _gradient_rbf(K, a, b, K_ab, G)
    if K.kind == LAPLACIAN:
        out = np.zeros_like(a)
        for i in range(a.shape[0]):
            for j in range(b.shape[0]):
                slope = -K.gamma * G[i, j] * (K_ab[i, j] - K.bias)
                for k in range(a.shape[1]):
                    out[i, k] += slope * np.sign(a[i, k] - b[j, k])
        return out
    if K.kind == LINEAR:
        return np.dot(G, b)
    slope_of = np.dot(a, b.T)
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            power = _power(K.gamma * slope_of[i, j] + K.c, K.degree - 1, real(1))
            slope_of[i, j] = K.gamma * G[i, j] * real(K.degree) * power
    return np.dot(slope_of, b)


@compiled
def _gradient_rbf(K: Kernel, a: Any, b: Any, K_ab: Any, G: Any) -> Any:
    real = a.dtype.type
    GK = np.empty_like(K_ab)
    for i in range(GK.shape[0]):
        for j in range(GK.shape[1]):
            GK[i, j] = real(2) * K.gamma * G[i, j] * (K_ab[i, j] - K.bias)
    if _by_differences(K, a, b):
        out = np.zeros_like(a)
        for i in range(a.shape[0]):
            for j in range(b.shape[0]):
                for k in range(a.shape[1]):
                    out[i, k] += GK[i, j] * (b[j, k] - a[i, k])
        return out
    if K.shift:
        origin = _mean(b)
        a, b = _shifted(a, origin), _shifted(b, origin)
    out = np.dot(GK, b)
    for i in range(a.shape[0]):
        total = real(0)
        for j in range(b.shape[0]):
            total += GK[i, j]
        for k in range(a.shape[1]):
            out[i, k] -= total * a[i, k]
    return out


class Columns(NamedTuple):
    """Features that stay as they are, and their squared lengths, for kernels that do not ``shift``.

    ``z`` has blocks of ``COLUMNS`` columns, so that a block lies together: for few rows, to rearrange factors
    would take longer than to multiply them.
    """

    z: np.ndarray
    squares: np.ndarray


@compiled
def columns_of(z: Any, room: int) -> Columns:
    """Return the rows of z as columns, with room for others."""
    blocks = (room + COLUMNS - 1) // COLUMNS
    z_of_blocks = np.empty((blocks, z.shape[1], COLUMNS), z.dtype)
    columns = Columns(z_of_blocks, np.empty((blocks, COLUMNS), z.dtype))
    for j in range(len(z)):
        set_column(columns, j, z[j])
    return columns


@compiled
def set_column(b: Columns, j: int, z: Any) -> None:
    """Let column j be the features z."""
    block, column = divmod(j, COLUMNS)
    square = z.dtype.type(0)
    for k in range(len(z)):
        b.z[block, k, column] = z[k]
        square += z[k] * z[k]
    b.squares[block, column] = square


@compiled
def centre(K: Kernel, a: Any, b: Columns, count: int) -> Any:
    """Set the squared lengths of the first columns of b's first block, after a shift if K needs one.

    Returns the rows of a, shifted alike: their distances stay as they are.
    """
    real, z = a.dtype.type, b.z[0]
    a, squares = a.copy(), b.squares[0]
    squares[:count] = real(0)
    for k in range(len(z)):
        if K.shift:
            origin = real(0)
            for j in range(count):
                origin += z[k, j]
            origin /= real(count)
            for j in range(count):
                z[k, j] -= origin
            for i in range(len(a)):
                a[i, k] -= origin
        for j in range(count):
            squares[j] += z[k, j] * z[k, j]
    return a


@compiled
def _products(a: Any, b: Any, block: int, count: int) -> Any:
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


@compiled
def _add_4_features(P: Any, begun: Any, a: Any, k: int, b: Any, block: int) -> None:
    """Add the products of four features to P, or if ``begun`` is None, write them.

    As None has a type of its own, these are compiled apart, and their loops do not ask which it is.
    """
    rows = len(a)
    for i in range(0, rows - 3, 4):
        _add_4_products(P, begun, i, a, k, b, block)
    for i in range(rows - rows % 4, rows):
        _add_products(P, begun, i, a, k, b, block)


@compiled
def _sum(begun: Any, before: Any, more: Any) -> Any:
    return more if begun is None else before + more


@compiled
def _add_products(P: Any, begun: Any, i: int, a: Any, k: int, b: Any, block: int) -> None:
    a_0, a_1, a_2, a_3 = a[i, k], a[i, k + 1], a[i, k + 2], a[i, k + 3]
    for j in range(P.shape[1]):
        c_0, c_1, c_2, c_3 = b[block, k, j], b[block, k + 1, j], b[block, k + 2, j], b[block, k + 3, j]
        P[i, j] = _sum(begun, P[i, j], a_0 * c_0 + a_1 * c_1 + a_2 * c_2 + a_3 * c_3)


@compiled
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


@compiled
def column_values(K: Kernel, a: Any, b: Columns, block: int, count: int) -> Any:
    """Return K(a_i, b_j) for the first columns of a block."""
    if K.kind == LAPLACIAN:
        P, columns = np.zeros((len(a), count), a.dtype), b.z
        for i in range(len(a)):
            for k in range(a.shape[1]):
                value = a[i, k]
                for j in range(count):
                    P[i, j] += abs(value - columns[block, k, j])
    else:
        P = _products(a, b.z, block, count)
    of_products(K, P, _squares(a), b.squares[block])
    return P


@compiled
def column_sums(K: Kernel, a: Any, b: Columns, w: Any) -> Any:
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
            out += np.dot(P, w[begin:end])
    return out


@compiled
def column_gradient(K: Kernel, a: Any, b: Columns, block: int, K_ab: Any, G: Any, out: Any) -> None:
    """Add the gradient of sum_ij G_ij K(a_i, b_j) with respect to a, given K_ab = K(a_i, b_j), to ``out``.

    The sum is over the first columns of a block. It overwrites G.
    """
    real = a.dtype.type
    count, columns = G.shape[1], b.z
    slopes = _products(a, columns, block, count) if K.kind == POLYNOMIAL else K_ab
    for i in range(len(a)):
        total = real(0)
        if K.kind == RBF:
            factor = real(2) * K.gamma
            for j in range(count):
                G[i, j] *= factor * (slopes[i, j] - K.bias)
                total += G[i, j]
        elif K.kind == LAPLACIAN:
            for j in range(count):
                G[i, j] *= -K.gamma * (slopes[i, j] - K.bias)
        elif K.kind == POLYNOMIAL:
            factor = K.gamma * real(K.degree)
            for j in range(count):
                G[i, j] *= factor * _power(K.gamma * slopes[i, j] + K.c, K.degree - 1, real(1))
        for k in range(a.shape[1]):
            value, by_a = a[i, k], real(0)
            if K.kind == LAPLACIAN:
                for j in range(count):
                    by_a += G[i, j] * np.sign(value - columns[block, k, j])
            else:
                for j in range(count):
                    by_a += G[i, j] * columns[block, k, j]
            out[i, k] += by_a - total * value
