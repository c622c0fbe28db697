"""The dual problem of an SVM, and a reference implementation of SMO, which faster solvers must match."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64

Numbers = Float64[np.ndarray, " N"]

HUGE = sys.float_info.max
"""A number above all gaps and dual values, used instead of infinity, which files cannot hold."""

TAU = 1e-12
"""Minimum of the curvature q_k in ``smo_step``, like in LIBSVM. For equal samples, q_k would be 0."""

MOST = 10**7
"""Maximum number of SMO steps of an SVM. With lambda near 0, the dual value grows almost without end."""

STALLED_STEPS, LEAST_STEP_GROWTH = 1000, 1e-12
"""``ReferenceSMO`` gives up after ``STALLED_STEPS`` steps in which the relative growth of the dual value was
below ``LEAST_STEP_GROWTH``."""

REFRESHES = 6
"""Maximum number of times that ``DualState.g`` is recomputed, the last time from rounded coefficients."""

UNBOUNDED = 1e200
"""The bound C_k of variables that have none, which no step reaches."""

FREE = 1e300
"""The value of the variable that represents "no bias", which is too large for any step to change."""


@dataclass
class DualState:
    """Everything that an iteration of a solver reads or writes, apart from the problem; see ``Dual``."""

    alpha: Numbers  # the variables a_k
    g: Float64[np.ndarray, " m"]  # g(s) for each sample s
    kept: Bool[np.ndarray, " N"]  # the part of the latest working set that the next working set keeps
    iterations: int = 0
    steps: int = 0
    gap: float = HUGE
    best: float = -HUGE  # the dual value when it last grew
    since: int = 0  # the iteration in which the dual value last grew
    refreshed: int = 0  # number of times that g was recomputed
    stale: int = 0  # number of samples, at the end of g, that are still to be recomputed
    done: int = 0  # 1 once the solver has ended


class Optimality(NamedTuple):
    """The derivatives f_k of ``Dual``, and which y_k a_k may increase (``up``) or decrease (``low``)."""

    f: Numbers
    up: Bool[np.ndarray, " N"]
    low: Bool[np.ndarray, " N"]
    first: float  # the minimum of f over ``up``
    last: float  # the maximum of f over ``low``, which is at most ``first`` at the optimum


@dataclass(frozen=True)
class Dual:
    """The dual problem in LIBSVM's form, for N variables a_k with signs y_k (Fan, Chen and Lin 2005)::

        min_a  1/2 sum_kl y_k y_l a_k a_l K(s_k, s_l) + 1/2 sum_k D_k a_k^2 - sum_k p_k y_k a_k
        with   0 <= a_k <= C_k,  sum_k y_k a_k = 0

    Variable k belongs to sample s_k. The derivative of the objective with respect to y_k a_k is
    f_k = g(s_k) + D_k y_k a_k - p_k, where g(s) = sum_l y_l a_l K(s_l, s). With a squared loss,
    a_k has no upper bound; otherwise, D_k is 0. If the SVM has no bias, the constraint on sum_k y_k a_k is
    removed by an additional variable, which absorbs the sum. The additional variable has the value ``FREE``,
    and its kernel values are all 0.
    """

    y: Numbers
    p: Numbers
    C: Numbers
    s: Int64[np.ndarray, " N"]
    D: Numbers

    def start(self) -> DualState:
        """Return the state with a = 0."""
        alpha = np.where(self.C > FREE, FREE, 0.0)
        return DualState(alpha, np.zeros(self.s.max() + 1), np.zeros(len(alpha), bool))

    def warm_start(self, earlier: Dual, solution: DualState) -> DualState:
        """Return a start from the solution of an earlier problem that differs in p or by a factor of C."""
        state, factor = self.start(), self.C[0] / earlier.C[0]
        a = np.where(solution.alpha < earlier.C, np.minimum(factor * solution.alpha, self.C), self.C)
        state.alpha = np.where(self.C > FREE, FREE, a)
        state.g = factor * solution.g
        return state

    def optimality(self, state: DualState) -> Optimality:
        """Return the derivatives at a state, their extremes, and which variables may move."""
        f = state.g[self.s] - self.p + self.D * self.y * state.alpha
        below_C, above_0 = state.alpha < self.C, state.alpha > 0
        up, low = np.where(self.y > 0, below_C, above_0), np.where(self.y > 0, above_0, below_C)
        return Optimality(f, up, low, f[up].min(initial=np.inf), f[low].max(initial=-np.inf))

    def bias_and_gap(self, state: DualState) -> tuple[float, float]:
        """Return the bias of the decision function, and the duality gap with this bias.

        The bias is the mean of -f_k over the free variables, which may both increase and decrease. If no
        variable is free, the bias is the mean of -``first`` and -``last``. For f_k, ``first`` and ``last``,
        see ``Optimality``. For a problem without bias, 0 is returned as the bias.
        """
        f, up, low, first, last = self.optimality(state)
        ends = f[up & low] if (up & low).any() else np.array([first, last])
        bias = 0.0 if self.C[-1] > FREE else -float(ends[np.isfinite(ends)].mean())
        bounded = self.C < FREE
        y, C, D, f, a = (numbers[bounded] for numbers in (self.y, self.C, self.D, f, state.alpha))
        f = f - D * y * a
        l = np.maximum(-y * (f + bias), 0)  # noqa: E741
        loss = (l**2 / D + D * a**2) / 2 if D.any() else C * l
        return bias, float((loss + y * a * f).sum())

    def beta(self, state: DualState, dtype: torch.dtype = torch.float64) -> Numbers:
        """Return the sum of y_k a_k of each sample, rounded to a dtype. The variable "no bias" adds 0."""
        beta = np.bincount(self.s, np.where(self.C < FREE, self.y * state.alpha, 0))
        return torch.from_numpy(beta).to(dtype).double().numpy()

    def rounding(self, state: DualState, dtype: torch.dtype) -> float:
        """Estimate how much g changes if ``beta`` is rounded to a dtype, for kernel values up to 1."""
        beta = self.beta(state)
        return float(torch.finfo(dtype).eps * np.abs(beta).max() * np.sqrt(np.count_nonzero(beta)))

    def value(self, state: DualState) -> float:
        """Return the dual value, which is minus the objective of the problem."""
        y, a = self.y, state.alpha
        return float((y * a * (self.p - state.g[self.s] / 2) - self.D * a * a / 2).sum())


def classification(y: Numbers, C: Numbers, bias: bool = True, curvature: float = 0.0) -> Dual:
    """Return the dual problem of C-SVC, for y of -1 and +1, with a C for each sample.

    ``curvature`` is l'' of the squared hinge loss, or 0 for the hinge loss.
    """
    return _dual(bias, curvature, C, y, y, np.arange(len(y)))


def regression(t: Numbers, epsilon: float, C: Numbers, bias: bool = True, curvature: float = 0.0) -> Dual:
    """Return the dual problem of epsilon-SVR for targets t, with variables of both signs for each sample.

    ``curvature`` is l'' of the squared loss, for which epsilon is 0, or 0 for the epsilon-insensitive loss.
    """
    y, s = np.repeat([1.0, -1.0], len(t)), np.tile(np.arange(len(t)), 2)
    return _dual(bias, curvature, np.tile(C, 2), y, np.tile(t, 2) - epsilon * y, s)


def _dual(bias: bool, curvature: float, C: Numbers, y: Numbers, p: Numbers, s: Any) -> Dual:
    D = 1 / (curvature * C) if curvature else np.zeros_like(C)
    columns = (y, p, np.full_like(C, UNBOUNDED) if curvature else C, s, D)
    no_bias = (1.0, 0.0, np.finfo(np.float64).max, s.max() + 1, 0.0)
    return Dual(*columns if bias else map(np.append, columns, no_bias))


def smo_step(dual: Dual, state: DualState, K: Float64[np.ndarray, "m m"], tol: float) -> None:
    """Take a step of SMO with second-order working sets ("WSS 2" of Fan, Chen and Lin 2005).

    For f, up and low, see ``Optimality``. The step chooses i = argmin f_k over up, and j = argmax b_k^2 / q_k
    over low with b_k > 0, where b_k = f_k - f_i and q_k = K_ii + D_i + K_kk + D_k - 2 K_ik. Unless the gap
    is below ``tol``, it increases y_i a_i and decreases y_j a_j by b_j / q_j, or until a bound is reached.
    """
    (f, up, low, first, last), s, diagonal = dual.optimality(state), dual.s, K.diagonal()[dual.s] + dual.D
    state.gap = last - first
    if not state.gap >= tol:
        state.done = 1
        return
    i = int(np.where(up, f, np.inf).argmin())
    b = np.where(low, f - first, 0).clip(0)
    q = np.maximum(diagonal[i] + diagonal - 2 * K[s[i], s], TAU)
    j = int((b * b / q).argmax())
    bounds = [(k, dual.C[k] if dual.y[k] * sign > 0 else 0.0) for k, sign in ((i, 1), (j, -1))]
    x = min(b[j] / q[j], *(abs(bound - state.alpha[k]) for k, bound in bounds))
    for k, bound in bounds:
        room = bound - state.alpha[k]
        state.alpha[k] = bound if abs(room) == x else state.alpha[k] + np.sign(room) * x
    state.g += x * (K[s[i]] - K[s[j]])
    state.steps += 1


@dataclass(frozen=True)
class ReferenceSMO:
    """SMO with one step per iteration, on the full kernel matrix K, for a model with the dtype ``dtype``."""

    dual: Dual
    K: Float64[np.ndarray, "n n"]
    tol: float
    dtype: torch.dtype

    def step(self, state: DualState) -> None:
        """Take a step. Once no step helps, recompute g to remove the accumulated rounding errors."""
        smo_step(self.dual, state, self.K, self.tol)
        if (value := self.dual.value(state)) > state.best + LEAST_STEP_GROWTH * abs(value):
            state.best, state.since = value, state.steps
        stagnates = state.steps - state.since > STALLED_STEPS or state.steps >= MOST
        if not (state.done or stagnates):
            return
        self._refresh(state, torch.float64)
        state.done = int(state.gap < self.tol or stagnates or state.refreshed == REFRESHES)
        if state.done and self.dual.rounding(state, self.dtype) > self.tol / 10:
            self._refresh(state, self.dtype)

    def _refresh(self, state: DualState, dtype: torch.dtype) -> None:
        state.g, state.refreshed = self.K @ self.dual.beta(state, dtype), state.refreshed + 1
        *_, first, last = self.dual.optimality(state)
        state.gap = last - first
