"""A run, from its first step or from a checkpoint, to its result."""

from __future__ import annotations

import shlex
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from signal import SIGTERM
from typing import Any

from nsvm_cli.config.settings import plain
from nsvm_cli.errors import InputError, Interrupted, RunError
from nsvm_cli.runs.checkpoint import Checkpoint, environment, load_checkpoint, save_checkpoint
from nsvm_cli.runs.experiment import Experiment, Observer, facts, figures_of, log_every, model_of
from nsvm_cli.runs.loop import Pause, Record, Watch, record, run
from nsvm_cli.runs.model_file import SavedModel, save_model
from nsvm_cli.storage.metrics_file import START
from nsvm_cli.storage.run_directory import RunDirectory, checkpoints_in
from nsvm_cli.storage.state_dict import expect_keys, flatten
from nsvm_cli.trainers import State

WORTHWHILE = 1.0
"""Seconds of work that are worth a checkpoint when training is over and the result is worked out."""

GO_ON, SAVE, STOP = range(3)

WHEREABOUTS = ("dataset.path", "dataset.root")
"""Where the data are; what they are is compared by their checksum."""


@dataclass(frozen=True)
class Hooks:
    """How a run speaks with whoever started it.

    ``observe`` gets its records, ``say`` a line that a person should read, ``at_rest`` is called once there
    is nothing more to save; ``signal`` returns the signal that should end it, if there was one.
    """

    observe: Observer = lambda figures: None
    say: Callable[[str], None] = lambda line: None
    at_rest: Callable[[], None] = lambda: None
    signal: Callable[[], int | None] = lambda: None


def conduct(
    experiment: Experiment, directory: RunDirectory, hooks: Hooks = Hooks(), inexact: bool = False
) -> dict[str, Any]:
    """Trains, judges the model once on held-out data, saves it, writes the result and returns it.

    Goes on from the directory's newest checkpoint that is whole, if there is one: with the same bits as if
    it had never stopped. ``inexact`` allows other settings and environment, and so other bits; the result
    says so then.

    Raises:
        InputError: the checkpoint is of other settings or environment, or does not fit them, or all are
            damaged.
        RunError: training diverged.
        Interrupted: ``hooks.signal`` said so; what there is to save has been saved.
    """
    problem, trainer = experiment.problem, experiment.trainer
    keeper = _Keeper(experiment, directory.path, directory, hooks)

    def observe(figures: Record) -> None:
        directory.metrics.append(figures)
        hooks.observe(figures)

    state = keeper.train(observe, inexact)
    model = model_of(experiment, trainer.finish(problem, state))
    result = {**figures_of(experiment, state, model), **keeper.figures()}
    save_model(directory.final, SavedModel(model, experiment.settings, facts(experiment, model, state.t)))
    if keeper.best is None:  # one that is there is of an inexact run's steps that were not taken again
        directory.best.unlink(missing_ok=True)
    directory.finish(result)
    return result


def assist(experiment: Experiment, path: Path, hooks: Hooks = Hooks()) -> None:
    """Trains along with the process that conducts the run in ``path``; see ``parallel.distributed``."""
    state = _Keeper(experiment, path, None, hooks).train(lambda figures: None, inexact=True)
    experiment.trainer.finish(experiment.problem, state)


def restored(experiment: Experiment, checkpoint: Checkpoint) -> State:
    """The state that was saved; theta becomes what it was.

    Raises:
        InputError: it is not that of a run with these settings.
    """
    trainer, F, values = experiment.trainer, experiment.F, checkpoint.values
    try:
        expect_keys(values, ["F", "state"])
        F.load_state_dict(values["F"])
        state: State = trainer.restore(experiment.problem, F, values["state"])
        if not 0 <= state.t == checkpoint.step <= trainer.total:
            raise ValueError(f"it is of step {checkpoint.step}, then {state.t} of {trainer.total}")
        if state.violations < 0 or (state.objective is not None and state.objective.ndim > 0):
            raise ValueError(f"violations {state.violations}, objective {state.objective}")
    except (ValueError, TypeError) as error:
        raise InputError(f"the checkpoint of step {checkpoint.step} does not fit this run: {error}") from None
    return state


