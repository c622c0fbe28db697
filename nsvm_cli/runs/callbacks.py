"""Callbacks of a run: metrics, the best model, checkpoints, and stopping on a signal."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from nsvm_cli.artifacts.model_file import save_model
from nsvm_cli.config.settings import plain
from nsvm_cli.errors import InputError
from nsvm_cli.models.feature_map import features
from nsvm_cli.models.objectives import full_objective
from nsvm_cli.parallel.signals import Signals
from nsvm_cli.runs.checkpoint import (
    Checkpoint,
    environment,
    identity,
    mismatches,
    newest_intact,
    restore_state,
    save_checkpoint,
    with_engine_of,
)
from nsvm_cli.runs.experiment import Experiment, calibrated, movement, uncalibrated
from nsvm_cli.runs.loop import Callback, Record, record
from nsvm_cli.storage.metrics_file import START, check_metrics
from nsvm_cli.storage.run_directory import METRICS, RunDirectory, checkpoints_in, is_finished
from nsvm_cli.trainers import State

Say = Callable[[str], object]
"""Shows a message to the user."""


class MetricsWriter(Callback):
    """Append each record to the metrics of the run, and its time to ``times.jsonl``."""

    def __init__(self, directory: RunDirectory, checkpoints: CheckpointManager) -> None:
        self.directory, self.checkpoints = directory, checkpoints

    def on_log(self, state: State, record: Record) -> None:
        self.directory.metrics.append(record)
        self.directory.times.append({"step": state.t, "seconds": round(self.checkpoints.seconds, 4)})


class BestModel(Callback):
    """Score the model on the validation set after every ``validation.every`` steps, and save the best one.

    ``best`` holds the best score so far and its step.
    """

    def __init__(self, experiment: Experiment, directory: RunDirectory) -> None:
        self.experiment, self.directory = experiment, directory
        self.log_every = experiment.settings.validation.every
        self.best: tuple[float, int] | None = None

    def on_log(self, state: State, record: Record) -> None:
        e = self.experiment
        if self.log_every and (state.t % self.log_every == 0 or state.t == e.trainer.total):
            record |= self._validate(state)

    def _validate(self, state: State) -> Record:
        e = self.experiment
        if not e.trainer.classifies(state):
            return {}
        split, metric = e.data.splits["validation"], e.data.task.metric
        model = uncalibrated(e, state)  # the metric is the same
        score = model.score(split.x, split.y)[metric]
        if score is not None and (self.best is None or score > self.best[0]):
            self.best = score, state.t
            if e.algorithm.saves_model:
                save_model(self.directory.best, calibrated(e, model).with_facts(**movement(e, model)))
        return {f"validation_{metric}": score}

    def figures(self) -> dict[str, Any]:
        """Return the fields of the result about the best model."""
        names = (f"best_validation_{self.experiment.data.task.metric}", "best_step")
        return dict(zip(names, self.best or (), strict=False))

    def finish(self) -> None:
        """Remove a best model that an interrupted run left, if none took its place."""
        if self.best is None:
            self.directory.best.unlink(missing_ok=True)


class FullObjective(Callback):
    """Add the objective of the SVM on all training samples to each record, if the settings ask for it."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment

    def on_log(self, state: State, record: Record) -> None:
        e, problem = self.experiment, self.experiment.problem
        if e.settings.full_objective and e.trainer.classifies(state):
            f, z = e.trainer.finish(problem, state), features(e.F.network, problem.x)
            value = full_objective(f, problem.K, z, problem.y, problem.loss, e.trainer.lam)
            record["full_objective"] = value if value is not None and math.isfinite(value) else None


