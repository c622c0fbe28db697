"""Callbacks of every run: scores, and what is written while it goes on, until a signal stops it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nsvm_cli.artifacts.model_file import save_model
from nsvm_cli.config.registry import shown
from nsvm_cli.config.settings import plain
from nsvm_cli.errors import InputError, Interrupted
from nsvm_cli.models.feature_map import features
from nsvm_cli.models.objectives import full_objective
from nsvm_cli.output import Say
from nsvm_cli.parallel.signals import Signals
from nsvm_cli.runs.checkpoint import (
    Checkpoint,
    environment,
    mismatches,
    newest_intact,
    restore_state,
    save_checkpoint,
    with_engine_of,
)
from nsvm_cli.runs.experiment import Experiment
from nsvm_cli.runs.loop import Callback, Record, record
from nsvm_cli.storage.metrics_file import check_metrics
from nsvm_cli.storage.run_directory import METRICS, RunDirectory, checkpoints_in, is_finished, resume_command
from nsvm_cli.storage.state_dict import StateDict
from nsvm_cli.tasks import OF_PROBABILITIES, sign_of
from nsvm_cli.trainers import State


class CheckpointManager(Callback):
    """Write records and checkpoints during a run, restore it from them, and stop it after a signal.

    It comes after the callbacks that add figures to records.

    Attributes:
        seconds_before: those of training before the loop: of earlier starts of the run, and of a search.
        resumed, exact: how often the run was resumed, and whether with its own settings and environment.
        callbacks: those whose states a checkpoint holds.
        stopped: why one of them has stopped the run; None if none has.
    """

    def __init__(self, experiment: Experiment, directory: RunDirectory, signals: Signals, say: Say) -> None:
        self.experiment, self.directory = experiment, directory
        self.signals, self.say = signals, say
        self.wanted = experiment.settings.checkpoint
        self.step_every = self.wanted.steps
        self.seconds_before, self.resumed, self.exact = 0.0, 0, True
        self.callbacks: Sequence[Callback] = ()
        self.stopped: str | None = None
        self._restored: StateDict = {}
        self.began = self.saved_at = time.monotonic()

    def restore(self, allow_mismatch: bool) -> State | None:
        """Return the state of the newest intact checkpoint; None if there is no checkpoint yet.

        What the experiment chooses before its first step, it takes from the checkpoint, or else chooses now.

        Raises:
            InputError: there are no further steps, the checkpoint does not fit this run, its settings or
                environment differ without ``allow_mismatch``, or every checkpoint is damaged.
        """
        checkpoint = self._newest()
        if checkpoint is not None and self.experiment.settings.engine == "auto":  # depends on compiled code
            self.experiment = with_engine_of(checkpoint, self.experiment)
        self._expect_steps(checkpoint)
        changes = self._changes(checkpoint)
        if changes and not allow_mismatch:
            advice = "restore these, or accept a different result with allow_mismatch=true"
            path = self.directory.path
            raise InputError(f"{path} cannot be resumed bit for bit: {'; '.join(changes)}; {advice}")
        began = time.monotonic()
        if checkpoint is None or changes:
            self.experiment = self.experiment.searched()
        else:
            self.experiment = self.experiment.with_choice(checkpoint.chosen, checkpoint.search)
        self.seconds_before = time.monotonic() - began
        if checkpoint is None:
            self.directory.resume(plain(self.experiment.asked))
            return None
        state = restore_state(self.experiment, checkpoint)
        self.directory.resume(plain(self.experiment.asked), checkpoint.metrics)
        self.seconds_before += checkpoint.seconds
        self.resumed, self.exact = checkpoint.resumed + 1, checkpoint.bitwise and not changes
        if not changes:
            self._restored, self.stopped = checkpoint.values["callbacks"], checkpoint.stopped
        why = f", where it was stopped: {self.stopped}" if self.stopped else ""
        self.say(f"resuming after step {checkpoint.step} of {self.experiment.trainer.total}{why}")
        return state

    def restore_callbacks(self, callbacks: Sequence[Callback]) -> None:
        """Restore the states of callbacks, unless the run is new or has changed, and save them later."""
        self.callbacks = callbacks
        try:
            states = {**self._restored}
            for i, callback in enumerate(callbacks if states else ()):
                callback.load_state_dict(states.get(str(i), {}))  # a file has no empty states
        except (ValueError, TypeError) as error:
            raise InputError(f"the checkpoint does not fit the callbacks: {error}") from None

    def _newest(self) -> Checkpoint | None:
        paths, metrics = checkpoints_in(self.directory.path), self.directory.path / METRICS
        try:
            found = newest_intact(paths, self.say, lambda c: check_metrics(metrics, c.metrics))
        except ValueError as error:
            raise InputError(f"{error}; start over with overwrite=true") from None
        return found[1] if found else None

    def _expect_steps(self, checkpoint: Checkpoint | None) -> None:
        """Raise an InputError if the run has finished and no step is left, whatever may have changed."""
        path, total = self.directory.path, self.experiment.trainer.total
        if checkpoint is not None and is_finished(path) and checkpoint.step == total:
            if total == 0:
                raise InputError(f"{path} has no steps to resume: start a new run")
            raise InputError(f"{path} has taken all {total} steps: expected more of them")

    def _changes(self, checkpoint: Checkpoint | None) -> list[str]:
        """Return what has changed since the checkpoint or, without one, since the run was begun."""
        settings = self.experiment.asked
        if checkpoint is None:
            return mismatches(self.directory.recorded, settings)
        now = environment(self.experiment)
        return mismatches(checkpoint.settings, settings, checkpoint.environment, now)

    def on_train_start(self) -> None:
        self.began = self.saved_at = time.monotonic()

    def on_first_state(self, state: State) -> None:
        """Refuse a run that files cannot hold, before it takes time."""
        path, e = self.directory.path, self.experiment
        if self.wanted.every is not None:
            save_checkpoint(path, self._checkpoint(state), only_check=True)
        if e.algorithm.saves_model:
            save_model(path, e.untrained(), only_check=True)

    @property
    def seconds(self) -> float:
        """Seconds of training so far."""
        return self.seconds_before + time.monotonic() - self.began

    def on_log(self, state: State, record: Record) -> None:
        """Append the record to the metrics of the run, and its time to ``times.jsonl``."""
        for name, value in record.items():
            if value is not None and not (isinstance(value, int | float) and math.isfinite(value)):
                raise InputError(f"callbacks: {name} is {shown(value)}, expected a finite number or None")
        self.directory.metrics.append(record)
        self.directory.times.append({"step": state.t, "seconds": round(self.seconds, 4)})

    def on_step_end(self, state: State) -> None:
        every, since = self.wanted, time.monotonic() - self.saved_at
        due = bool(every.steps and state.t % every.steps == 0)
        due = due or (every.seconds is not None and since >= every.seconds)
        asked = self.signals.take_checkpoint_request() and every.every is not None
        if due or asked:
            self.save(state)
        if asked:
            self.say(f"checkpoint after step {state.t} of {self.experiment.trainer.total}")

    def should_interrupt(self, state: State) -> bool:
        return self.signals.noted is not None

    def on_train_end(self, state: State, stopped: str | None) -> None:
        """Write the last checkpoint, and raise ``Interrupted`` after a signal.

        Nothing more is to be saved then: from now on a signal ends the process at once.
        """
        self.stopped, hint = stopped, ""
        if self.wanted.every is not None:
            self.save(state)
            command = resume_command(self.directory.path, self.experiment.settings.plugins)
            hint = f"; resume with {command}"
        if (signum := self.signals.noted) is not None:
            step = f"step {state.t} of {self.experiment.trainer.total}"
            raise Interrupted(signum, f"interrupted after {step}{hint}")
        self.signals.end_at_once(f"interrupted{hint}")

    def save(self, state: State) -> None:
        """Write a checkpoint.

        Raises:
            RunError: the run has diverged; its last good checkpoint is kept.
        """
        record(state)  # raises if theta is not finite
        write = partial(save_checkpoint, checkpoint=self._checkpoint(state))
        self.directory.add_checkpoint(write, state.t, self.wanted)
        self.saved_at = time.monotonic()

    def _checkpoint(self, state: State) -> Checkpoint:
        e, states = self.experiment, {str(i): c.state_dict() for i, c in enumerate(self.callbacks)}
        return Checkpoint(
            step=state.t,
            seconds=self.seconds,
            stopped=self.stopped,
            resumed=self.resumed,
            bitwise=self.exact,
            metrics=self.directory.metrics.position(),
            settings=plain(e.asked),
            chosen=e.chosen,
            search=e.search,
            environment=environment(e),
            values={"F": e.F.state_dict(), "state": state.state_dict(), "callbacks": states},
        )

    def figures(self) -> dict[str, Any]:
        """Return the fields of the result about time, stopping and resuming."""
        return {
            "train_seconds": round(self.seconds, 3),
            **({"stopped": self.stopped} if self.stopped else {}),
            "resumed": self.resumed,
            "exact": self.exact,
        }


class Scores(Callback):
    """Add what the settings ask for to a record: the full objective, and after every ``validation.every``
    steps the score on the validation set. The model with the best one is saved in a file, if there is one.
    """

    saved = ("best", "best_step")

    def __init__(self, experiment: Experiment, file: Path | None = None) -> None:
        self.experiment, self.file = experiment, file
        self.log_every = experiment.settings.validation.every
        self.best, self.best_step = 0.0, 0

    def on_log(self, state: State, record: Record) -> None:
        e, p, every = self.experiment, self.experiment.problem, self.log_every
        if not e.trainer.classifies(state):
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
        model = e.model(state)  # not calibrated, where the metric is the same
        model = e.calibrated(model) if metric in OF_PROBABILITIES else model
        record[f"validation_{metric}"] = score = model.score(split.x, split.y)[metric]
        if score is not None and (not self.best_step or sign * score > sign * self.best):
            self.best, self.best_step = score, state.t
            if self.file and e.algorithm.saves_model:
                save_model(self.file, e.measured(e.calibrated(model)))

    def on_train_start(self) -> None:
        """Remove a best model that is not of the steps so far."""
        if self.file and not self.best_step:
            self.file.unlink(missing_ok=True)

    def figures(self) -> dict[str, Any]:
        """Return the fields of the result about the best model; none without one."""
        best = {f"best_validation_{self.experiment.metric}": self.best, "best_step": self.best_step}
        return best if self.best_step else {}
