"""Stretches of steps without a violation, computed at once (Algorithms 0, 1 and 2).

A step without a violation moves neither theta nor alpha. So while there is none,

    s_i = sum_j alpha_j y_j K(z_j, F_theta(x_i))

stays what it is for every sample, and g_t = s_i / (lambda (t - 1)) is known for as many coming steps as one
likes. They are looked at in one batch, up to the first violation. What lies behind it is thrown away, or,
where theta never moves, brought up to date with the one term that joined.
"""

from __future__ import annotations

import math
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

FIXED = 256
"""Steps that are looked ahead where theta never moves."""


@dataclass
class Stretch:
    """The steps first, first + 1, ..., their samples i, and s_i for the theta and alpha of now.

    ``violation`` is the step of the first violation that is still to come (or of the first g that is not
    finite), or the step after the stretch.
    ``K`` holds the kernel values of the samples, where theta never moves. ``seen`` is where their s_i came
    from, where theta does.
    """

    first: int
    i: Int64[np.ndarray, " steps"]
    y: Float64[np.ndarray, " steps"]
    s: Float64[np.ndarray, " steps"]
    g: Float64[np.ndarray, " steps"] = field(init=False)
    violation: int = field(init=False)
    K: Float[np.ndarray, "steps steps"] | None = None
    seen: Evaluation | None = None

    def __post_init__(self) -> None:
        self.g = np.empty_like(self.s)

    def state_dict(self) -> StateDict:
        """Where theta never moves, s is added up in the order of the violations: it is not computed again."""
        return {
            "first": self.first,
            "s": torch.from_numpy(self.s.copy()),
            "looked_at": int(self.seen is not None),
        }

    @property
    def last(self) -> int:
        return self.first + len(self.i) - 1


@dataclass(kw_only=True)
class LookAheadState(State):
    """``moved`` is the step of the latest violation, ``gap`` the mean of the latest gaps between two.

    ``all_s`` holds y_i and s_i for every sample, once a stretch has gone on for m steps.
    """

    stretch: Stretch | None = field(default=None, metadata=RESTORED)
    moved: int = 1
    gap: float = 1.0
    all_s: Float64[np.ndarray, "2 m"] | None = field(default=None, metadata=DERIVED)


S = TypeVar("S", bound=LookAheadState)