class CheckpointManager(Callback):
    """Write checkpoints during a run, and restore a run from them. The score of ``best`` is part of one."""

    def __init__(
        self,
        experiment: Experiment,
        directory: RunDirectory,
        best: BestModel,
        signals: Signals | None,
        say: Say = lambda line: None,
    ) -> None:
        self.experiment, self.path, self.directory = experiment, directory.path, directory
        self.best, self.signals, self.say = best, signals, say
        self.every = experiment.settings.checkpoint
        self.step_every = self.every.steps
        self.resumed, self.bitwise = 0, True
        self.began = self.saved = time.monotonic()
        self.train_seconds = self._seconds_before = 0.0
        self._saved_step: int | None = None

    def restore(self, allow_mismatch: bool) -> State | None:
        """Return the state of the newest intact checkpoint; None if there is no checkpoint yet.

        Raises:
            InputError: the checkpoint does not fit this run, its settings or environment differ without
                ``allow_mismatch``, or every checkpoint is damaged.
        """
        e = self.experiment
        checkpoint = self._newest()
        if checkpoint is not None and e.settings.engine == "auto":  # depends on compiled code
            self.experiment = e = with_engine_of(checkpoint, e)
        changes = self._mismatches(checkpoint)
        if changes and not allow_mismatch:
            raise InputError(
                f"{self.path} cannot be resumed bit for bit: {'; '.join(changes)}; restore these, or accept "
                "a different result with allow_mismatch=true"
            )
        state = None if checkpoint is None else restore_state(e, checkpoint)
        if is_finished(self.path):
            if state is not None and state.t == e.trainer.total:
                raise InputError(f"{self.path} has taken all {state.t} steps: expected more of them")
            self.directory.reopen()
        self.directory.update_config(plain(e.settings))
        self.directory.open_metrics(START if checkpoint is None else checkpoint.metrics)
        if checkpoint is not None and state is not None:
            self._seconds_before, self.best.best = checkpoint.seconds, None if changes else checkpoint.best
            self.resumed, self.bitwise = checkpoint.resumed + 1, checkpoint.bitwise and not changes
            self.say(f"resuming after step {state.t} of {e.trainer.total}")
        return state

    def _newest(self) -> Checkpoint | None:
        """Return the newest intact checkpoint; None if there is none."""
        paths = checkpoints_in(self.path)
        try:
            found = newest_intact(paths, self.say, lambda c: check_metrics(self.path / METRICS, c.metrics))
        except ValueError as error:
            raise InputError(f"{error}; start over with overwrite=true") from None
        return found[1] if found else None

    def _mismatches(self, checkpoint: Checkpoint | None) -> list[str]:
        settings = plain(self.experiment.settings)
        if checkpoint is not None:
            was = identity(checkpoint.settings, checkpoint.environment)
            return mismatches(was, identity(settings, environment(self.experiment)))
        return mismatches(identity(self.directory.recorded, {}), settings)

    def on_train_start(self) -> None:
        self.began = self.saved = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds of training so far, including those before the run was resumed."""
        return self._seconds_before + time.monotonic() - self.began

    def on_step_end(self, state: State) -> None:
        e = self.experiment
        due = bool(self.every.steps and state.t % self.every.steps == 0) or (
            self.every.seconds is not None and time.monotonic() - self.saved >= self.every.seconds
        )
        asked = self.signals is not None and self.signals.take_checkpoint_request()
        if due or (asked and self.every.every is not None):
            self.save(state)
            if asked:
                self.say(f"checkpoint after step {state.t} of {e.trainer.total}")

    def on_train_end(self, state: State, stopped: bool) -> None:
        self.train_seconds = self.seconds
        if self.every.every is not None and self._saved_step != state.t:  # no duplicate takes a place
            self.save(state)

    def save(self, state: State) -> None:
        """Write a checkpoint.

        Raises:
            RunError: the run has diverged; its last good checkpoint is kept.
        """
        record(state)  # raises if theta is not finite
        e = self.experiment
        checkpoint = Checkpoint(
            step=state.t,
            seconds=self.seconds,
            best=self.best.best,
            resumed=self.resumed,
            bitwise=self.bitwise,
            metrics=self.directory.metrics.position(),
            settings=plain(e.settings),
            environment=environment(e),
            values={"F": e.F.state_dict(), "state": state.state_dict()},
        )
        write = partial(save_checkpoint, checkpoint=checkpoint)
        self.directory.add_checkpoint(write, state.t, self.every)
        self.saved, self._saved_step = time.monotonic(), state.t

    def figures(self) -> dict[str, Any]:
        """Return the fields of the result about time and resuming."""
        return {
            "train_seconds": round(self.train_seconds, 3),
            "resumed": self.resumed,
            "exact": self.bitwise,
        }


class StopOnSignal(Callback):
    """Stop between two steps after a signal.

    ``signum`` is the signal that stopped the run, or 0. Once training is complete there is nothing more to
    save, so that a signal then ends the process at once, with ``message``.
    """

    def __init__(self, signals: Signals | None, message: str) -> None:
        self.signals, self.message = signals, message
        self.signum = 0

    def should_stop(self, state: State) -> bool:
        self.signum = (self.signals and self.signals.noted) or 0
        return self.signum != 0

    def on_train_end(self, state: State, stopped: bool) -> None:
        if self.signals and not stopped:
            self.signals.end_at_once(self.message)
