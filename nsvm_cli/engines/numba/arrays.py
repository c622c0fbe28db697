"""Compiled powers of two, operations on arrays and rows, and sums of products of rows.

NumPy's own operations take longer to compile, since they include the code for their error messages. Matrix
products and convolutions are sums of products of rows. The rows are parts of a vector, and may overlap.
Twenty products are computed at a time, to keep their factors in registers.
"""

from __future__ import annotations

import inspect
import math
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from nsvm_cli.engines.numba.jit import JIT_OPTIONS, jit

EXP2_TERMS = tuple(math.log(2) ** n / math.factorial(n) for n in range(14))
"""Taylor coefficients of 2^x at 0. For x in [-1/2, 1/2], float32 needs the first 8, and float64 all 14."""


def exp2(x: Any) -> Any:
    """Return 2^x for x <= 0, or 0 if 2^x is not a normal number. Loops over this function are vectorised."""
    raise NotImplementedError("exp2 can only be called from compiled functions")


@overload(exp2, jit_options=JIT_OPTIONS)
def _exp2_of_type(x: Any) -> Any:
    single, double = (np.float32, np.int32, 8, 23, 127), (np.float64, np.int64, 14, 52, 1023)
    layout: Any = single if x == types.float32 else double
    real, integer, terms, mantissa, bias = layout
    lowest = real(1 - bias)

    def power(x: Any) -> Any:
        whole = integer(x - real(0.5))  # int() rounds towards 0, so that x is rounded to the nearest integer
        f = x - real(whole)
        p = real(EXP2_TERMS[terms - 1])
        for n in range(terms - 2, -1, -1):
            p = p * f + real(EXP2_TERMS[n])
        of_whole = integer((whole + integer(bias)) << integer(mantissa)).view(real)
        return p * of_whole if x > lowest else real(0) if x <= lowest else x

    return inspect.unwrap(power)  # see ``jit``


@jit
def inner(A: Any, B: Any) -> Any:
    """Return sum_ij A_ij B_ij."""
    total = A.dtype.type(0)
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            total += A[i, j] * B[i, j]
    return total


@jit
def add_matrix(out: Any, A: Any) -> None:
    """Add A to the first rows of ``out``."""
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            out[i, j] += A[i, j]


@jit
def scale(A: Any, factor: Any) -> None:
    """Multiply A in place by a factor of the same type."""
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            A[i, j] *= factor


@jit
def set_row(out: Any, i: int, A: Any, j: int) -> None:
    """Copy row j of A to row i of ``out``."""
    for k in range(A.shape[1]):
        out[i, k] = A[j, k]


@jit
def rows_of(x: Any, i: Any) -> Any:
    out = np.empty((len(i), x.shape[1]), x.dtype)
    for row in range(len(i)):
        for k in range(x.shape[1]):
            out[row, k] = x[i[row], k]
    return out


@jit
def scaled_rows(x: Any, i: Any, factor: float, like: Any) -> Any:
    """Return the rows i of x, multiplied by a factor, in the dtype of ``like``."""
    out = np.empty((len(i), x.shape[1]), like.dtype)
    for row in range(len(i)):
        for k in range(x.shape[1]):
            out[row, k] = x[i[row], k] * factor
    return out


Place = np.uint64  # unsigned, so that compiled code does not check for negative indices


class RowsAt(NamedTuple):
    """Rows in the vector ``numbers``. Row i begins at index ``first`` + i ``step``."""

    numbers: Any
    first: int
    step: int


class MatrixAt(NamedTuple):
    """A matrix in the vector ``numbers``. Entry i, k has the index ``first`` + i ``down`` + k ``across``."""

    numbers: Any
    first: int
    down: int
    across: int


@jit
def add_products(out: RowsAt, W: MatrixAt, x: RowsAt, p: int, q: int, m: int) -> None:
    """Add the sum of W_ik x_k over k < q to row i of ``out``, for i < p. The rows x_k of x have m numbers."""
    full = q - q % 5
    for k in range(0, full, 5):
        for i in range(0, p - 3, 4):
            _add_20_products(out, W, x, i, k, m)
        for i in range(p - p % 4, p):
            _add_5_products(out, W, x, i, k, m)
    for k in range(full, q):
        for i in range(p):
            _add_product(out, W, x, i, k, m)


