"""Powers of two, and operations on all elements of arrays and on rows, compiled.

Numpy's operations would bring along what words their errors, which takes longer to compile than what they do.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from nsvm_cli.engines.numba.jit import OPTIONS, jit

SERIES = tuple(math.log(2) ** n / math.factorial(n) for n in range(14))
"""The Taylor series of 2^x at 0. For x in [-1/2, 1/2], float32 needs eight of its terms, float64 all."""


def exp2(x: Any) -> Any:
    """Return 2^x for x <= 0: 0 where that is not a normal number, NaN for NaN.

    Unlike that of the standard library, loops over it compute several at a time.
    """
    raise NotImplementedError("for compiled functions")


@overload(exp2, jit_options=OPTIONS)
def _exp2_of_type(x: Any) -> Any:
    single, double = (np.float32, np.int32, 8, 23, 127), (np.float64, np.int64, 14, 52, 1023)
    layout: Any = single if x == types.float32 else double
    real, integer, terms, mantissa, bias = layout
    lowest = real(1 - bias)

    def power(x: Any) -> Any:
        whole = integer(x - real(0.5))  # rounds towards 0: to the nearest
        f = x - real(whole)
        p = real(SERIES[terms - 1])
        for n in range(terms - 2, -1, -1):
            p = p * f + real(SERIES[n])
        of_whole = integer((whole + integer(bias)) << integer(mantissa)).view(real)
        return p * of_whole if x > lowest else real(0) if x <= lowest else x

    return inspect.unwrap(power)  # see jit


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
    """Multiply A by a factor of its type."""
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            A[i, j] *= factor


@jit
def set_row(out: Any, i: int, A: Any, j: int) -> None:
    """Let row i of ``out`` be row j of A."""
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
    """Return the rows i of x times a factor, in the type of ``like``."""
    out = np.empty((len(i), x.shape[1]), like.dtype)
    for row in range(len(i)):
        for k in range(x.shape[1]):
            out[row, k] = x[i[row], k] * factor
    return out
