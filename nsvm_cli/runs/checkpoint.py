"""Checkpoints of a run, from which training resumes bit for bit."""

from __future__ import annotations

import hashlib
import math
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, StrictFloat, StrictInt, TypeAdapter
from pydantic.dataclasses import dataclass

from nsvm_cli import __version__
from nsvm_cli.artifacts.model_file import save_model
from nsvm_cli.config.registry import STRICT, shown
from nsvm_cli.config.settings import code_of, flat, parse_settings, plain, with_effect
from nsvm_cli.engines import LITERAL, NUMBA, TORCH, circumstances, compile_steps
from nsvm_cli.engines.coverage import uncovered_by_numba
from nsvm_cli.engines.numba.code import is_usable
from nsvm_cli.errors import InputError, Interrupted
from nsvm_cli.output import say, shortened
from nsvm_cli.parallel.signals import Signals
from nsvm_cli.runs.experiment import Experiment
from nsvm_cli.runs.loop import Callback, Record, record
from nsvm_cli.storage import tensor_file
from nsvm_cli.storage.metrics_file import check_metrics
from nsvm_cli.storage.run_directory import (
    METRICS_FILE,
    RunDirectory,
    checkpoints_in,
    is_finished,
    resume_command,
)
from nsvm_cli.storage.state_dict import StateDict, expect_keys, nested
from nsvm_cli.storage.tensor_file import unusable
from nsvm_cli.trainers import State

KIND = "nsvm-checkpoint-7"

DATA_PATHS = ("dataset.path", "dataset.validation_path", "dataset.test_path", "dataset.root", "kernel.path")
"""Settings that may change when a run resumes. The data themselves are compared by checksum."""

Number = StrictInt | Annotated[StrictFloat, Field(allow_inf_nan=False)]
NUMBERS = TypeAdapter(dict[str, Number | None])
"""The numbers of state dicts, by path."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Checkpoint:
    """A run after ``step`` steps.

    Attributes:
        stopped: the reason why a callback stopped the run, or None.
        bitwise: whether the run was always resumed with the same settings and environment.
        metrics: the size of the metrics file at this step.
        settings: the settings before the algorithm chose any of them.
        chosen, search: the choices made before the first step (see ``Experiment``).
        values: state dicts of theta ("F"), of the trainer ("state") and of the callbacks ("callbacks").
    """

    step: NonNegativeInt
    seconds: NonNegativeFloat
    stopped: str | None
    resumed: NonNegativeInt
    bitwise: bool
    metrics: NonNegativeInt
    settings: dict[str, Any]
    chosen: dict[str, Any]
    search: dict[str, Any]
    environment: dict[str, str]
    values: StateDict = Field(repr=False)


def with_engine_of(checkpoint: Checkpoint, experiment: Experiment) -> Experiment:
    """Return the experiment with the engine that wrote the checkpoint, if that engine is available here."""
    e, recorded = experiment, checkpoint.environment.get("engine", TORCH)
    engine = LITERAL if recorded == LITERAL else TORCH
    if recorded.startswith(NUMBA):
        usable = not uncovered_by_numba(e.algorithm, e.problem, e.F) and is_usable()
        engine = NUMBA if usable else e.engine
    return e if engine == e.engine else replace(e, engine=engine)


def environment(experiment: Experiment) -> dict[str, str]:
    """Return what determines the bits of a result besides the settings: hardware, data and code."""
    device = experiment.problem.x.device
    weights = experiment.problem.weights
    # torch selects its kernels by the capability of a CPU, not by the CPU's model
    cpu = f"cpu {platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    found = {
        "nsvm": __version__,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else cpu,
        "threads": str(torch.get_num_threads()),
        "engine": circumstances(experiment.engine),
        "data": experiment.data.samples.sha256,
        "plugins_sha256": code_of(experiment.settings),
        "kernel_sha256": experiment.kernel_sha256,
        "weights_sha256": None if weights is None else hashlib.sha256(weights.tobytes()).hexdigest(),
    }
    return {name: value for name, value in found.items() if value}


def restore_state(experiment: Experiment, checkpoint: Checkpoint) -> State:
    """Restore theta, and return the trainer's state. Raise an InputError if the checkpoint does not fit."""
    trainer, F, values = experiment.trainer, experiment.F, checkpoint.values
    try:
        expect_keys(values, ["F", "state", "callbacks"])
        F.load_state_dict(values["F"])
        state: State = trainer.restore(experiment.problem, F, values["state"])
        if not 0 <= state.t == checkpoint.step <= trainer.total:
            raise ValueError(f"its state is at step {state.t}, expected {checkpoint.step} of {trainer.total}")
        if state.violations < 0 or (state.objective is not None and state.objective.ndim > 0):
            got = f"{state.violations} and {state.objective}"
            raise ValueError(f"expected at least 0 violations and a scalar objective, got {got}")
    except (ValueError, TypeError) as error:
        raise InputError(f"the checkpoint of step {checkpoint.step} does not fit this run: {error}") from None
    return state


