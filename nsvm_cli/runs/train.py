"""Train a run, from its first step or from a checkpoint, to its result."""

from __future__ import annotations

import platform
import shlex
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from nsvm_cli.artifacts.model_file import save_model
from nsvm_cli.config.settings import plain
from nsvm_cli.engines import compile_steps, why_slower
from nsvm_cli.errors import Interrupted
from nsvm_cli.loggers import TrackedRun, Tracking
from nsvm_cli.parallel.signals import Signals
from nsvm_cli.runs.callbacks import (
    BestModel,
    CheckpointManager,
    FullObjective,
    MetricsWriter,
    Say,
    StopOnSignal,
)
from nsvm_cli.runs.experiment import (
    Experiment,
    figures_of,
    git_state,
    log_every,
    model_of,
    movement,
    searched,
)
from nsvm_cli.runs.loop import Callback, OnLog, run
from nsvm_cli.storage.run_directory import RunDirectory
from nsvm_cli.trainers import State


def train_run(
    experiment: Experiment,
    directory: RunDirectory,
    callbacks: Sequence[Callback] = (),
    signals: Signals | None = None,
    say: Say = lambda line: None,
    allow_mismatch: bool = False,
    overrides: Sequence[str] = (),
    config_dir: str | None = None,
    sweep: str | None = None,
) -> dict[str, Any]:
    """Train, evaluate the model once on held-out data, save it, and return the result.

    If the directory holds a checkpoint, training resumes from the newest intact one, and the result has the
    same bits as if the run had never stopped.

    Args:
        experiment: the run.
        directory: the run directory to write to.
        callbacks: additional callbacks, such as a progress bar.
        signals: the signals that may stop the run, or ask for a checkpoint.
        say: shows a message to the user.
        allow_mismatch: whether to resume even if settings or environment have changed. The result may then
            differ, and has ``"exact": false``.
        overrides: those of the command line, for the result.
        config_dir: the folder of the user's own configurations, for the result.
        sweep: the name of the sweep that the run belongs to, for its logger.

    Raises:
        InputError: the checkpoint does not belong to this run, every checkpoint is damaged, or the package of
            the logger is missing.
        RunError: training diverged, or the logger could not start.
        Interrupted: a signal stopped the run, after its checkpoint was written.
    """
    git = git_state()  # not that of the end, which may be days later
    best = BestModel(experiment, directory)
    checkpoints = CheckpointManager(experiment, directory, best, signals, say)
    state = checkpoints.restore(allow_mismatch)
    settings, began = plain(checkpoints.experiment.settings), time.monotonic()
    experiment, search = searched(checkpoints.experiment)
    best.experiment, searching = experiment, time.monotonic() - began
    problem = experiment.problem
    engine, asked = experiment.engine, experiment.settings.engine
    if asked != engine and (why := why_slower(engine, experiment.algorithm, problem, experiment.F)):
        say(why)
    compile_steps(engine, experiment.algorithm, problem, experiment.F, say)
    writer = MetricsWriter(directory, checkpoints)
    step = 0 if state is None else state.t
    with Tracking(TrackedRun(directory.path, settings, sweep, step), say) as tracking:
        every = [best, FullObjective(experiment), writer, OnLog(tracking.log), *callbacks]
        state = _train(experiment, state, every, checkpoints, signals)
        began = time.monotonic()
        model = model_of(experiment, state)
        # a solver without steps trains here
        checkpoints.train_seconds += searching + time.monotonic() - began
        moved = movement(experiment, model)
        result = {
            **figures_of(experiment, state, model),
            **moved,
            **best.figures(),
            **checkpoints.figures(),
            **search,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "host": platform.node(),
            "git": git,
            "settings": settings,
            "overrides": list(overrides),
            "config_dir": config_dir,
        }
        if experiment.trainer.saves_model:
            save_model(directory.final, model.with_facts(**moved))
        best.finish()
        directory.finish(result, experiment.settings.checkpoint)
        tracking.result = result
    return result


def _train(
    experiment: Experiment,
    state: State | None,
    callbacks: Sequence[Callback],
    checkpoints: CheckpointManager,
    signals: Signals | None,
) -> State:
    """Run the loop from a state to the last step.

    Raises:
        Interrupted: a signal stopped it.
    """
    trainer, problem = experiment.trainer, experiment.problem
    hint = ""
    if checkpoints.every.every is not None:
        hint = f"; resume with nsvm train resume={shlex.quote(str(checkpoints.path))}"
    stop = StopOnSignal(signals, f"interrupted{hint}")
    every = [*callbacks, checkpoints, stop]
    state = run(trainer, problem, experiment.F, log_every(experiment), every, state)
    if stop.signum:
        raise Interrupted(stop.signum, f"interrupted after step {state.t} of {trainer.total}{hint}")
    return state
