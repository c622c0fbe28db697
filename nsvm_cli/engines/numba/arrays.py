"""Operations on all elements of arrays, and on rows, compiled.

Numpy's would bring along what words their errors, which takes longer to compile than what they do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nsvm_cli.engines.numba.jit import jit


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
    """Return the rows i of x."""
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
