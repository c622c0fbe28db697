"""The training loop, which drives every algorithm from its first step to its last."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from nsvm_cli.errors import NotFiniteError, RunError
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.trainers import Problem, State, Trainer

Record = dict[str, Any]

PAUSE_SECONDS = 0.25
"""Approximate time between two calls of ``on_step_end``."""


class Callback:
    """Base class of callbacks, which observe training without affecting its result.

    The loop calls them in their order. ``log_every`` requests ``on_log`` at every multiple of this number of
    steps and after the last one; ``step_every`` requests ``on_step_end`` at every multiple, too.
    """

    log_every: int | None = None
    step_every: int | None = None

    def on_train_start(self) -> None:
        """Called before the first step."""

    def on_log(self, state: State, record: Record) -> None:
        """Called with the record of a step; may add fields to it."""

    def on_step_end(self, state: State) -> None:
        """Called after a step, several times a second, and after the last one."""

    def should_stop(self, state: State) -> bool:
        """Return whether to stop training; called after ``on_step_end``."""
        return False

    def on_train_end(self, state: State, stopped: bool) -> None:
        """Called after the last step, or when a callback has ``stopped`` training."""


class OnLog(Callback):
    """Call a function with each record."""

    def __init__(self, function: Callable[[Record], object]) -> None:
        self.function = function

    def on_log(self, state: State, record: Record) -> None:
        self.function(record)


def run(
    trainer: Trainer[Any],
    problem: Problem,
    F: FeatureMap,
    log_every: int,
    callbacks: Sequence[Callback] = (),
    state: State | None = None,
) -> State:
    """Train from the first step, or from a restored ``state``, to the last, and return the final state.

    Callbacks get a record after every ``log_every`` steps, after the last theta step and after the last step,
    with means over the steps since the previous record. Further records that a callback requests hold no
    means, so that requesting them does not change the others.

    Raises:
        RunError: theta, g or the objective is no longer finite.
    """
    for callback in callbacks:
        callback.on_train_start()
    if state is None:
        state = trainer.start(problem, F)
        if 0 < state.t == trainer.total:
            _log(state, callbacks, means=True)
    stopped = _steps(trainer, problem, state, log_every, callbacks)
    for callback in callbacks:
        callback.on_train_end(state, stopped)
    return state


def _steps(
    trainer: Trainer[Any], problem: Problem, state: State, log_every: int, callbacks: Sequence[Callback]
) -> bool:
    """Take the remaining steps, and return whether a callback stopped training."""
    logs = [log_every, *(c.log_every for c in callbacks if c.log_every)]
    parts = (trainer.last_theta_step, trainer.total)
    ends = [c.step_every for c in callbacks if c.step_every]
    piece = 1
    while state.t < trainer.total:
        log_at = min(*(t for t in parts if t > state.t), *(_next_multiple(state.t, n) for n in logs))
        began, before = time.monotonic(), state.t
        until = min(log_at, state.t + piece, *(_next_multiple(state.t, n) for n in ends))
        _advance(trainer, problem, state, until)
        done = state.t - before
        piece = 2 * done if time.monotonic() - began < PAUSE_SECONDS / 2 else max(1, done // 2)
        if state.t == log_at:
            _log(state, callbacks, means=state.t % log_every == 0 or state.t in parts)
        for callback in callbacks:
            callback.on_step_end(state)
        if any(callback.should_stop(state) for callback in callbacks):
            return True
    return False


def _next_multiple(t: int, n: int) -> int:
    return t + n - t % n


def _log(state: State, callbacks: Sequence[Callback], means: bool) -> None:
    figures = record(state)
    if means:
        state.tally.clear()
    else:
        figures |= dict.fromkeys(state.tally.means())
    for callback in callbacks:
        callback.on_log(state, figures)


def _advance(trainer: Trainer[Any], problem: Problem, state: State, until: int) -> None:
    try:
        trainer.advance(problem, state, until)
    except NotFiniteError as error:
        raise diverged(error.step, error.quantity, trainer.moves_theta) from None


def record(state: State) -> Record:
    """Return the record of a step.

    Raises:
        RunError: theta is no longer finite.
    """
    if not all(bool(p.isfinite().all()) for p in state.F.network.parameters()):
        raise diverged(state.t, "theta")
    return {
        "step": state.t,
        "violations": state.violations,
        "support_vectors": state.support_vectors,
        **({} if state.part is None else {"part": state.part}),
        **state.tally.means(),
    }


def diverged(step: int, quantity: str, moves_theta: bool = True) -> RunError:
    """Return the error for a quantity that is not finite, with advice."""
    advice = "lower optimizer.lr, raise optimizer.weight_decay or algorithm.lam"
    return RunError(
        f"training diverged at step {step}: {quantity} is not finite; "
        f"{advice if moves_theta else 'raise algorithm.lam'}, "
        "or keep kernel values small with network.normalize or kernel.normalize"
    )
