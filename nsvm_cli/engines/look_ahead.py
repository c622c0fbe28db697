"""Look-ahead: evaluate all steps up to the next violation in one batch (Algorithms 0, 1 and 2).

Until the next violation, theta and alpha are constant, and so is the score of every sample, which is a number
or, for several classes, a number for each class:

    s_i = sum_j alpha_j K(z_j, F_theta(x_i))

g_t = s_i / (lambda (t - 1)) can therefore be computed for a whole window of steps. After a violation, the
rest of the window is discarded or, if theta is fixed, updated with the new terms.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from types import new_class
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from nsvm_cli.engines.coverage import base_of
from nsvm_cli.engines.numba.code import is_usable
from nsvm_cli.errors import NotFiniteError
from nsvm_cli.models.feature_map import Batch, FeatureMap
from nsvm_cli.models.kernels import Kernel
from nsvm_cli.models.losses import any_output
from nsvm_cli.models.objectives import products
from nsvm_cli.storage.state_dict import NOT_SAVED, RESTORED, Saved, expect_keys
from nsvm_cli.trainers.alg1 import Alg1, Alg1State
from nsvm_cli.trainers.alg2 import Alg2
from nsvm_cli.trainers.alg4 import Alg4
from nsvm_cli.trainers.base import Problem, State, Trainer
from nsvm_cli.trainers.coefficients import SampleState
from nsvm_cli.trainers.dual import Dual
from nsvm_cli.trainers.pegasos import Pegasos
from nsvm_cli.trainers.svc import SVC

S = TypeVar("S", bound=State)
Increments: TypeAlias = Float64[np.ndarray, " v *outputs"]
Terms: TypeAlias = tuple[Float[Tensor, "q n"], Float[Tensor, " q *outputs"]]

Objective = Callable[..., tuple[Float[Tensor, ""], Sequence[Float[Tensor, "_ n"]]]]
"""A function of K and features that returns the objective and its gradient with respect to the features."""

FIXED_WINDOW = 256
"""Number of samples in a window if theta is fixed."""


@dataclass(frozen=True)
class Evaluation:
    """Samples x and their features F_theta(x).

    The features have an autograd graph, unless training passes give different features.
    """

    x: Batch
    features: Float[Tensor, "p n"]

    @property
    def z(self) -> Float[Tensor, "p n"]:
        """The features without a graph."""
        return self.features.detach()

    def rows(self, p: Int64[np.ndarray, " v"]) -> Evaluation:
        """Return the evaluation of the rows p, which must be in ascending order."""
        # a slice is a view, which costs less than a copy
        rows = slice(p[0], p[0] + 1) if len(p) == 1 else torch.from_numpy(p).to(self.features.device)
        return Evaluation(Batch(self.x.x[rows], self.x.i[p]), self.features[rows])


def descend(
    F: FeatureMap, at: Sequence[Evaluation], objective: Objective, K: Kernel, t: int, T: int
) -> Float[Tensor, ""]:
    """Take a step in theta like ``FeatureMap.descend``, for features that are already evaluated."""
    features = [e.features for e in at]
    if F.trains_otherwise:
        x = Batch(torch.cat([e.x.x for e in at]), np.concatenate([e.x.i for e in at]))
        features = [*F.training_pass(x, t).split([len(e.x) for e in at])]
    with F.differentiable(K, t) as K:
        value, gradients = objective(K, *(z.detach() for z in features))
        # The sum of these terms has the gradient of the objective. Passing grad_outputs instead would make
        # autograd import a computer algebra system, which takes a quarter of a second.
        terms = [(z * grad_z.detach()).sum() for z, grad_z in zip(features, gradients, strict=True)]
        if F.learnt:
            terms.append(value)  # the graph of the value contains only the kernel's parameters
        return F.move(value, sum(terms[1:], terms[0]), t, T)


@dataclass
class Window(Saved):
    """Steps computed ahead, from step ``first`` on: samples i and scores s, with k rows for each step."""

    saved = ("first", "s")  # saved, because the bits of s depend on the order of past updates

    first: int
    k: int
    i: Int64[np.ndarray, " rows"]
    s: Float64[np.ndarray, " rows *outputs"]
    evaluation: Evaluation | None = None
    K: Float[np.ndarray, "rows rows"] | None = None  # K of the samples i, if theta is fixed

    @property
    def last(self) -> int:
        return self.first + len(self.i) // self.k - 1


@dataclass
class Ahead(Saved):
    """The state of look-ahead, in addition to the state of the algorithm."""

    window: Window | None = field(default=None, metadata=RESTORED)
    last_violation: int = 1
    mean_gap: float = 1.0  # moving average of the number of steps between violations
    moves: tuple[int, int] | None = field(default=None, metadata=NOT_SAVED)
    support: Any = field(default=None, metadata=NOT_SAVED)  # valid if (theta steps, violations) == ``moves``


class LookAhead(Trainer[S]):
    """A mixin that adds look-ahead to an algorithm that changes theta and alpha only after violations."""

    def fixed(self, state: S) -> bool:
        return not self.moves_theta or state.F.fixed

    def evaluate(self, problem: Problem, state: S, i: Int64[np.ndarray, " p"]) -> Evaluation:
        """Return the samples i and their features F_theta(x_i)."""
        F, (x, _) = state.F, problem[i]
        return Evaluation(x, F(x) if F.trains_otherwise else F.network(x.x))

    def start(self, problem: Problem, F: FeatureMap) -> S:
        state = super().start(problem, F)  # type: ignore[safe-super]  # a mixin
        state.engine = Ahead()
        return state

    @abstractmethod
    def terms(self, problem: Problem, state: S) -> Terms:
        """Return the z_j and alpha_j of the scores s_i = sum_j alpha_j K(z_j, F_theta(x_i))."""

    @abstractmethod
    def on_violation(self, problem: Problem, state: S, t: int, at: Evaluation, a: Increments) -> None:
        """Update theta and alpha in step t. The samples ``at`` violate the margin, and add ``a`` to alpha."""

    def step(self, problem: Problem, state: S) -> None:
        self.advance(problem, state, state.t + 1)

    def advance(self, problem: Problem, state: S, until: int) -> None:
        while state.t < until:
            ahead = state.engine
            if ahead.window is None or state.t == ahead.window.last:
                gap = max(ahead.mean_gap, float(state.t - ahead.last_violation))
                fixed = max(1, FIXED_WINDOW // self.k)
                steps = fixed if self.fixed(state) else window_length(gap, self.k)
                ahead.window = self._window(problem, state, state.t + 1, steps)
            self._advance_within(ahead.window, problem, state, min(until, ahead.window.last))

    def _advance_within(self, window: Window, problem: Problem, state: S, until: int) -> None:
        """Take the steps up to ``until`` or up to the first step with a violation, if that comes first."""
        begin, t = self.k * (state.t + 1 - window.first), np.arange(state.t + 1, until + 1).repeat(self.k)
        i, s = (of_window[begin : begin + len(t)] for of_window in (window.i, window.s))
        with np.errstate(all="ignore"):  # a g that is not finite raises an error in its step
            g = (s.T / (self.lam * (t - 1))).T
            increments = problem.increments(i, g)
            violating = any_output((increments != 0) | ~np.isfinite(g)).nonzero()[0]
        until = int(t[violating[0]]) if len(violating) else until
        taken = self.k * (until - state.t)
        if not np.isfinite(g[taken - self.k : taken]).all():
            raise NotFiniteError("the decision value g", until)
        v = violating[violating < taken]
        if len(v):
            self._violation(problem, state, until, begin + v, increments[v])
        state.t, state.g = until, float(g[taken - self.k].flat[0])
        correct = problem.task.correct(problem.host_y[i[:taken]], g[:taken])
        state.tally.add_decisions(taken, correct, len(v))

    def restore(self, problem: Problem, F: FeatureMap, saved: Mapping[str, Any]) -> S:
        state = super().restore(problem, F, saved)
        ahead, saved_ahead = state.engine, saved["engine"]
        if saved_ahead is None:  # an engine without look-ahead took the steps so far
            ahead.last_violation = state.t
            return state
        ahead.load_state_dict(saved_ahead)
        last, gap = ahead.last_violation, ahead.mean_gap
        if not (1 <= last <= max(1, state.t) and 0 <= gap <= self.total):
            values = f"last_violation={last}, mean_gap={gap} at step {state.t}"
            raise ValueError(f"the look-ahead state is out of range: {values}")
        if (window := saved_ahead["window"]) is not None:
            expect_keys(window, ["first", "s"])
            first, steps = window["first"], len(window["s"]) // self.k
            if type(first) is not int or not 0 < first <= state.t + 1 <= first + steps:
                raise ValueError(f"the window that starts at step {first!r} does not contain step {state.t}")
            ahead.window = self._window(problem, state, first, steps)
            ahead.window.load_state_dict(window)
        return state

    def _window(self, problem: Problem, state: S, first: int, steps: int) -> Window:
        i = state.sampler.rest_of_block(first)[:steps].ravel()
        evaluation = self.evaluate(problem, state, i)
        z = evaluation.z
        s = problem.sums(z, *self.terms(problem, state)).double().cpu().numpy()
        K = problem.K(z, z).cpu().numpy() if self.fixed(state) else None
        return Window(first, self.k, i, s, evaluation, K)

    def _violation(
        self, problem: Problem, state: S, t: int, rows: Int64[np.ndarray, " v"], increments: Increments
    ) -> None:
        """Take step t, in which the samples in these rows of the window add increments / k to alpha."""
        ahead, window = state.engine, state.engine.window
        at, begin = window.evaluation.rows(rows), self.k * (t - window.first)
        batch = window.i[begin : begin + self.k]
        a = problem.implicit_increments(increments, at.z, self.lam * t, batch) / self.k
        self.on_violation(problem, state, t, at, a)
        if state.objective is not None:
            state.tally.add_objective(state.objective)
        state.violations += len(rows)
        ahead.mean_gap += (t - ahead.last_violation - ahead.mean_gap) / 8
        ahead.last_violation = t
        if window.K is None:
            ahead.window = None
            return
        for row, added in zip(rows, a, strict=True):
            window.s += np.multiply.outer(window.K[row], added)


def window_length(gap: float, k: int = 1) -> int:
    """Return the number of steps to look ahead if a violation occurs about every ``gap`` steps.

    A window of B steps takes about as long as evaluating 32 + k B samples, and about B - B^2 / (2 gap) of its
    steps are used. The time per used step is minimal near B = sqrt(64 gap / k).
    """
    return max(1, round(math.sqrt(64 * gap / k)))


class LookAheadPegasos(LookAhead[SampleState], Pegasos):
    def evaluate(self, problem: Problem, state: SampleState, i: Int64[np.ndarray, " p"]) -> Evaluation:
        z = state.features(problem, i)
        return Evaluation(Batch(z, i), z)  # Algorithm 0 uses only the features of a sample

    def terms(self, problem: Problem, state: SampleState) -> Terms:
        j, alpha = state.terms(problem)
        return state.features(problem, j), alpha

    def on_violation(
        self, problem: Problem, state: SampleState, t: int, at: Evaluation, a: Increments
    ) -> None:
        state.coefficients.add(at.x.i, a)


class LookAheadAlg1(LookAhead[Alg1State], Alg1):
    def fixed(self, state: Alg1State) -> bool:
        return super().fixed(state) and not self.budget  # a window with fixed theta only ever gains terms

    def terms(self, problem: Problem, state: Alg1State) -> Terms:
        return state.z, state.alpha

    def on_violation(self, problem: Problem, state: Alg1State, t: int, at: Evaluation, a: Increments) -> None:
        lam = self.lam
        alpha_t = torch.from_numpy(a).to(problem.y)
        z_s, alpha_s = state.z, state.alpha
        c = products(-alpha_t / (lam * (t - 1)), alpha_s)

        def objective(K: Kernel, z: Tensor) -> tuple[Tensor, list[Tensor]]:
            """Sum -alpha_t / (lambda (t-1)) sum_s alpha_s K(z_s, F_theta(x_t)) over all violations."""
            K_ts = K(z, z_s)
            return (K_ts.reshape(1, -1) @ c.flatten()).sum(), [K.gradient(z, z_s, K_ts, c)]

        state.objective = descend(state.F, [at], objective, problem.K, t, self.last_theta_step)
        state.add(at.x.i, at.z, alpha_t)
        self.maintain(problem, state)


class LookAheadAlg2(LookAhead[SampleState], Alg2):
    def terms(self, problem: Problem, state: SampleState) -> Terms:
        _, alpha, at_j = self._support(problem, state)
        return at_j.z, alpha

    def on_violation(
        self, problem: Problem, state: SampleState, t: int, at: Evaluation, a: Increments
    ) -> None:
        lam, i = self.lam, at.x.i
        j, alpha_j, at_j = self._support(problem, state)
        alpha_i = torch.from_numpy(a).to(problem.y)
        c = products(alpha_j, -alpha_i / (lam * (t - 1)))
        # a violating x_i that is in the support passes through F only once
        new = np.flatnonzero(~state.coefficients.in_support[i])
        rows = torch.from_numpy((np.append(j, i[new]) == i[:, None]).argmax(1)).to(c.device)

        def objective(K: Kernel, z_j: Tensor, *z_new: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
            """Return sum_i a_i sum_j alpha_j K(F_theta(x_j), F_theta(x_i)) over all violating samples x_i."""
            z = torch.cat([z_j, *z_new])
            z_i = z[rows]
            K_ji = K(z_j, z_i)
            # in the order of ``step``, since random directions of kernel.gradient depend on the order
            grad_z_i, grad_z_j = K.gradient(z_i, z_j, K_ji.T, c.T), K.gradient(z_j, z_i, K_ji, c)
            grad_z = torch.cat([grad_z_j, torch.zeros_like(z[len(j) :])])
            grad_z[rows] += grad_z_i
            return c.flatten() @ K_ji.flatten(), grad_z.split([len(j), *map(len, z_new)])

        batch = [at_j, at.rows(new)] if len(new) else [at_j]
        state.objective = descend(state.F, batch, objective, problem.K, t, self.last_theta_step)
        state.coefficients.add(i, a)

    def _support(
        self, problem: Problem, state: SampleState
    ) -> tuple[Int64[np.ndarray, " s"], Float[Tensor, " s *outputs"], Evaluation]:
        """Return the indices j of the support vectors, alpha_j, and F_theta(x_j)."""
        ahead, moves = state.engine, (state.F.theta_steps, state.violations)
        if ahead.moves != moves:
            j, alpha = state.terms(problem)
            ahead.moves, ahead.support = moves, (j, alpha, self.evaluate(problem, state, j))
        return ahead.support


class LookAheadAlg4(Alg4):
    """Algorithm 4 with look-ahead in Part 2."""

    def _solver(self, steps: int) -> Trainer[Any]:
        return with_faster_class(super()._solver(steps), LOOK_AHEAD)


class WorkingSetSVC(SVC):
    """``SVC`` with a working-set solver, if Numba is installed."""

    def solver(self, problem: Problem, z: Float[Tensor, "n d"], dual: Dual) -> Any:
        if not is_usable():
            return super().solver(problem, z, dual)
        from nsvm_cli.engines.numba.kernel_rows import Rows
        from nsvm_cli.engines.numba.working_sets import WorkingSets

        return WorkingSets(dual, Rows(problem.K, z, problem.memory_budget), self.tol)


def with_faster_class(trainer: Trainer[Any], trainers: Mapping[Any, type[Trainer[Any]]]) -> Trainer[Any]:
    """Return the trainer, converted to its faster class in ``trainers``, or unchanged if there is none."""
    if (fast := trainers.get(base_of(trainer))) is None:
        return trainer
    kind, trainer = type(trainer), copy(trainer)
    joined = fast if issubclass(fast, kind) else new_class(kind.__name__, (fast, kind))
    object.__setattr__(trainer, "__class__", joined)  # its fields are frozen
    return trainer


LOOK_AHEAD: dict[type[Trainer[Any]], type[Trainer[Any]]] = {
    Pegasos: LookAheadPegasos,
    Alg1: LookAheadAlg1,
    Alg2: LookAheadAlg2,
    Alg4: LookAheadAlg4,
    SVC: WorkingSetSVC,
}
