"""Coefficients of samples and batches of them, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from nsvm_cli.engines.numba.forms import Support
from nsvm_cli.engines.numba.jit import jit


@jit
def rows_of(x: Any, i: Any) -> Any:
    """Return x_i for the samples i."""
    out = np.empty((len(i), x.shape[1]), x.dtype)
    for row in range(len(i)):
        for k in range(x.shape[1]):
            out[row, k] = x[i[row], k]
    return out


@jit
def alpha_of(support: Support, i: Any, like: Any) -> Any:
    """Return alpha_i for the samples i, in the type of ``like``."""
    C = support.alpha.shape[1]
    out = np.empty((len(i), C), like.dtype)
    for row in range(len(i)):
        for r in range(C):
            out[row, r] = support.alpha[i[row], r]
    return out


@jit
def acting(steps: Any, count: int) -> Any:
    """Return the rows of the ``count`` steps that are not 0."""
    rows, found = np.empty(count, np.int64), 0
    for row in range(len(steps)):
        if steps[row].any():
            rows[found] = row
            found += 1
    return rows


@jit
def scaled(steps: Any, rows: Any, factor: float, like: Any) -> Any:
    """Return these rows of the steps times a factor, in the type of ``like``."""
    out = np.empty((len(rows), steps.shape[1]), like.dtype)
    for v in range(len(rows)):
        for r in range(steps.shape[1]):
            out[v, r] = steps[rows[v], r] * factor
    return out


@jit
def add(support: Support, i: int, steps: Any, k: int) -> bool:
    """Add 1/k of an explicit step to alpha_i, and return whether i joins the support."""
    joins = not support.member[i] and steps.any()
    if joins:
        support.order[support.joined[0]] = i
        support.joined[0] += 1
        support.member[i] = True
    for r in range(len(steps)):
        support.alpha[i, r] += steps[r] / k
    return joins
