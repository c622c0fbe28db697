"""SMO on a working set, compiled.

Maxima are sought in ``LANES`` places at once, each among every LANES-th number: such loops compute several at
a time, which those for a single maximum do not. What must not be chosen is infinitely far: the compiler may
rearrange sums, but not assume that there are no infinities (see ``jit.OPTIONS``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nsvm_cli.engines.numba.jit import jit
from nsvm_cli.engines.numba.kernel_rows import LANES, Matrix, distant_row
from nsvm_cli.trainers.dual import TAU


def smo(matrix: Matrix, f: Any, y: Any, a: Any, C: Any, tol: float, share: float, most: int) -> int:
    """Take at most so many steps, until the gap is below tol or this share of the first; return how many.

    See ``nsvm_cli.trainers.dual.smo_step``. f, which is padded too, and a are changed.
    """
    up, low = np.full_like(f, np.inf), np.full_like(f, np.inf)
    for k in range(len(y)):
        _set(k, 0.0, False, y, a, C, up, low)
    rises, gains = np.empty_like(f), np.empty_like(f)
    rise, fall, gain = np.empty(LANES, f.dtype), np.empty(LANES, f.dtype), np.empty(LANES, f.dtype)
    x, K_i, K_j = np.float64(0), _row(matrix, 0), _row(matrix, 0)
    for step in range(most):
        _move(f, K_i, K_j, f.dtype.type(x), up, low, rises, rise, fall)
        i = _where(rises, rise)
        gap = fall.max() + rises[i]
        if step == 0:
            tol = max(tol, share * gap)
        if not gap >= tol:
            return step
        K_i = _row(matrix, i)
        _gain(f, low, K_i, matrix.diagonal, i, gains, gain)
        j = _where(gains, gain)
        K_j = _row(matrix, j)
        q = max(np.float64(matrix.diagonal[i]) + matrix.diagonal[j] - 2 * np.float64(K_i[j]), TAU)
        room_i, room_j = C[i] - a[i] if y[i] > 0 else a[i], a[j] if y[j] > 0 else C[j] - a[j]
        x = min((np.float64(f[j]) - f[i]) / q, room_i, room_j)
        _set(i, y[i] * x, x == room_i, y, a, C, up, low)
        _set(j, -y[j] * x, x == room_j, y, a, C, up, low)
    return most


@jit
def _row(matrix: Matrix, i: int) -> Any:
    """Return row i of K, which is computed unless that is done."""
    if not matrix.there[i]:
        distant_row(matrix.z[i], matrix.columns, matrix.K[i])
        matrix.K[i, matrix.size :] = 0
        matrix.there[i] = True
    return matrix.K[i]


@jit
def _set(k: int, change: float, reaches: bool, y: Any, a: Any, C: Any, up: Any, low: Any) -> None:
    """Change a_k, exactly to its bound if it reaches that.

    up_k is 0 if then y_k a_k may go up, and low_k if it may go down; otherwise these are infinite.
    """
    a[k] = (C[k] if change > 0 else 0.0) if reaches else min(max(a[k] + change, 0.0), C[k])
    more, less = 0.0 if a[k] < C[k] else np.inf, 0.0 if a[k] > 0 else np.inf
    up[k], low[k] = (more, less) if y[k] > 0 else (less, more)


@jit
def _move(f: Any, K_i: Any, K_j: Any, x: Any, up: Any, low: Any, rises: Any, rise: Any, fall: Any) -> None:
    """Add x (K_i - K_j) to f. Find, by lanes, the maxima of -f over up and of f over low."""
    rise[:] = fall[:] = -np.inf
    for begin in range(0, len(f), LANES):
        f_s, up_s, low_s = f[begin : begin + LANES], up[begin : begin + LANES], low[begin : begin + LANES]
        K_is, K_js, r = K_i[begin : begin + LANES], K_j[begin : begin + LANES], rises[begin : begin + LANES]
        for k in range(LANES):
            v = f_s[k] + x * (K_is[k] - K_js[k])
            f_s[k], r[k], falls = v, -v - up_s[k], v - low_s[k]
            rise[k] = r[k] if r[k] > rise[k] else rise[k]
            fall[k] = falls if falls > fall[k] else fall[k]


@jit
def _gain(f: Any, low: Any, K_i: Any, diagonal: Any, i: int, gains: Any, gain: Any) -> None:
    """Compute b_k^2 / q_k for every k in low, and its maximum by lanes."""
    zero, two, tau = f.dtype.type(0), K_i.dtype.type(2), K_i.dtype.type(TAU)
    first, K_ii = f[i], diagonal[i]
    gain[:] = -np.inf
    for begin in range(0, len(f), LANES):
        f_s, low_s, g = f[begin : begin + LANES], low[begin : begin + LANES], gains[begin : begin + LANES]
        K_is, K_ss = K_i[begin : begin + LANES], diagonal[begin : begin + LANES]
        for k in range(LANES):
            b, q = f_s[k] - low_s[k] - first, K_ii + K_ss[k] - two * K_is[k]
            b, q = b if b > zero else zero, q if q > tau else tau
            g[k] = b * b / q
            gain[k] = g[k] if g[k] > gain[k] else gain[k]


@jit
def _where(values: Any, maxima: Any) -> Any:
    """Return where values are greatest, given the maxima of the lanes."""
    best = maxima.argmax()
    for k in range(best, len(values), LANES):
        if values[k] > values[best]:
            best = k
    return best
