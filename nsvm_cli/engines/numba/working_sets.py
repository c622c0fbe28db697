"""A solver of the dual problem by working sets: ThunderSVM's scheme (Wen et al. 2018), for one thread.

An iteration chooses a working set of variables that violate optimality most. Half of them are new. It solves
the problem in these variables by SMO, and updates g with the kernel rows of the variables that changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from nsvm_cli.engines.numba.jit import jit, loaded
from nsvm_cli.engines.numba.kernel_rows import FEW_FEATURES, LANES, Matrix, Rows, write_difference_row
from nsvm_cli.models.kernels import RBF, kernel_sums
from nsvm_cli.trainers.dual import HUGE, MOST, REFRESHES, TAU, Dual, DualState, Optimality, regression

SMALLEST, LARGEST, MOST_MOVABLE = 64, 1024, 3072
"""The size of the working set doubles in each iteration, from ``SMALLEST`` up to ``LARGEST`` variables. If at
most ``MOST_MOVABLE`` variables can move and half of them are free, the working set contains them all."""

WHOLE = 2048
"""Maximum number of variables that form a single working set, if rows are computed when SMO needs them."""

REST_OF_GAP = 0.03
"""If the working set contains only some variables, SMO stops when their gap has shrunk to this fraction."""

STALLED_ITERATIONS, LEAST_GROWTH = 50, 1e-10
"""The solver gives up after ``STALLED_ITERATIONS`` iterations in which the relative growth of the dual value
was below ``LEAST_GROWTH``."""

PAIRS = 2**24
"""Number of kernel values for recomputing parts of g in one iteration, which takes a third of a second."""


@dataclass(frozen=True)
class WorkingSets:
    """A solver that reduces the gap of a dual problem to ``tol``, given the kernel rows of the samples."""

    dual: Dual
    rows: Rows
    tol: float = 1e-3

    def step(self, state: DualState) -> None:
        """Take an iteration. Once iterations no longer help, recompute g if its errors are large, or end."""
        m, now, value = self.rows.m, self.dual.optimality(state), self.dual.value(state)
        state.gap = now.last - now.first
        if state.stale:
            samples = np.arange(m - state.stale, m)[: max(LARGEST, PAIRS // m)]
            state.g[samples] = self._exact(state, samples)
            state.stale -= len(samples)
            state.best, state.since = -HUGE, state.iterations
            return
        if value > state.best + LEAST_GROWTH * abs(value):
            state.best, state.since = value, state.iterations
        can_improve = state.iterations - state.since <= STALLED_ITERATIONS and state.steps < MOST
        if state.gap >= self.tol and can_improve and state.refreshed < REFRESHES:
            state.iterations += 1
            self._descend(state, now, self._choose(state, now))
        elif state.refreshed < REFRESHES and self._drift(state, now) >= self.tol / 10:
            state.refreshed, state.stale = state.refreshed + 1, m
        elif state.refreshed < REFRESHES and self.dual.rounding(state, self.rows.z.dtype) > self.tol / 10:
            state.refreshed, state.stale = REFRESHES, m
        else:
            state.done = 1

    def _choose(self, state: DualState, now: Optimality) -> Int64[np.ndarray, " q"]:
        """Return the working set: all variables, the variables that can move, or the worst violators."""
        kept, state.kept = state.kept, np.zeros_like(state.kept)
        if len(now.f) <= (WHOLE if self.rows.lazy else LARGEST):
            return np.arange(len(now.f))
        movable = (now.up & (now.f < now.last)) | (now.low & (now.f > now.first))
        if movable.sum() <= min(MOST_MOVABLE, 2 * (now.up & now.low).sum()):
            return np.flatnonzero(movable)
        size = min(LARGEST, self.rows.most, SMALLEST << min(state.iterations - 1, 16))
        movable[kept] = False
        for end, f in ((now.up, now.f), (now.low, -now.f)):
            i, most = np.flatnonzero(end & movable), (size - kept.sum()) // 2
            worst = i[np.argpartition(f[i], most)[:most]] if len(i) > most else i
            movable[worst] = False
            state.kept[worst] = True
        return np.flatnonzero(kept | state.kept)

    def _descend(self, state: DualState, now: Optimality, chosen: Int64[np.ndarray, " q"]) -> None:
        """Solve the problem in the chosen variables, and update g."""
        rows, dual, a = self.rows, self.dual, state.alpha[chosen]
        s, y, C, D = dual.s[chosen], dual.y[chosen], dual.C[chosen], dual.D[chosen]
        matrix = rows.block(s)
        real = rows.dtype.type if np.abs(now.f[chosen]).max() < 1e5 * self.tol else np.float64
        f = np.pad(now.f[chosen], (0, matrix.K.shape[1] - len(s))).astype(real)
        tol, share = real(0.9 * self.tol), real(REST_OF_GAP if state.kept.any() else 0)
        state.steps += loaded(smo, rows.unit)(matrix, f, y, a, C, D, tol, share, 10 * max(len(a), LARGEST))
        change = y * (a - state.alpha[chosen])
        state.alpha[chosen] = a
        moved = np.flatnonzero(change)
        if np.array_equal(s, np.arange(len(state.g))):  # the block consists of whole rows
            rows.add(matrix.K, moved, change[moved], state.g)
            return
        free = np.zeros(rows.m + 1, bool)
        free[self.dual.s[now.up & now.low]] = True
        most = min(LARGEST, rows.most)
        for part in np.split(moved, range(most, len(moved), most)):
            rows.add(rows.cache, rows.slots(s[part], free), change[part], state.g)

    def _drift(self, state: DualState, now: Optimality) -> float:
        """Return the largest error of g at 32 samples that determine the gap and 32 evenly spaced samples."""
        ends = (now.up & (now.f < now.first + self.tol)) | (now.low & (now.f > now.last - self.tol))
        samples = np.append(self.dual.s[ends][:32], np.linspace(0, self.rows.m - 1, 32).astype(np.int64))
        samples = samples[samples < self.rows.m]
        return float(np.abs(self._exact(state, samples) - state.g[samples]).max())

    def _exact(self, state: DualState, i: Int64[np.ndarray, " p"]) -> Float64[np.ndarray, " p"]:
        """Return g at the samples i. In the last refresh, coefficients are rounded as in a model file."""
        z = self.rows.z
        beta = self.dual.beta(state, z.dtype if state.refreshed == REFRESHES else torch.float64)
        support = np.flatnonzero(beta)
        a, b, w = z[i].double(), z[support].double(), torch.from_numpy(beta[support]).to(z.device)
        return kernel_sums(self.rows.K, a, b, w).cpu().numpy()


def solve_small_problems(z: Float[Tensor, "m n"]) -> None:
    """Compile every function of the solver, by taking iterations that call all of them."""
    t = z[:, 0].double().numpy()
    many = z.repeat(1, FEW_FEATURES)
    for features, tol in ((z, 1e-3), (z, 1e-9), (many, 1e-3), (1e4 * many, 1e-3)):
        dual = regression(t, 0.1, np.ones(len(t)))
        WorkingSets(dual, Rows(RBF(), features, 1), tol).step(dual.start())


def smo(matrix: Matrix, f: Any, y: Any, a: Any, C: Any, D: Any, tol: float, share: float, most: int) -> int:
    """Run at most ``most`` SMO steps, until the gap is below ``tol`` or ``share`` times the initial gap.

    Update a and f (which is padded) in place, and return the number of steps. See ``dual.smo_step``.
    """
    # Loops that find a maximum in each of LANES lanes are vectorised, unlike a loop for a single maximum.
    # Variables that must not be chosen have infinite values, which ``jit.OPTIONS`` preserve.
    up, low = np.full_like(f, np.inf), np.full_like(f, np.inf)
    for k in range(len(y)):
        _set(k, 0.0, False, y, a, C, up, low)
    diagonal = matrix.diagonal.copy()
    for k in range(len(D)):
        diagonal[k] += diagonal.dtype.type(D[k])
    rises, gains = np.empty_like(f), np.empty_like(f)
    rise, fall, gain = np.empty(LANES, f.dtype), np.empty(LANES, f.dtype), np.empty(LANES, f.dtype)
    x, K_i, K_j = np.float64(0), _row(matrix, 0), _row(matrix, 0)
    for step in range(most):
        _move(f, K_i, K_j, f.dtype.type(x), up, low, rises, rise, fall)
        i = _argmax(rises, rise)
        gap = fall.max() + rises[i]
        if step == 0:
            tol = max(tol, share * gap)
        if not gap >= tol:
            return step
        K_i = _row(matrix, i)
        _gain(f, low, K_i, diagonal, i, gains, gain)
        j = _argmax(gains, gain)
        K_j = _row(matrix, j)
        q = max(np.float64(diagonal[i]) + diagonal[j] - 2 * np.float64(K_i[j]), TAU)
        room_i, room_j = C[i] - a[i] if y[i] > 0 else a[i], a[j] if y[j] > 0 else C[j] - a[j]
        x = min((np.float64(f[j]) - f[i]) / q, room_i, room_j)
        _set(i, y[i] * x, x == room_i, y, a, C, up, low)
        _set(j, -y[j] * x, x == room_j, y, a, C, up, low)
        f[i] += f.dtype.type(x * D[i])
        f[j] -= f.dtype.type(x * D[j])
    return most


@jit
def _row(matrix: Matrix, i: int) -> Any:
    """Return row i of K, after computing it if necessary."""
    if not matrix.there[i]:
        write_difference_row(matrix.z[i], matrix.columns, matrix.K[i], matrix.squared)
        matrix.K[i, matrix.size :] = 0
        matrix.there[i] = True
    return matrix.K[i]


@jit
def _set(k: int, change: float, reaches: bool, y: Any, a: Any, C: Any, up: Any, low: Any) -> None:
    """Add ``change`` to a_k, or set a_k exactly to the bound that it reaches, and update up_k and low_k."""
    a[k] = (C[k] if change > 0 else 0.0) if reaches else min(max(a[k] + change, 0.0), C[k])
    increase, decrease = 0.0 if a[k] < C[k] else np.inf, 0.0 if a[k] > 0 else np.inf
    up[k], low[k] = (increase, decrease) if y[k] > 0 else (decrease, increase)


@jit
def _move(f: Any, K_i: Any, K_j: Any, x: Any, up: Any, low: Any, rises: Any, rise: Any, fall: Any) -> None:
    """Add x (K_i - K_j) to f, and find the maxima of -f over up and of f over low in each lane."""
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
    """Write b_k^2 / q_k of pairs (i, k) to ``gains`` (see ``dual.smo_step``), and lane maxima to ``gain``.

    ``low_k`` is infinite for variables that cannot move.
    """
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
def _argmax(values: Any, maxima: Any) -> Any:
    """Return the index of the greatest value, given the maximum of each lane."""
    best = maxima.argmax()
    for k in range(best, len(values), LANES):
        if values[k] > values[best]:
            best = k
    return best
