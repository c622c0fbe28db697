"""Look-ahead: evaluate all steps up to the next violation in one batch (Algorithms 0, 1 and 2).

A step without a violation changes neither theta nor alpha. Until the next violation, the score

    s_i = sum_j alpha_j K(z_j, F_theta(x_i))

of every sample (a number, or one for each class) is therefore constant, and g_t = s_i / (lambda (t - 1)) can
be computed any number of steps ahead. A window of steps is evaluated in one batch and used up to its first
violation. The rest is discarded or, if theta is fixed, updated with the new terms.

A step draws k samples, k consecutive rows of the window, and acts if any of them violates the margin.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from nsvm_cli.engines.look_ahead.features import Evaluation, Evaluator
from nsvm_cli.errors import NotFiniteError
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.losses import any_output
from nsvm_cli.storage.state_dict import StateDict, expect_keys, loaded_like
from nsvm_cli.trainers.base import Problem, State, Trainer

S = TypeVar("S", bound=State)

FIXED_WINDOW = 256
"""Samples per window if theta is fixed."""


@dataclass
class Window:
    """The steps first, first + 1, ..., with their samples i, labels y and scores s_i for the current theta.

    Each step t has k rows of these. ``g`` holds the decision values, and ``increments`` what they add to
    alpha, times k. ``violation`` is the next step with a violation or a non-finite g, or the step after the
    window if there is none. ``K`` holds the kernel matrix of the samples if theta is fixed. ``evaluation``
    holds their features, unless s_i was looked up in the scores of all samples.
    """

    first: int
    k: int
    i: Int64[np.ndarray, " rows"]
    y: Float64[np.ndarray, " rows"]
    s: Float64[np.ndarray, " rows *outputs"]
    t: Int64[np.ndarray, " rows"] = field(init=False)
    g: Float64[np.ndarray, " rows *outputs"] = field(init=False)
    increments: Float64[np.ndarray, " rows *outputs"] = field(init=False)
    violation: int = field(init=False)
    K: Float[np.ndarray, "rows rows"] | None = None
    evaluation: Evaluation | None = None

    def __post_init__(self) -> None:
        self.t = self.first + np.arange(len(self.i)) // self.k
        self.g, self.increments = np.empty_like(self.s), np.empty_like(self.s)

    @property
    def last(self) -> int:
        return self.first + len(self.i) // self.k - 1

    def rows(self, t: int, until: int | None = None) -> slice:
        """Return the rows of step t, or of the steps from t to before ``until``."""
        return slice(self.k * (t - self.first), self.k * ((until or t + 1) - self.first))

    def state_dict(self) -> StateDict:
        """Return what ``restore`` needs. s is saved because its bits depend on the order of past updates."""
        return {
            "first": self.first,
            "s": torch.from_numpy(self.s.copy()),
            "from_batch": int(self.evaluation is not None),
        }


@dataclass(frozen=True)
class Violations:
    """The samples of a step that violate the margin: their rows of the window, their indices i, their
    features, and what they add to alpha, divided by k.
    """

    rows: Int64[np.ndarray, " v"]
    i: Int64[np.ndarray, " v"]
    evaluation: Evaluation
    increments: Float64[np.ndarray, " v *outputs"]


@dataclass
class Ahead:
    """What look-ahead keeps between steps, besides the state of the algorithm.

    ``last_violation`` is the step of the latest violation, and ``mean_gap`` a moving average of the gaps
    between violations. ``scores`` holds s_i of every sample, once m samples have passed without a violation,
    and ``support`` is for Algorithm 2: both with the ``version`` of the state that they are of.
    """

    evaluate: Evaluator
    window: Window | None = None
    last_violation: int = 1
    mean_gap: float = 1.0
    scores: tuple[Any, Float64[np.ndarray, " m *outputs"]] | None = None
    support: tuple[Any, Any] | None = None

    def state_dict(self) -> StateDict:
        """Return what the bits of later steps depend on."""
        window = None if self.window is None else self.window.state_dict()
        return {"last_violation": self.last_violation, "mean_gap": self.mean_gap, "window": window}


class LookAhead(Trainer[S]):
    """An algorithm that acts only on violations, with look-ahead: a mixin that precedes its own class.

    ``advance`` implements the loop over t. An algorithm defines s_i (``s``), and the update of a step with a
    violation (``on_violation``).
    """

    def fixed(self, state: S) -> bool:
        """Return whether theta is fixed."""
        return state.F.fixed

    def evaluate(self, problem: Problem, state: S, i: Int64[np.ndarray, " p"]) -> Evaluation:
        """Return F_theta(x_i) for the samples i."""
        evaluation: Evaluation = state.engine.evaluate(problem[i][0])
        return evaluation

    def start(self, problem: Problem, F: FeatureMap) -> S:
        state = super().start(problem, F)  # type: ignore[safe-super]  # a mixin
        state.engine = Ahead(Evaluator(F))
        return state

    @abstractmethod
    def s(self, problem: Problem, state: S, z: Float[Tensor, "p n"]) -> Float[Tensor, " p *outputs"]:
        """Return s_i for the samples with features z of shape (p, n)."""

    def g(
        self, s: Float64[np.ndarray, " p *outputs"], t: Int64[np.ndarray, " p"]
    ) -> Float64[np.ndarray, " p *outputs"]:
        """Return the decision values s / (lambda (t - 1)) of the steps t."""
        g: np.ndarray = s / (self.lam * (t - 1)).reshape(-1, *[1] * (s.ndim - 1))
        return g

    @abstractmethod
    def on_violation(self, problem: Problem, state: S, t: int, at: Violations) -> None:
        """Update theta and alpha in step t."""

    def advance(self, problem: Problem, state: S, until: int) -> None:
        """Take all steps up to ``until``, from window to window."""
        while state.t < until:
            if state.engine.window is None or state.t == state.engine.window.last:
                state.engine.window = self._next_window(problem, state)
            window, first, violations = state.engine.window, state.t + 1, state.violations
            self._advance_within(window, problem, state, min(until, window.last))
            taken = window.rows(first, state.t + 1)
            y, g = window.y[taken], window.g[taken]
            state.tally.add_decisions(len(y), problem.task.correct(y, g), state.violations - violations)

    def _advance_within(self, window: Window, problem: Problem, state: S, until: int) -> None:
        """Take all steps up to ``until``, or to the violation that makes the rest of the window obsolete."""
        while state.t < until and state.engine.window is window:
            t = min(until, window.violation)
            g = window.g[window.rows(t)]
            state.g = float(g.flat[0])
            if t == window.violation:
                if not np.isfinite(g).all():
                    raise NotFiniteError("the decision value g", t)
                self._violation(problem, state, window, t)
            state.t = t

    def restore(self, problem: Problem, F: FeatureMap, saved: Mapping[str, Any]) -> S:
        state = super().restore(problem, F, saved)
        ahead, kept = state.engine, saved["engine"]
        if kept is None:  # another engine took the steps so far
            ahead.last_violation = state.t
            return state
        expect_keys(kept, ["last_violation", "mean_gap", "window"])
        ahead.last_violation, ahead.mean_gap = last, gap = kept["last_violation"], kept["mean_gap"]
        if not (type(last) is int and 1 <= last <= max(1, state.t) and 0 <= gap <= self.total):
            raise ValueError(f"last_violation {last}, mean_gap {gap} at step {state.t}")
        if kept["window"] is not None:
            ahead.window = self._restored_window(problem, state, kept["window"])
        return state

    def _restored_window(self, problem: Problem, state: S, saved: Mapping[str, Any]) -> Window:
        expect_keys(saved, ["first", "s", "from_batch"])
        first, s, from_batch = (saved[key] for key in ("first", "s", "from_batch"))
        steps = len(s) // self.k
        if type(first) is not int or not 0 < first <= state.t + 1 <= first + steps:
            raise ValueError(f"the window from step {first!r} on does not hold step {state.t}")
        i = state.sampler.ahead(first)[:steps].ravel()
        like = torch.empty(len(i), *problem.task.outputs, dtype=torch.float64)
        s = loaded_like(like, s, "s").numpy()
        if from_batch:
            window = self._window_from_batch(problem, state, first, i)
            window.s = s
        else:
            window = Window(first, self.k, i, problem.host_y[i], s)
        self._find_violation(problem, window, state.t + 1)
        return window

    def _next_window(self, problem: Problem, state: S) -> Window:
        first, quiet = state.t + 1, state.t - state.engine.last_violation
        i = state.sampler.ahead(first)
        if self.fixed(state):
            i = i[: max(1, FIXED_WINDOW // self.k)]
            window = self._window_from_batch(problem, state, first, i.ravel())
        elif self.k * quiet < len(problem.y):
            steps = window_length(max(state.engine.mean_gap, float(quiet)), self.k)
            window = self._window_from_batch(problem, state, first, i[:steps].ravel())
        else:
            window = self._window_from_scores(problem, state, first, i.ravel())
        self._find_violation(problem, window, first)
        return window

    def _window_from_batch(
        self, problem: Problem, state: S, first: int, i: Int64[np.ndarray, " p"]
    ) -> Window:
        """Evaluate the samples of the next steps as one batch."""
        evaluation = self.evaluate(problem, state, i)
        s = self.s(problem, state, evaluation.z).double().cpu().numpy()
        K = problem.K(evaluation.z, evaluation.z).cpu().numpy() if self.fixed(state) else None
        return Window(first, self.k, i, problem.host_y[i], s, K=K, evaluation=evaluation)

    def _window_from_scores(
        self, problem: Problem, state: S, first: int, i: Int64[np.ndarray, " p"]
    ) -> Window:
        """Look up s_i in the scores of all m samples, which pay off after m samples without a violation."""
        ahead, now = state.engine, version(state)
        if ahead.scores is None or ahead.scores[0] != now:
            ahead.scores = now, self.s(problem, state, state.F(problem.x)).double().cpu().numpy()
        return Window(first, self.k, i, problem.host_y[i], ahead.scores[1][i])

    def _find_violation(self, problem: Problem, window: Window, t: int) -> None:
        """Set ``window.violation`` to the first violation from step t on."""
        rows = window.rows(t, window.last + 1)
        s, y = window.s[rows], window.y[rows]
        with np.errstate(all="ignore"):  # a non-finite g ends the window and raises at its step
            window.g[rows] = g = self.g(s, window.t[rows])
            window.increments[rows] = increments = problem.loss.step(y, g)
            acts = (increments != 0) | ~np.isfinite(g)
        violating = any_output(acts).nonzero()[0]
        window.violation = t + int(violating[0]) // self.k if len(violating) else window.last + 1

    def _violation(self, problem: Problem, state: S, window: Window, t: int) -> None:
        at = self._violations(problem, state, window, t)
        self.on_violation(problem, state, t, at)
        if state.objective is not None:
            state.tally.add_objective(state.objective)
        state.violations += len(at.i)
        state.engine.mean_gap += (t - state.engine.last_violation - state.engine.mean_gap) / 8
        state.engine.last_violation = t
        if window.K is None:
            state.engine.window = None
        else:
            for row, amount in zip(at.rows, at.increments, strict=True):
                window.s += np.multiply.outer(window.K[row], amount)
            self._find_violation(problem, window, t + 1)

    def _violations(self, problem: Problem, state: S, window: Window, t: int) -> Violations:
        rows = window.rows(t)
        increments = window.increments[rows]
        acting = any_output(increments != 0).nonzero()[0]
        at = rows.start + acting
        i = window.i[at]
        evaluation = window.evaluation.rows(at) if window.evaluation else self.evaluate(problem, state, i)
        increments = problem.implicit(increments[acting], evaluation.z, self.lam * t)
        return Violations(at, i, evaluation, increments / self.k)


def version(state: State) -> tuple[int, int]:
    """Return a key that changes whenever theta or alpha does."""
    return state.F.theta_steps, state.violations


def window_length(gap: float, k: int = 1) -> int:
    """Return the number of steps to look ahead if there is a violation about every ``gap`` steps.

    A batch has the overhead of about 32 samples, so a window of B steps of k samples costs 32 + k B. If
    violations are rare, about B - B^2 / (2 gap) of its steps are used, and the cost per used step is least
    near B = sqrt(64 gap / k). For small gaps this is a rule of thumb.
    """
    return max(1, round(math.sqrt(64 * gap / k)))
