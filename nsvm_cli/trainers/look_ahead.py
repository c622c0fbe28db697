"""Look-ahead: all steps up to the next violation are evaluated in one batch (Algorithms 0, 1 and 2).

A step without a violation changes neither theta nor alpha. Until the next violation, the score

    s_i = sum_j alpha_j y_j K(z_j, F_theta(x_i))

of every sample is therefore constant, and g_t = s_i / (lambda (t - 1)) can be computed any number of steps
ahead. A window of steps is evaluated in one batch and used up to its first violation. The rest is discarded
or, if theta is fixed, updated with the new term.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from nsvm_cli.errors import NotFiniteError
from nsvm_cli.models.feature_map import Evaluation, FeatureMap
from nsvm_cli.storage.state_dict import DERIVED, RESTORED, StateDict, expect_keys, loaded_like
from nsvm_cli.trainers.base import Problem, State, Trainer
from nsvm_cli.trainers.derived import Derived

FIXED_WINDOW = 256
"""Steps per window if theta is fixed."""

YAndScores = Float64[np.ndarray, "2 m"]


@dataclass
class Window:
    """The steps first, first + 1, ..., with their samples i, labels y and scores s_i for the current theta.

    ``g`` holds the decision values. ``violation`` is the next step with a violation or a non-finite g, or the
    step after the window if there is none. ``K`` holds the kernel matrix of the samples if theta is fixed.
    ``evaluation`` holds their features, unless s_i was looked up in the scores of all samples.
    """

    first: int
    i: Int64[np.ndarray, " steps"]
    y: Float64[np.ndarray, " steps"]
    s: Float64[np.ndarray, " steps"]
    g: Float64[np.ndarray, " steps"] = field(init=False)
    violation: int = field(init=False)
    K: Float[np.ndarray, "steps steps"] | None = None
    evaluation: Evaluation | None = None

    def __post_init__(self) -> None:
        self.g = np.empty_like(self.s)

    @property
    def last(self) -> int:
        return self.first + len(self.i) - 1

    def state_dict(self) -> StateDict:
        """Return what ``restore`` needs. s is saved because its bits depend on the order of past updates."""
        return {
            "first": self.first,
            "s": torch.from_numpy(self.s.copy()),
            "from_batch": int(self.evaluation is not None),
        }


@dataclass(kw_only=True)
class LookAheadState(State):
    """The state of an algorithm with look-ahead.

    ``last_violation`` is the step of the latest violation, and ``mean_gap`` a moving average of the gaps
    between violations. ``scores`` holds y_i and s_i of every sample, once m steps have passed without a
    violation.
    """

    window: Window | None = field(default=None, metadata=RESTORED)
    last_violation: int = 1
    mean_gap: float = 1.0
    scores: Derived[YAndScores] = field(default_factory=Derived, metadata=DERIVED)


S = TypeVar("S", bound=LookAheadState)


class LookAheadTrainer(Trainer[S]):
    """An algorithm that draws one sample per step, and acts only if it violates the margin.

    ``advance`` implements the loop over t. An algorithm defines s_i (``s``), and the update of a step with a
    violation (``on_violation``).
    """

    steps: int
    lam: float

    @property
    def total(self) -> int:
        return self.steps

    def fixed(self, state: S) -> bool:
        """Return whether theta is fixed."""
        return state.F.fixed

    def evaluate(self, problem: Problem, state: S, i: Int64[Tensor, " p"]) -> Evaluation:
        """Return F_theta(x_i) for the samples i."""
        return state.F.evaluate(problem.at(i))

    @abstractmethod
    def s(self, problem: Problem, state: S, z: Float[Tensor, "p n"]) -> Float[Tensor, " p"]:
        """Return s_i for the samples with features z of shape (p, n)."""

    def g(self, s: Float64[np.ndarray, " p"], t: Int64[np.ndarray, " p"]) -> Float64[np.ndarray, " p"]:
        """Return the decision values s / (lambda (t - 1)) of the steps t."""
        g: np.ndarray = s / (self.lam * (t - 1))
        return g

    def violates(
        self, problem: Problem, y: Float64[np.ndarray, " p"], g: Float64[np.ndarray, " p"]
    ) -> Bool[np.ndarray, " p"]:
        """Return which samples violate the margin."""
        return problem.task.violates(y, g)

    @abstractmethod
    def on_violation(self, problem: Problem, state: S, t: int, i: int, at_i: Evaluation) -> float:
        """Update theta and alpha in step t, whose sample i violates the margin; ``at_i`` is F_theta(x_i).

        Return the increment of alpha_i.
        """

    def advance(self, problem: Problem, state: S, until: int) -> None:
        """Take all steps up to ``until``, from window to window."""
        while state.t < until:
            if state.window is None or state.t == state.window.last:
                state.window = self._next_window(problem, state)
            window, first, violations = state.window, state.t + 1, state.violations
            self._advance_within(window, problem, state, min(until, window.last))
            taken = slice(first - window.first, state.t + 1 - window.first)
            correct = problem.task.correct(window.y[taken], window.g[taken])
            state.tally.add_decisions(state.t + 1 - first, correct, state.violations - violations)

    def _advance_within(self, window: Window, problem: Problem, state: S, until: int) -> None:
        """Take all steps up to ``until``, or to the violation that makes the rest of the window obsolete."""
        while state.t < until and state.window is window:
            t = min(until, window.violation)
            state.g = float(window.g[t - window.first])
            if t == window.violation:
                if not math.isfinite(state.g):
                    raise NotFiniteError("the decision value g", t)
                self._violation(problem, state, window, t)
            state.t = t

    def restore(self, problem: Problem, F: FeatureMap, saved: Mapping[str, Any]) -> S:
        state = super().restore(problem, F, saved)
        if not (1 <= state.last_violation <= max(1, state.t) and 0 <= state.mean_gap <= self.total):
            raise ValueError(
                f"last_violation {state.last_violation}, mean_gap {state.mean_gap} at step {state.t}"
            )
        if saved["window"] is not None:
            state.window = self._restored_window(problem, state, saved["window"])
        return state

    def _restored_window(self, problem: Problem, state: S, saved: Mapping[str, Any]) -> Window:
        expect_keys(saved, ["first", "s", "from_batch"])
        first, s, from_batch = (saved[key] for key in ("first", "s", "from_batch"))
        if type(first) is not int or not 0 < first <= state.t + 1 <= first + len(s):
            raise ValueError(f"the window from step {first!r} on does not hold step {state.t}")
        i = state.sampler.ahead(first)[: len(s), 0]
        s = loaded_like(torch.empty(len(i), dtype=torch.float64), s, "s").numpy()
        if from_batch:
            window = self._window_from_batch(problem, state, first, i)
            window.s = s
        else:
            y = problem.y[torch.from_numpy(i).to(problem.y.device)]
            window = Window(first, i, y.double().cpu().numpy(), s)
        self._find_violation(problem, window, state.t + 1)
        return window

    def _next_window(self, problem: Problem, state: S) -> Window:
        first, quiet = state.t + 1, state.t - state.last_violation
        i = state.sampler.ahead(first)[:, 0]
        if self.fixed(state):
            window = self._window_from_batch(problem, state, first, i[:FIXED_WINDOW])
        elif quiet < len(problem.y):
            steps = window_length(max(state.mean_gap, float(quiet)))
            window = self._window_from_batch(problem, state, first, i[:steps])
        else:
            window = self._window_from_scores(problem, state, first, i)
        self._find_violation(problem, window, first)
        return window

    def _window_from_batch(
        self, problem: Problem, state: S, first: int, i: Int64[np.ndarray, " p"]
    ) -> Window:
        """Evaluate the samples of the next steps as one batch."""
        samples = torch.from_numpy(i).to(problem.y.device)
        evaluation = self.evaluate(problem, state, samples)
        s = self.s(problem, state, evaluation.z)
        y, s = torch.stack([problem.y[samples], s]).double().cpu().numpy()
        K = problem.K(evaluation.z, evaluation.z).cpu().numpy() if self.fixed(state) else None
        return Window(first, i, y, s, K=K, evaluation=evaluation)

    def _window_from_scores(
        self, problem: Problem, state: S, first: int, i: Int64[np.ndarray, " p"]
    ) -> Window:
        """Look up s_i in the scores of all m samples, which pay off after m steps without a violation."""

        def compute() -> YAndScores:
            s = self.s(problem, state, state.F(problem.x))
            scores: np.ndarray = torch.stack([problem.y, s]).double().cpu().numpy()
            return scores

        y, s = state.scores.get(state.version, compute)[:, i]
        return Window(first, i, y, s)

    def _find_violation(self, problem: Problem, window: Window, t: int) -> None:
        """Set ``window.violation`` to the first violation from step t on."""
        at = t - window.first
        s, y = window.s[at:], window.y[at:]
        with np.errstate(all="ignore"):  # a non-finite g ends the window and raises at its step
            window.g[at:] = g = self.g(s, np.arange(t, t + len(s)))
        found = (self.violates(problem, y, g) | ~np.isfinite(g)).nonzero()[0]
        window.violation = t + int(found[0]) if len(found) else window.last + 1

    def _violation(self, problem: Problem, state: S, window: Window, t: int) -> None:
        at = t - window.first
        i = int(window.i[at])
        at_i = (
            window.evaluation.row(at)
            if window.evaluation
            else self.evaluate(problem, state, torch.tensor([i], device=problem.y.device))
        )
        added = self.on_violation(problem, state, t, i, at_i)
        if state.objective is not None:
            state.tally.add_objective(state.objective)
        state.violations += 1
        state.mean_gap += (t - state.last_violation - state.mean_gap) / 8
        state.last_violation = t
        if window.K is None:
            state.window = None
        else:
            window.s += added * window.y[at] * window.K[at]
            self._find_violation(problem, window, t + 1)


def window_length(gap: float) -> int:
    """Return the number of steps to look ahead if there is a violation about every ``gap`` steps.

    A batch has the overhead of about 32 samples, so a window of B steps costs 32 + B. If violations are rare,
    about B - B^2 / (2 gap) of its steps are used, and the cost per used step is least near B = sqrt(64 gap).
    For small gaps this is a rule of thumb.
    """
    return max(1, round(math.sqrt(64 * gap)))
