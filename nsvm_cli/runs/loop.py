"""The training loop, which runs the steps of every algorithm, and the callbacks that observe it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic.dataclasses import dataclass

from nsvm_cli.artifacts.model_file import save_model
from nsvm_cli.config.registry import STRICT, Count, Registry
from nsvm_cli.errors import InputError, NotFiniteError, RunError, did_you_mean
from nsvm_cli.metrics import METRICS, sign_of
from nsvm_cli.models.feature_map import FeatureMap, features
from nsvm_cli.models.objectives import full_objective
from nsvm_cli.output import say
from nsvm_cli.randomness import SEEDING
from nsvm_cli.storage.state_dict import Saved
from nsvm_cli.trainers import Problem, State, Trainer
from nsvm_cli.trainers.means import Tally

Record = dict[str, Any]


class Callback(Saved):
    """Base class of callbacks, which observe training and may stop it.

    The loop calls ``on_log`` at every multiple of ``log_every`` steps and after the last step, and
    ``on_step_end`` at least at every multiple of ``step_every`` steps. ``saved`` lists the attributes that
    are stored in checkpoints. A class in ``CALLBACKS`` is constructed from an ``Experiment`` and its
    settings, perhaps more than once. From ``on_train_start`` on, ``trainer`` is the algorithm, and ``folder``
    is the run directory, or None if the run writes no files.
    """

    trainer: Trainer[Any]
    folder: Path | None = None
    log_every: int | None = None
    step_every: int | None = None
    saved: Sequence[str] = ()

    def on_train_start(self) -> None:
        """Called before the first step."""

    def on_first_state(self, state: State) -> None:
        """Called with the state before the first step, unless the run resumes."""

    def on_log(self, state: State, record: Record) -> str | None:
        """Called with the record of a step. May add values to it, and return a reason to end the run."""
        return None

    def on_step_end(self, state: State) -> None:
        """Called after a step, several times a second, and after the last step."""

    def should_interrupt(self, state: State) -> bool:
        """Called after ``on_step_end``. Return whether to interrupt training, to resume it later."""
        return False

    def on_train_end(self, state: State, stopped: str | None) -> None:
        """Called when training ends or is interrupted. ``stopped`` is the reason of a callback, or None."""


class OnLog(Callback):
    """Calls a function with each record."""

    def __init__(self, function: Callable[[Record], object]) -> None:
        self.function = function

    def on_log(self, state: State, record: Record) -> None:
        self.function(record)


class Scores(Callback):
    """Records the full objective and, every ``validation.every`` steps, the score on the validation set.

    If ``file`` is set, the model with the best score is saved there.
    """

    saved = ("best", "best_step")
    file: Path | None = None
    best_model: Any = None  # without a file, the best model so far if the settings keep it

    def __init__(self, experiment: Any) -> None:
        self.experiment = experiment
        self.log_every = experiment.settings.validation.every
        self.best, self.best_step = 0.0, 0

    def on_log(self, state: State, record: Record) -> None:
        e, p, every = self.experiment, self.experiment.problem, self.log_every
        if not e.trainer.has_svm(state):
            return
        if every and (state.t % every == 0 or state.t == e.trainer.total):
            self._validate(state, record)
        if e.settings.full_objective:
            f, z = e.trainer.finish(p, state), features(e.F.network, p.x)
            w = p.w(np.arange(len(p.y)))
            value = full_objective(f, p.K, z, p.y, p.loss, e.trainer.lam, w)
            record["full_objective"] = value if value is not None and math.isfinite(value) else None

    def _validate(self, state: State, record: Record) -> None:
        e, split = self.experiment, self.experiment.data.splits["validation"]
        metric, sign = e.metric, sign_of(e.metric)
        model = e.model(state)  # calibrated only if the metric depends on it, because it takes time
        model = e.calibrated(model) if METRICS[metric].needs == "probabilities" else model
        record[f"validation_{metric}"] = score = model.score(split.x, split.y, split.weight)[metric]
        if score is not None and (not self.best_step or sign * score > sign * self.best):
            self.best, self.best_step = score, state.t
            if self.file and e.algorithm.saves_model:
                save_model(self.file, e.with_changes(e.calibrated(model)))
            elif e.settings.keep == "best" and not self.file:
                self.best_model = deepcopy(e.calibrated(model))

    def on_train_start(self) -> None:
        """Remove an earlier best model if no best model was restored."""
        if self.file and not self.best_step:
            self.file.unlink(missing_ok=True)

    def figures(self) -> dict[str, Any]:
        """Return the fields of the result about the best model; empty if there is none."""
        best = {f"best_validation_{self.experiment.metric}": self.best, "best_step": self.best_step}
        return best if self.best_step else {}


@dataclass(config=STRICT)
class EarlyStopping(Callback):
    """Stops training when ``metric`` has not improved in ``patience`` consecutive records that contain it.

    The default metric is the score on the validation set. Lower values of objectives, violation rates, losses
    and errors are better; higher values of all other metrics are better.
    """

    experiment: Any
    metric: str | None = None
    patience: Count = 10

    saved = ("best", "best_step", "since")
    best, best_step, since = 0.0, 0, 0

    def __post_init__(self) -> None:
        s, validation = self.experiment.settings, f"validation_{self.experiment.metric}"
        self.figure = self.metric or validation
        figures = [*Tally().means(), "full_objective", validation]
        if self.figure not in figures and len(s.callbacks) == 1:  # a second callback may add the metric
            raise ValueError(f"metric={self.figure} is unknown; {did_you_mean(self.figure, figures)}")
        if self.figure == validation and not s.validation.every:
            raise ValueError(f"metric={validation} requires validation.every: set it to a number of steps")

    def on_log(self, state: State, record: Record) -> str | None:
        if (value := record.get(self.figure)) is None:
            return None
        sign = sign_of(self.figure)
        if not self.best_step or sign * value > sign * self.best:
            self.best, self.best_step, self.since = value, state.t, 0
            return None
        self.since += 1
        reason = f"{self.figure} has not improved since step {self.best_step}, when it was {self.best:.6g}"
        return reason if self.since >= self.patience else None


CALLBACKS: Registry[Callable[..., Callback]] = Registry("callback", Callback)
CALLBACKS |= {"early_stopping": EarlyStopping}


def run(
    trainer: Trainer[Any],
    problem: Problem,
    F: FeatureMap,
    log_every: int,
    callbacks: Sequence[Callback] = (),
    state: State | None = None,
) -> State:
    """Train from the first step, or from a restored ``state``, to the last step, and return the final state.

    Callbacks receive records at every multiple of ``log_every`` steps, after the last theta step and after
    the last step, with means over the steps since the previous record. Additional records that a callback
    requests contain no means.

    Raises:
        InputError: a callback stops training before there is an SVM.
        RunError: theta, g or the objective is not finite.
    """
    for callback in callbacks:
        callback.trainer = trainer
        callback.on_train_start()
    if state is None:
        state = trainer.start(problem, F)
        for callback in callbacks:
            callback.on_first_state(state)
        if 0 < state.t == trainer.total:
            _log(trainer, state, callbacks, means=True)
    with SEEDING:
        before = torch.get_rng_state()
    stopped = _steps(trainer, problem, state, log_every, callbacks)
    with SEEDING:
        if not before.equal(torch.get_rng_state()):
            say("training used torch's global random generator, which the seed does not control")
    for callback in callbacks:
        callback.on_train_end(state, stopped)
    return state


def _steps(
    trainer: Trainer[Any], problem: Problem, state: State, log_every: int, callbacks: Sequence[Callback]
) -> str | None:
    """Take the remaining steps. Return the reason why a callback has stopped training, or None."""
    log_intervals = [log_every, *(c.log_every for c in callbacks if c.log_every)]
    last_steps = (trainer.last_theta_step, trainer.total)
    step_intervals = [c.step_every for c in callbacks if c.step_every]
    chunk = 1
    while state.t < trainer.total:
        multiples = ((state.t // n + 1) * n for n in log_intervals)
        log_at = min(*(t for t in last_steps if t > state.t), *multiples)
        start_time, start_step = time.monotonic(), state.t
        until = min(log_at, state.t + chunk, *((state.t // n + 1) * n for n in step_intervals))
        try:
            trainer.advance(problem, state, until)
        except NotFiniteError as error:
            if error.step == 1:
                raise RunError(
                    f"{error}, before theta changes: check the network, or {KERNEL_ADVICE}"
                ) from None
            raise diverged(error.step, error.quantity, trainer.moves_theta) from None
        # a chunk takes about 1/4 second, so that callbacks are called several times a second
        done, is_short = state.t - start_step, time.monotonic() - start_time < 0.125
        chunk = max(1, 2 * done if is_short else done // 2)
        if state.t == log_at:
            means = state.t % log_every == 0 or state.t in last_steps
            if stopped := _log(trainer, state, callbacks, means):
                return stopped
        for callback in callbacks:
            callback.on_step_end(state)
        if any(callback.should_interrupt(state) for callback in callbacks):
            break
    return None


def _log(trainer: Trainer[Any], state: State, callbacks: Sequence[Callback], means: bool) -> str | None:
    """Pass a record to the callbacks. Return the reason why a callback stops training, or None.

    Without ``means``, the record lies between two multiples of ``log_every``, and its running means are None.
    """
    figures = record(state)
    if means:
        state.tally.clear()
    else:
        figures |= dict.fromkeys(state.tally.means())
    reasons = [reason for callback in callbacks if (reason := callback.on_log(state, figures))]
    if reasons and not (trainer.parts[-1].chooses_steps or trainer.has_svm(state)):
        advice = "use a metric of Part 2, such as a validation score, or set algorithm.solver=svc"
        problem = f"training cannot stop at step {state.t}, because Part 1 has no SVM yet"
        raise InputError(f"callbacks: {reasons[0]}, but {problem}: {advice}")
    return reasons[0] if reasons else None


def record(state: State) -> Record:
    """Return the record of a step. Raise a RunError if theta is not finite."""
    if not all(bool(p.isfinite().all()) for p in state.F.network.parameters()):
        raise diverged(state.t, "theta")
    return {
        "step": state.t,
        "violations": state.violations,
        "support_vectors": state.support_vectors,
        **({} if state.part is None else {"part": state.part}),
        **state.figures,
        **state.tally.means(),
    }


KERNEL_ADVICE = "set network.normalize or kernel.normalize to keep kernel values small"


def diverged(step: int, quantity: str, moves_theta: bool = True) -> RunError:
    """Return an error which says that a quantity is not finite and which settings to change."""
    advice = "lower optimizer.lr, raise optimizer.weight_decay or algorithm.lam"
    return RunError(
        f"training diverged at step {step}: {quantity} is not finite; "
        f"{advice if moves_theta else 'raise algorithm.lam'}, or {KERNEL_ADVICE}"
    )