class _Keeper:
    """Sees to it that nothing is lost: checkpoints, the way back from them, the best model.

    Of several processes the first one decides, and alone has a ``directory`` to write to.
    """

    def __init__(
        self, experiment: Experiment, path: Path, directory: RunDirectory | None, hooks: Hooks
    ) -> None:
        self.experiment, self.path, self.directory, self.hooks = experiment, path, directory, hooks
        self.every = experiment.settings.checkpoint
        self.began = self.saved = time.monotonic()
        self.seconds, self.resumed, self.exact = 0.0, 0, True
        self.best: tuple[float, int] | None = None
        self.tried = False

    def train(self, observe: Observer, inexact: bool) -> State:
        """From where it was to the last step."""
        e = self.experiment
        state = self._resume(inexact)
        self.began = self.saved = time.monotonic()
        every = e.settings.validation.every
        state = run(
            e.trainer,
            e.problem,
            e.F,
            log_every(e),
            observe,
            None if every is None else Watch(every, self._validate),
            Pause(self._pause, self.every.steps),
            state,
        )
        self.seconds += time.monotonic() - self.began
        worthwhile = self.every.every is not None and time.monotonic() - self.saved > WORTHWHILE
        if e.problem.processes.broadcast(SAVE if worthwhile else GO_ON) == SAVE:
            self._save(state, self.seconds)
        self.hooks.at_rest()
        return state

    def figures(self) -> dict[str, Any]:
        """What the result says of how it came about."""
        best = zip(("best_validation_accuracy", "best_step"), self.best or (), strict=False)
        return {
            **dict(best),
            "train_seconds": round(self.seconds, 3),
            "resumed": self.resumed,
            "exact": self.exact,
        }

    def _resume(self, inexact: bool) -> State | None:
        if self.directory is not None:
            number, checkpoint = self._newest(self.directory)
            self.experiment.problem.processes.broadcast(number)
        else:
            number = self.experiment.problem.processes.broadcast(0)
            checkpoint = load_checkpoint(checkpoints_in(self.path)[number]) if number >= 0 else None
        differences = self._differences(checkpoint)
        if differences and not inexact:
            raise InputError(
                f"{self.path} cannot go on with the same bits: {'; '.join(differences)}; take the same "
                "again, or accept another result with inexact=true"
            )
        state = None if checkpoint is None else restored(self.experiment, checkpoint)
        if self.directory is not None:
            self.directory.update_config(plain(self.experiment.settings))
            self.directory.open_metrics(START if checkpoint is None else checkpoint.metrics)
        if checkpoint is None or state is None:
            return None
        self.seconds, self.best = checkpoint.seconds, None if differences else checkpoint.best
        self.resumed, self.exact = checkpoint.resumed + 1, checkpoint.exact and not differences
        self.hooks.say(f"going on after step {state.t} of {self.experiment.trainer.total}")
        return state

    def _newest(self, directory: RunDirectory) -> tuple[int, Checkpoint | None]:
        """The newest checkpoint that is whole, and its number; where there is none yet, the run begins."""
        paths = checkpoints_in(self.path)
        for number, path in enumerate(paths):
            try:
                checkpoint = load_checkpoint(path)
                directory.check_metrics(checkpoint.metrics)
                return number, checkpoint
            except ValueError as error:
                if number + 1 == len(paths):
                    raise InputError(f"{error}; to begin anew, say overwrite=true") from None
                self.hooks.say(f"{error}; going back to the checkpoint before it")
        return -1, None

    def _differences(self, checkpoint: Checkpoint | None) -> list[str]:
        """What is not as it was, of what a run's bits depend on; without a checkpoint, what was to be."""
        now = _flat(plain(self.experiment.settings))
        if checkpoint is not None:
            was = _flat(checkpoint.settings) | checkpoint.environment
            now |= environment(self.experiment)
        else:
            was = now if self.directory is None else _flat(self.directory.recorded)
        changed = sorted(key for key in was.keys() | now.keys() if was.get(key) != now.get(key))
        return [
            f"{key} was {_short(was.get(key))} and is {_short(now.get(key))}"
            for key in changed
            if key.split(".")[0] not in ("checkpoint", "curves", "plugins") and key not in WHEREABOUTS
        ]

    def _pause(self, state: State) -> None:
        signum, e = self.hooks.signal(), self.every
        if not self.tried and e.every is not None:  # sooner than after a minute of work
            flatten(self.experiment.trainer.save(self.experiment.problem, state))
            self.tried = True
        due = (e.steps and state.t % e.steps == 0) or (
            e.seconds is not None and time.monotonic() - self.saved >= e.seconds
        )
        decision = self.experiment.problem.processes.broadcast(STOP if signum else SAVE if due else GO_ON)
        seconds = self.seconds + time.monotonic() - self.began
        if decision == SAVE:
            self._save(state, seconds)
        if decision == STOP:
            done = f"interrupted after step {state.t} of {self.experiment.trainer.total}"
            if e.every is None:
                raise Interrupted(signum or SIGTERM, done)
            try:
                self._save(state, seconds)
            except (OSError, RunError) as error:  # the wish to end comes first
                raise Interrupted(signum or SIGTERM, f"{done}; no checkpoint was written: {error}") from None
            way_on = f"go on with nsvm train resume={shlex.quote(str(self.path))}"
            raise Interrupted(signum or SIGTERM, f"{done}; {way_on}" if self.directory else done)

    def _save(self, state: State, seconds: float) -> None:
        record(state)  # nothing that has diverged takes the place of what has not
        e = self.experiment
        values = {"F": e.F.state_dict(), "state": e.trainer.save(e.problem, state)}
        if self.directory is not None:
            checkpoint = Checkpoint(
                step=state.t,
                seconds=seconds,
                best=self.best,
                resumed=self.resumed,
                exact=self.exact,
                metrics=self.directory.metrics.position(),
                settings=plain(e.settings),
                environment=environment(e),
                values=values,
            )
            self.directory.add_checkpoint(lambda path: save_checkpoint(path, checkpoint))
        self.saved = time.monotonic()

    def _validate(self, state: State) -> Record:
        """The accuracy on the validation set, once there is one; the best model is kept."""
        e = self.experiment
        if not e.trainer.classifies(state):
            return {}
        part = e.data.splits["validation"]
        model = model_of(e, e.trainer.finish(e.problem, state))
        accuracy = 1 - model.errors(part.x, part.y) / len(part)
        if self.best is None or accuracy > self.best[0]:
            self.best = accuracy, state.t
            if self.directory is not None:
                about = facts(e, model, state.t)
                save_model(self.directory.best, SavedModel(model, e.settings, about))
        return {"validation_accuracy": accuracy}


def _short(value: object) -> str:
    return textwrap.shorten(str(value), 60, placeholder=" ...")


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by dotted keys."""
    leaves: dict[str, Any] = {}
    for key, value in values.items():
        leaves |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return leaves
