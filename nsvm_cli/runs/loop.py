"""The only loop over t."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nsvm_cli.errors import NotFiniteError, RunError
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.trainers import Problem, State, Trainer

Record = dict[str, Any]

PATIENCE = 0.25
"""Seconds between two pauses, about."""


@dataclass(frozen=True)
class Watch:
    """Figures of a state beyond those of ``record``, taken after every ``every``-th step and the last."""

    every: int
    figures: Callable[[State], Record]


@dataclass(frozen=True)
class Pause:
    """What is done between two steps, several times a second; after every ``every``-th step in any case."""

    do: Callable[[State], None]
    every: int | None = None


def run(
    trainer: Trainer[Any],
    problem: Problem,
    F: FeatureMap,
    every: int,
    observe: Callable[[Record], None],
    watch: Watch | None = None,
    pause: Pause | None = None,
    state: State | None = None,
) -> State:
    """Trains to the end, from the beginning or from a ``state`` that was restored; ``observe`` gets a record
    after every ``every``-th step, after every one that is watched, and after the last.

    Raises:
        RunError: theta, g or the objective is no longer finite.
    """
    intervals = [every] if watch is None else [every, watch.every]

    def figures(state: State) -> Record:
        if watch and (state.t % watch.every == 0 or state.t == trainer.total):
            return record(state) | watch.figures(state)
        return record(state)

    if state is None:
        state = trainer.start(problem, F)
        if state.t == trainer.total:
            observe(figures(state))
    piece = 1
    while state.t < trainer.total:
        due = min(trainer.total, *(state.t + n - state.t % n for n in intervals))
        stops = [due]
        if pause:
            piece = problem.processes.broadcast(piece)  # several pause at the same steps
            stops.append(state.t + piece)
        if pause and pause.every:
            stops.append(state.t + pause.every - state.t % pause.every)
        began, before = time.monotonic(), state.t
        _advance(trainer, problem, state, min(stops))
        done = state.t - before
        piece = 2 * done if time.monotonic() - began < PATIENCE / 2 else max(1, done // 2)
        if state.t == due:
            observe(figures(state))
        if pause:
            pause.do(state)
    return state


def _advance(trainer: Trainer[Any], problem: Problem, state: State, until: int) -> None:
    try:
        trainer.advance(problem, state, until)
    except NotFiniteError as error:
        raise diverged(state.t + 1, error.quantity) from None


def record(state: State) -> Record:
    """The figures worth watching at a step; reads the state and changes nothing.

    Raises:
        RunError: theta is no longer finite.
    """
    if not all(bool(p.isfinite().all()) for p in state.F.network.parameters()):
        raise diverged(state.t, "theta")
    return {
        "step": state.t,
        "violations": state.violations,
        "support_vectors": state.support_vectors,
        "objective": None if state.objective is None else float(state.objective),
    }


def diverged(step: int, quantity: str) -> RunError:
    """What is said of a quantity that is not finite, and what helps."""
    return RunError(
        f"training diverged at step {step}: {quantity} is not finite; lower optimizer.lr, raise "
        "optimizer.weight_decay, or keep kernel values small with network.normalize or kernel.normalize"
    )