def save_checkpoint(path: Path, checkpoint: Checkpoint, only_check: bool = False) -> None:
    """Write a checkpoint, or only check it if ``only_check``. Raise an InputError if it is too large."""
    values = flat(checkpoint.values, "/")
    tensors = {path: value for path, value in values.items() if isinstance(value, torch.Tensor)}
    numbers = {path: value for path, value in values.items() if path not in tensors}
    fields = {key: value for key, value in vars(checkpoint).items() if key != "values"}
    tensor_file.write(path, KIND, {**fields, "numbers": numbers}, tensors, only_check=only_check)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint. Raise an InputError if the file is missing, damaged or inconsistent."""
    file = tensor_file.read(path, KIND, noun="checkpoint")
    fields: dict[str, Any] = dict(file.content)
    try:
        numbers = NUMBERS.validate_python(fields.pop("numbers", None))
        names = nested({**dict.fromkeys(file.specs), **numbers})
        checkpoint = Checkpoint(**fields, values=names)  # checks everything before tensors are read
    except (ValueError, TypeError, RecursionError) as error:
        raise unusable(path, error) from None
    return replace(checkpoint, values=nested({**file.tensors(), **numbers}))


def newest_intact(
    paths: Sequence[Path], check: Callable[[Checkpoint], object] = str
) -> tuple[Path, Checkpoint] | None:
    """Return the first intact checkpoint with its path, or None if there are no paths.

    The function ``check`` raises a ValueError if a checkpoint cannot be used.

    Raises:
        ValueError: no checkpoint is intact.
    """
    for path in paths:
        try:
            check(checkpoint := load_checkpoint(path))
            return path, checkpoint
        except ValueError as error:
            if path == paths[-1]:
                raise
            say(f"{error}; falling back to the previous checkpoint")
    return None


class CheckpointManager(Callback):
    """A callback that writes metrics and checkpoints, restores a run from them, and stops it after a signal.

    It must come after the callbacks that add values to records.

    Attributes:
        seconds_before: seconds of training before this loop, including a grid search.
        exact: whether the run was always resumed with the same settings and environment.
        callbacks: the callbacks whose states are saved, starting with ``scores``.
    """

    def __init__(self, experiment: Experiment, directory: RunDirectory, signals: Signals) -> None:
        self.experiment, self.directory, self.signals = experiment, directory, signals
        self.schedule = experiment.settings.checkpoint
        self.step_every = self.schedule.steps
        self.seconds_before, self.resumed, self.exact = 0.0, 0, True
        self.stopped: str | None = None
        self.began = self.saved_at = time.monotonic()

    def restore_or_start(self, allow_mismatch: bool) -> State | None:
        """Return the state in the newest intact checkpoint, or None if there is no checkpoint.

        The choices made before the first step are restored too. Without a checkpoint, they are made now: a
        grid search runs if the settings require one.

        Raises:
            InputError: no steps are left, the checkpoint does not fit this run, all checkpoints are damaged,
                or settings or environment have changed and ``allow_mismatch`` is False.
        """
        checkpoint = self._newest()
        # engine=auto may choose another engine now, depending on which code is compiled
        if checkpoint is not None and self.experiment.settings.engine == "auto":
            self.experiment = with_engine_of(checkpoint, self.experiment)
        self._expect_steps(checkpoint)
        changes = self._changes(checkpoint)
        if changes and not allow_mismatch:
            advice = "restore the earlier values or, to accept a different result, set allow_mismatch=true"
            path = self.directory.path
            raise InputError(f"{path} cannot be resumed bit for bit: {'; '.join(changes)}; {advice}")
        began = time.monotonic()
        if checkpoint is None or changes:
            e = self.experiment
            compile_steps(e.engine, e.algorithm, e.problem)  # a search trains, too
            self.experiment = e.with_search()
        else:
            self.experiment = self.experiment.with_choice(checkpoint.chosen, checkpoint.search)
        self.seconds_before = time.monotonic() - began
        self.scores, own = self.experiment.callbacks
        self.scores.file, self.callbacks = self.directory.best, [self.scores, *own]
        for callback in own:
            callback.folder = self.directory.path
        if checkpoint is None:
            self.directory.resume(plain(self.experiment.asked))
            return None
        state = restore_state(self.experiment, checkpoint)
        if not changes:
            self.stopped = checkpoint.stopped
            saved = checkpoint.values["callbacks"]
            try:
                for i, callback in enumerate(self.callbacks if {**saved} else ()):
                    callback.load_state_dict(saved.get(str(i), {}))  # a file has no empty states
            except (ValueError, TypeError) as error:
                raise InputError(f"the checkpoint does not fit the callbacks: {error}") from None
        self.directory.resume(plain(self.experiment.asked), checkpoint.metrics)
        self.seconds_before += checkpoint.seconds
        self.resumed, self.exact = checkpoint.resumed + 1, checkpoint.bitwise and not changes
        why = f", where training had stopped early: {self.stopped}" if self.stopped else ""
        say(f"resuming after step {checkpoint.step} of {self.experiment.trainer.total}{why}")
        return state

    def _newest(self) -> Checkpoint | None:
        paths, metrics = checkpoints_in(self.directory.path), self.directory.path / METRICS_FILE
        try:
            newest = newest_intact(paths, lambda c: check_metrics(metrics, c.metrics))
        except ValueError as error:
            raise InputError(f"{error}; to start over, set overwrite=true") from None
        return newest[1] if newest else None

    def _expect_steps(self, checkpoint: Checkpoint | None) -> None:
        """Raise an InputError if the run has taken all its steps."""
        path, total = self.directory.path, self.experiment.trainer.total
        if checkpoint is not None and is_finished(path) and checkpoint.step == total:
            if self.experiment.trainer.parts[-1].chooses_steps:
                raise InputError(f"{path} has no steps to resume: start a new run")
            raise InputError(f"{path} has taken all {total} steps: to resume, set more steps")

    def _changes(self, checkpoint: Checkpoint | None) -> list[str]:
        """List changes since the checkpoint (or since the start) that may change the bits of the result."""
        if checkpoint is None:
            recorded, was, now = self.directory.recorded, {}, {}
        else:
            recorded, was, now = checkpoint.settings, checkpoint.environment, environment(self.experiment)
        before = flat({**with_effect(plain(parse_settings(recorded))), **was})
        after = flat({**with_effect(plain(self.experiment.asked)), **now})
        return [
            f"{key} was {shortened(str(before.get(key)), 60)} and is {shortened(str(after.get(key)), 60)}"
            for key in sorted(before.keys() | after.keys())
            if before.get(key) != after.get(key) and key not in DATA_PATHS
        ]

    def on_train_start(self) -> None:
        self.began = self.saved_at = time.monotonic()

    def on_first_state(self, state: State) -> None:
        """Check, before training takes time, that the files can hold the run."""
        path, e = self.directory.path, self.experiment
        if self.schedule.every is not None:
            save_checkpoint(path, self._checkpoint(state), only_check=True)
        if e.algorithm.saves_model:
            save_model(path, e.untrained(), only_check=True)

    @property
    def seconds(self) -> float:
        """The seconds of training so far."""
        return self.seconds_before + time.monotonic() - self.began

    def on_log(self, state: State, record: Record) -> None:
        """Append the record to the metrics of the run, and its time to ``times.jsonl``."""
        for name, value in record.items():
            if value is not None and not (isinstance(value, int | float) and math.isfinite(value)):
                raise InputError(f"callbacks: {name} must be a finite number or None, got {shown(value)}")
        self.directory.metrics.append(record)
        self.directory.times.append({"step": state.t, "seconds": round(self.seconds, 4)})

    def on_step_end(self, state: State) -> None:
        schedule, since = self.schedule, time.monotonic() - self.saved_at
        due = bool(schedule.steps and state.t % schedule.steps == 0)
        due = due or (schedule.seconds is not None and since >= schedule.seconds)
        requested = self.signals.take_checkpoint_request() and schedule.every is not None
        if due or requested:
            self.save(state)
        if requested:
            say(f"checkpoint after step {state.t} of {self.experiment.trainer.total}")

    def should_interrupt(self, state: State) -> bool:
        return self.signals.noted is not None

    def on_train_end(self, state: State, stopped: str | None) -> None:
        """Write the last checkpoint. Raise ``Interrupted`` if a signal was received."""
        self.stopped, hint = stopped, ""
        if self.schedule.every is not None:
            self.save(state)
            hint = f"; resume with {resume_command(self.directory.path)}"
        if (signum := self.signals.noted) is not None:
            step = f"step {state.t} of {self.experiment.trainer.total}"
            raise Interrupted(signum, f"interrupted after {step}{hint}")
        self.signals.end_at_once(f"interrupted{hint}")  # nothing is left to save

    def save(self, state: State) -> None:
        """Write a checkpoint. Raise a RunError if theta is not finite."""
        record(state)  # raises if theta is not finite
        write = partial(save_checkpoint, checkpoint=self._checkpoint(state))
        self.directory.add_checkpoint(write, state.t, self.schedule)
        self.saved_at = time.monotonic()

    def _checkpoint(self, state: State) -> Checkpoint:
        e, states = self.experiment, {str(i): c.state_dict() for i, c in enumerate(self.callbacks)}
        return Checkpoint(
            step=state.t,
            seconds=self.seconds,
            stopped=self.stopped,
            resumed=self.resumed,
            bitwise=self.exact,
            metrics=self.directory.metrics.sync(),
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