@jit
def _add_20_products(out: RowsAt, W: MatrixAt, x: RowsAt, i: int, k: int, m: int) -> None:
    a, b, c, d = _five(W, i, k), _five(W, i + 1, k), _five(W, i + 2, k), _five(W, i + 3, k)
    o, y, (at_a, at_b, at_c, at_d, _), at_y = out.numbers, x.numbers, _five_places(out, i), _five_places(x, k)
    for j in range(Place(m)):
        y_j = _five_numbers(y, at_y, j)
        o[at_a + j] += _product(a, y_j)
        o[at_b + j] += _product(b, y_j)
        o[at_c + j] += _product(c, y_j)
        o[at_d + j] += _product(d, y_j)


@jit
def _five(W: MatrixAt, i: int, k: int) -> Any:
    w, at, right = W.numbers, W.first + i * W.down + k * W.across, W.across
    return w[at], w[at + right], w[at + 2 * right], w[at + 3 * right], w[at + 4 * right]


@jit
def _five_places(x: RowsAt, k: int) -> Any:
    at, step = x.first + k * x.step, x.step
    return Place(at), Place(at + step), Place(at + 2 * step), Place(at + 3 * step), Place(at + 4 * step)


@jit
def _five_numbers(x: Any, at: Any, j: Any) -> Any:
    return x[at[0] + j], x[at[1] + j], x[at[2] + j], x[at[3] + j], x[at[4] + j]


@jit
def _product(a: Any, b: Any) -> Any:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3] + a[4] * b[4]


@jit
def _add_5_products(out: RowsAt, W: MatrixAt, x: RowsAt, i: int, k: int, m: int) -> None:
    a, o, y = _five(W, i, k), out.numbers, x.numbers
    at, at_y = Place(out.first + i * out.step), _five_places(x, k)
    for j in range(Place(m)):
        o[at + j] += _product(a, _five_numbers(y, at_y, j))


@jit
def _add_product(out: RowsAt, W: MatrixAt, x: RowsAt, i: int, k: int, m: int) -> None:
    factor, o, y = W.numbers[W.first + i * W.down + k * W.across], out.numbers, x.numbers
    at, from_k = Place(out.first + i * out.step), Place(x.first + k * x.step)
    for j in range(Place(m)):
        o[at + j] += factor * y[from_k + j]


@jit
def add_inner_products(out: MatrixAt, a: RowsAt, b: RowsAt, p: int, q: int, m: int) -> None:
    """Add <a_i, b_k> to entry i, k of ``out``, for i < p and k < q. The rows a_i and b_k have m numbers."""
    many_i, many_k = p - p % 4, q - q % 5
    for i in range(0, many_i, 4):
        for k in range(0, many_k, 5):
            _add_20_inner_products(out, a, b, i, k, m)
    for i in range(p):
        for k in range(many_k if i < many_i else 0, q):
            _add_inner_product(out, a, b, i, k, m)


@jit
def _add_20_inner_products(out: MatrixAt, a: RowsAt, b: RowsAt, i: int, k: int, m: int) -> None:
    x, y, o, right = a.numbers, b.numbers, out.numbers, out.across
    zero = x.dtype.type(0)
    p = q = r = s = zero, zero, zero, zero, zero
    (at_p, at_q, at_r, at_s, _), at_y = _five_places(a, i), _five_places(b, k)
    for j in range(Place(m)):
        y_j = _five_numbers(y, at_y, j)
        p, q = _plus(p, x[at_p + j], y_j), _plus(q, x[at_q + j], y_j)
        r, s = _plus(r, x[at_r + j], y_j), _plus(s, x[at_s + j], y_j)
    at = out.first + i * out.down + k * right
    for column in range(5):
        o[at + column * right] += p[column]
        o[at + out.down + column * right] += q[column]
        o[at + 2 * out.down + column * right] += r[column]
        o[at + 3 * out.down + column * right] += s[column]


@jit
def _plus(total: Any, x: Any, y: Any) -> Any:
    a, b, c, d, e = total
    return a + x * y[0], b + x * y[1], c + x * y[2], d + x * y[3], e + x * y[4]


@jit
def _add_inner_product(out: MatrixAt, a: RowsAt, b: RowsAt, i: int, k: int, m: int) -> None:
    x, y, total = a.numbers, b.numbers, a.numbers.dtype.type(0)
    from_a, from_b = Place(a.first + i * a.step), Place(b.first + k * b.step)
    for j in range(Place(m)):
        total += x[from_a + j] * y[from_b + j]
    out.numbers[out.first + i * out.down + k * out.across] += total