class LookAheadTrainer(Trainer[S]):
    """An algorithm that takes one sample a step and acts on violations only: see ``violation``."""

    steps: int
    lam: float

    @property
    def total(self) -> int:
        return self.steps

    def fixed(self, state: S) -> bool:
        """Whether theta never moves."""
        return state.F.fixed

    def look_at(self, problem: Problem, state: S, i: Int64[Tensor, " p"]) -> Evaluation:
        """F_theta(x_i) for the samples i."""
        return state.F.evaluate(problem.at(i))

    def s(self, problem: Problem, state: S, z: Float[Tensor, "p n"]) -> Float[Tensor, " p"]:
        """s_i for the samples with the features z."""
        raise NotImplementedError

    def violation(self, problem: Problem, state: S, t: int, i: int, seen: Evaluation) -> float:
        """What step t does when the margin of its sample i is below 1; ``seen`` is F_theta(x_i).

        It may move theta, and add to alpha_i; it returns what it has added.
        """
        raise NotImplementedError

    def g(self, s: Float64[np.ndarray, " p"], t: Int64[np.ndarray, " p"]) -> Float64[np.ndarray, " p"]:
        """The decision value of step t."""
        g: np.ndarray = s / (self.lam * (t - 1))
        return g

    def violates(self, y: Float64[np.ndarray, " p"], g: Float64[np.ndarray, " p"]) -> Bool[np.ndarray, " p"]:
        """Whether the margin of a sample is below 1."""
        violating: np.ndarray = y * g < 1
        return violating

    def restore(self, problem: Problem, F: FeatureMap, saved: Mapping[str, Any]) -> S:
        state = super().restore(problem, F, saved)
        if not (1 <= state.moved <= max(1, state.t) and 0 <= state.gap <= self.total):
            raise ValueError(f"moved {state.moved}, gap {state.gap} at step {state.t}")
        if saved["stretch"] is not None:
            expect_keys(saved["stretch"], ["first", "s", "looked_at"])
            first, s, looked_at = (saved["stretch"][key] for key in ("first", "s", "looked_at"))
            if type(first) is not int or not 0 < first <= state.t + 1 <= first + len(s):
                raise ValueError(f"the stretch from step {first!r} on does not hold step {state.t}")
            coming = state.sampler.ahead(first)[: len(s), 0]
            s = loaded_like(torch.empty(len(coming), dtype=torch.float64), s, "s").numpy()
            if looked_at:
                state.stretch = self._look_at(problem, state, first, coming)
                state.stretch.s = s
            else:
                y = problem.y[torch.from_numpy(coming).to(problem.y.device)]
                state.stretch = Stretch(first, coming, y.double().cpu().numpy(), s)
            self._find_violation(state.stretch, state.t + 1)
        return state

    def step(self, problem: Problem, state: S) -> None:
        self.advance(problem, state, state.t + 1)

    def advance(self, problem: Problem, state: S, until: int) -> None:
        while state.t < until:
            if state.stretch is None or state.t == state.stretch.last:
                state.stretch = self._look_ahead(problem, state)
            stretch = state.stretch
            t = min(until, stretch.violation, stretch.last)
            state.g = float(stretch.g[t - stretch.first])
            if t == stretch.violation:
                state.t = t - 1  # what raises there is about step t
                if not math.isfinite(state.g):
                    raise NotFiniteError("the decision value g")
                self._violation(problem, state, stretch, t)
            state.t = t

    def _look_ahead(self, problem: Problem, state: S) -> Stretch:
        first, quiet = state.t + 1, state.t - state.moved
        coming = state.sampler.ahead(first)[:, 0]
        if self.fixed(state):
            stretch = self._look_at(problem, state, first, coming[:FIXED])
        elif quiet < len(problem.y):
            stretch = self._look_at(problem, state, first, coming[: look_ahead(max(state.gap, float(quiet)))])
        else:
            stretch = self._look_up(problem, state, first, coming)
        self._find_violation(stretch, first)
        return stretch

    def _look_at(self, problem: Problem, state: S, first: int, coming: Int64[np.ndarray, " p"]) -> Stretch:
        i = torch.from_numpy(coming).to(problem.y.device)
        seen = self.look_at(problem, state, i)
        y, s = torch.stack([problem.y[i], self.s(problem, state, seen.z)]).double().cpu().numpy()
        K = problem.K(seen.z, seen.z).cpu().numpy() if self.fixed(state) else None
        return Stretch(first, coming, y, s, K=K, seen=seen)

    def _look_up(self, problem: Problem, state: S, first: int, coming: Int64[np.ndarray, " p"]) -> Stretch:
        """From s_i of every sample: after m quiet steps, computing them all pays for itself within m more."""
        if state.all_s is None:
            s = self.s(problem, state, state.F(problem.x))
            state.all_s = torch.stack([problem.y, s]).double().cpu().numpy()
        y, s = state.all_s[:, coming]
        return Stretch(first, coming, y, s)

    def _find_violation(self, stretch: Stretch, t: int) -> None:
        """Looks for the first violation from step t on."""
        at = t - stretch.first
        s, y = stretch.s[at:], stretch.y[at:]
        with np.errstate(all="ignore"):  # what is not finite counts as found, and is said in a sentence
            stretch.g[at:] = g = self.g(s, np.arange(t, t + len(s)))
        found = (self.violates(y, g) | ~np.isfinite(g)).nonzero()[0]
        stretch.violation = t + int(found[0]) if len(found) else stretch.last + 1

    def _violation(self, problem: Problem, state: S, stretch: Stretch, t: int) -> None:
        at = t - stretch.first
        i = int(stretch.i[at])
        seen = stretch.seen.row(at) if stretch.seen else state.F.evaluate(problem.x[i : i + 1])
        added = self.violation(problem, state, t, i, seen)
        state.violations += 1
        state.gap += (t - state.moved - state.gap) / 8
        state.moved, state.all_s = t, None
        if stretch.K is None:
            state.stretch = None
        else:
            stretch.s += added * stretch.y[at] * stretch.K[at]
            self._find_violation(stretch, t + 1)


def look_ahead(gap: float) -> int:
    """How many steps to look ahead, with a violation every ``gap`` steps or so.

    Looking once costs about as much as 32 samples do. So B steps at a time cost (32 + B) for each
    B (1 - B / (2 gap)) that are made use of, which is least near B = sqrt(64 gap).
    """
    return max(1, round(math.sqrt(64 * gap)))
