"""The only loop over t."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nsvm_cli.errors import RunError
from nsvm_cli.features import Theta
from nsvm_cli.trainers import Problem, State, Trainer

Record = dict[str, Any]


@dataclass(frozen=True)
class Watch:
    """Figures of a state beyond those of ``record``, taken after every ``every``-th step and the last."""

    every: int
    figures: Callable[[State], Record]


def run(
    trainer: Trainer[Any],
    problem: Problem,
    F: Theta,
    every: int,
    observe: Callable[[Record], None],
    watch: Watch | None = None,
) -> State:
    """Trains to the end; ``observe`` gets a record after every ``every``-th step, after every one that is
    watched, and after the last.

    Raises:
        RunError: theta or the objective is no longer finite.
    """
    intervals = [every] if watch is None else [every, watch.every]

    def figures(state: State) -> Record:
        if watch and (state.t % watch.every == 0 or state.t == trainer.total):
            return record(state) | watch.figures(state)
        return record(state)

    state: State = trainer.start(problem, F)
    if state.t == trainer.total:
        observe(figures(state))
    while state.t < trainer.total:
        trainer.advance(problem, state, min(trainer.total, *(state.t + n - state.t % n for n in intervals)))
        observe(figures(state))
    return state


def record(state: State) -> Record:
    """The figures worth watching at a step; reads the state and changes nothing."""
    watched = [*state.F.network.parameters()] + ([] if state.objective is None else [state.objective])
    finite = state.g is None or math.isfinite(state.g)
    if not (finite and all(bool(v.isfinite().all()) for v in watched)):
        raise RunError(
            f"training diverged by step {state.t}: theta, g or the objective is not finite; "
            "lower optimizer.lr, or raise optimizer.weight_decay"
        )
    return {
        "step": state.t,
        "violations": state.violations,
        "support_vectors": state.support_vectors,
        "objective": None if state.objective is None else float(state.objective),
    }
