"""Train a run, from its first step or from a checkpoint, to its result."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from nsvm_cli.artifacts.model_file import load_model, save_model
from nsvm_cli.config.settings import plain
from nsvm_cli.loggers import TrackedRun, Tracking
from nsvm_cli.output import Say
from nsvm_cli.parallel.signals import Signals
from nsvm_cli.runs.callbacks import CheckpointManager, Scores
from nsvm_cli.runs.experiment import Experiment
from nsvm_cli.runs.loop import Callback, OnLog
from nsvm_cli.runs.result import git_state, result_of
from nsvm_cli.storage.run_directory import RunDirectory


def train_run(
    experiment: Experiment,
    directory: RunDirectory,
    callbacks: Sequence[Callback] = (),
    signals: Signals | None = None,
    say: Say = str,
    allow_mismatch: bool = False,
    command: Mapping[str, Any] | None = None,
    sweep: str | None = None,
) -> dict[str, Any]:
    """Train, evaluate the model once on held-out data, save it, and return the result.

    If the directory holds a checkpoint, training resumes from the newest intact one, and the result has the
    same bits as if the run had never stopped.

    Args:
        callbacks: additional ones, such as a progress bar.
        allow_mismatch: whether to resume even if settings or environment have changed. The result may then
            differ, and has ``"exact": false``.
        command: the fields of the result about the command line.
        sweep: the name of the sweep that the run belongs to, for its logger.

    Raises:
        InputError: the checkpoint does not belong to this run, every checkpoint is damaged, or the package of
            the logger is missing.
        RunError: training diverged, or the logger could not start.
        Interrupted: a signal stopped the run, after its checkpoint was written.
    """
    git, signals = git_state(), signals or Signals()  # git may have moved on at the end, days later
    checkpoints = CheckpointManager(experiment, directory, signals, say)
    state = checkpoints.restore(allow_mismatch)
    experiment = checkpoints.experiment
    settings = plain(experiment.asked)
    for remark in experiment.remarks():
        say(remark)
    experiment.compile(say)
    run = TrackedRun(directory.path, settings, sweep, 0 if state is None else state.t)
    with Tracking(run, say) as tracking:
        scores = Scores(experiment, directory.best)
        checkpoints.restore_callbacks(measuring := [scores, *experiment.callbacks()])
        if state is None or not checkpoints.stopped:
            state = experiment.run([*measuring, checkpoints, OnLog(tracking.log), *callbacks], state)
        model = experiment.final_model(state, say)  # a solver without steps trains here
        training = {**scores.figures(), **checkpoints.figures()}
        if experiment.settings.keep == "best" and scores.best_step:
            model = replace(load_model(directory.best), settings=experiment.settings)
        else:
            model = experiment.measured(model)
        model, decision = experiment.decided(model, say)
        if experiment.trainer.saves_model:
            save_model(directory.final, model)
        now = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "host": platform.node()}
        result = {**result_of(experiment, state, model), **training, **decision, **experiment.search, **now}
        result |= {"git": git, "settings": settings, **(command or {})}
        directory.finish(result, experiment.settings.checkpoint)
        tracking.result = result
    return result
