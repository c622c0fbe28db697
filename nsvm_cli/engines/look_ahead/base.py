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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

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
Amount: TypeAlias = Float64[np.ndarray, " v *outputs"]
Terms: TypeAlias = tuple[Float[Tensor, "q n"], Float[Tensor, " q *outputs"]]

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


@dataclass
class Ahead:
    """What look-ahead keeps between steps, besides the state of the algorithm.

    ``last_violation`` is the step of the latest violation, and ``mean_gap`` a moving average of the gaps
    between violations. ``kept`` is for ``current``.
    """

    evaluate: Evaluator
    window: Window | None = None
    last_violation: int = 1
    mean_gap: float = 1.0
    kept: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def state_dict(self) -> StateDict:
        """Return what the bits of later steps depend on."""
        window = None if self.window is None else self.window.state_dict()
        return {"last_violation": self.last_violation, "mean_gap": self.mean_gap, "window": window}


class LookAhead(Trainer[S]):
    """An algorithm that acts only on violations, with look-ahead: a mixin that precedes its own class.

    An algorithm defines the ``terms`` of s_i, and the update of a step with a violation (``on_violation``).
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
    def terms(self, problem: Problem, state: S) -> Terms:
        """Return the z_j and alpha_j of the s_i."""

    @abstractmethod
    def on_violation(self, problem: Problem, state: S, t: int, at: Evaluation, a: Amount) -> None:
        """Update theta and alpha in step t, in which these samples violate the margin and add ``a``."""

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
        return self._window(problem, state, first, i, bool(from_batch), loaded_like(like, s, "s").numpy())

    def _next_window(self, problem: Problem, state: S) -> Window:
        first, quiet = state.t + 1, state.t - state.engine.last_violation
        i, from_batch = state.sampler.ahead(first), True
        if self.fixed(state):
            i = i[: max(1, FIXED_WINDOW // self.k)]
        elif self.k * quiet < len(problem.y):
            i = i[: window_length(max(state.engine.mean_gap, float(quiet)), self.k)]
        else:  # the scores of all m samples pay off after m samples without a violation
            from_batch = False
        return self._window(problem, state, first, i.ravel(), from_batch)

    def _window(
        self,
        problem: Problem,
        state: S,
        first: int,
        i: Int64[np.ndarray, " p"],
        from_batch: bool,
        s: Float64[np.ndarray, " p *outputs"] | None = None,
    ) -> Window:
        """Return the window of the samples i. Unless s is known, it is that of their batch, or else looked up
        in the scores of all samples.
        """

        def scores(z: Float[Tensor, "p n"]) -> Float64[np.ndarray, " p *outputs"]:
            on_host: np.ndarray = problem.sums(z, *self.terms(problem, state)).double().cpu().numpy()
            return on_host

        evaluation = self.evaluate(problem, state, i) if from_batch else None
        if s is None and evaluation is not None:
            s = scores(evaluation.z)
        elif s is None:
            s = current(state, "s", lambda: scores(state.F(problem.x)))[i]
        window = Window(first, self.k, i, problem.host_y[i], s, evaluation=evaluation)
        if evaluation is not None and self.fixed(state):
            window.K = problem.K(evaluation.z, evaluation.z).cpu().numpy()
        self._find_violation(problem, window, state.t + 1)
        return window

    def _find_violation(self, problem: Problem, window: Window, t: int) -> None:
        """Set ``window.violation`` to the first violation from step t on."""
        rows = window.rows(t, window.last + 1)
        s, i = window.s[rows], window.i[rows]
        with np.errstate(all="ignore"):  # a non-finite g ends the window and raises at its step
            window.g[rows] = g = (s.T / (self.lam * (window.t[rows] - 1))).T
            window.increments[rows] = increments = problem.step(i, g)
            acts = (increments != 0) | ~np.isfinite(g)
        violating = any_output(acts).nonzero()[0]
        window.violation = t + int(violating[0]) // self.k if len(violating) else window.last + 1

    def _violation(self, problem: Problem, state: S, window: Window, t: int) -> None:
        rows, ahead = window.rows(t), state.engine
        v = rows.start + any_output(window.increments[rows] != 0).nonzero()[0]
        at = window.evaluation.rows(v) if window.evaluation else self.evaluate(problem, state, window.i[v])
        a = problem.implicit(window.increments[v], at.z, self.lam * t, window.i[rows]) / self.k
        self.on_violation(problem, state, t, at, a)
        if state.objective is not None:
            state.tally.add_objective(state.objective)
        state.violations += len(v)
        ahead.mean_gap += (t - ahead.last_violation - ahead.mean_gap) / 8
        ahead.last_violation = t
        if window.K is None:
            ahead.window = None
        else:
            for row, added in zip(v, a, strict=True):
                window.s += np.multiply.outer(window.K[row], added)
            self._find_violation(problem, window, t + 1)


def current(state: State, name: str, compute: Callable[[], Any]) -> Any:
    """Return a value that is computed anew only where theta or alpha has changed."""
    now, kept = (state.F.theta_steps, state.violations), state.engine.kept
    if name not in kept or kept[name][0] != now:
        kept[name] = now, compute()
    return kept[name][1]


def window_length(gap: float, k: int = 1) -> int:
    """Return the number of steps to look ahead if there is a violation about every ``gap`` steps.

    A batch has the overhead of about 32 samples, so a window of B steps of k samples costs 32 + k B. If
    violations are rare, about B - B^2 / (2 gap) of its steps are used, and the cost per used step is least
    near B = sqrt(64 gap / k). For small gaps this is a rule of thumb.
    """
    return max(1, round(math.sqrt(64 * gap / k)))
