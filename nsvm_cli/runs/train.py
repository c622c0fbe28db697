"""Training of a run to its result, from the first step or from a checkpoint."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import torch

from nsvm_cli import __version__
from nsvm_cli.artifacts.model_file import load_model, save_model
from nsvm_cli.config.settings import code_of, plain
from nsvm_cli.engines import compile_steps
from nsvm_cli.metrics import own_metrics
from nsvm_cli.models.feature_map import features
from nsvm_cli.models.nsvm import NSVM
from nsvm_cli.models.objectives import ALIGNMENT_SAMPLES, at_most, dataset_alignment
from nsvm_cli.output import say
from nsvm_cli.parallel.signals import Signals
from nsvm_cli.runs.checkpoint import CheckpointManager
from nsvm_cli.runs.experiment import Experiment
from nsvm_cli.runs.loggers import Tracking
from nsvm_cli.runs.loop import Callback
from nsvm_cli.storage.run_directory import RunDirectory
from nsvm_cli.tasks import Classification
from nsvm_cli.trainers import State


def train_run(
    experiment: Experiment,
    directory: RunDirectory,
    callbacks: Sequence[Callback] = (),
    signals: Signals | None = None,
    allow_mismatch: bool = False,
    command: Mapping[str, Any] | None = None,
    sweep: str | None = None,
) -> dict[str, Any]:
    """Train a run, evaluate its model once on held-out data, save the model, and return the result.

    If the directory contains checkpoints, training resumes from the newest intact checkpoint, and the result
    has the same bits as without the interruption.

    Args:
        callbacks: callbacks in addition to the callbacks in the settings.
        allow_mismatch: whether to resume even if settings or environment have changed. The result may then
            differ, and contains ``"exact": false``.
        command: fields of the result that describe the command line.

    Raises:
        InputError: the checkpoint does not belong to this run, or all checkpoints are damaged.
        RunError: training diverged, or the logger could not start.
        Interrupted: a signal stopped the run after its checkpoint was written.
    """
    git, signals = git_state(), signals or Signals()  # the commit may have changed at the end, days later
    checkpoints = CheckpointManager(experiment, directory, signals)
    state = checkpoints.restore_or_start(allow_mismatch)
    experiment = checkpoints.experiment
    settings = plain(experiment.asked)
    for remark in experiment.remarks():
        say(remark)
    compile_steps(experiment.engine, experiment.algorithm, experiment.problem)
    step = 0 if state is None else state.t
    with Tracking(experiment.logger, directory.path, settings, sweep, step) as tracking:
        if state is None or not checkpoints.stopped:
            state = experiment.run([*checkpoints.callbacks, checkpoints, tracking, *callbacks], state)
        model = experiment.final_model(state)  # a solver that takes no steps trains here
        training = {**checkpoints.scores.figures(), **checkpoints.figures()}
        if experiment.settings.keep == "best" and checkpoints.scores.best_step:
            model = replace(load_model(directory.best), settings=experiment.settings)
        else:
            model = experiment.with_changes(model)
        model, decision = experiment.with_threshold(model)
        if experiment.trainer.saves_model:
            save_model(directory.final, model)
        now = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "host": platform.node()}
        result = {**result_of(experiment, state, model), **training, **decision, **experiment.search, **now}
        result |= {"git": git, "settings": settings, **(command or {})}
        directory.finish(result, experiment.settings.checkpoint)
        tracking.result = result
    return result


def result_of(experiment: Experiment, state: State, model: NSVM) -> dict[str, Any]:
    """Return the fields of the result about the trained model, its data and its training."""
    e, p, svm = experiment, experiment.problem, experiment.trainer.trains_svm
    rows = at_most(ALIGNMENT_SAMPLES, len(p.y), p.seed, p.y.device)
    z, labels = features(model.network, p.x[rows]), p.task.code(p.y[rows])
    own = own_metrics(p.task.kind)
    return {
        "metric": e.metric,
        **({"greater_is_better": {name: own[name].sign > 0 for name in own}} if own else {}),
        **_scores(e, model),
        "steps": state.t,
        "part_steps": list(e.trainer.part_steps),
        "violations": state.violations if svm and not e.trainer.parts[-1].chooses_steps else None,
        "theta_steps": e.F.theta_steps,
        "parameters": model.parameters,
        "support_vectors": len(model.expansion.alpha) if svm else None,
        **state.figures,
        **dataset_alignment(model.kernel, z, labels, p.task.centred),
        **_circumstances(e),
        "theta_change": model.metadata.theta_change,
        "feature_change": model.metadata.feature_change,
        **({"kernel_parameters": learnt} if (learnt := model.kernel_parameters) else {}),
    }


def _scores(experiment: Experiment, model: NSVM) -> dict[str, Any]:
    """Return the model's scores on all splits, and the scores of a constant prediction on held-out splits."""
    splits, task = experiment.data.splits, experiment.data.task
    held_out, train = splits.held_out, splits["train"].y
    figures: dict[str, Any] = {}
    for name in filter(splits.sizes.get, ("test", "validation", "train")):
        y = splits[name].y
        scores = model.score(splits[name].x, y, splits[name].weight)
        names: list[str] = [figure for figure in ("recall", "precision", "confusion") if figure in scores]
        of_classes = {figure: scores.pop(figure) for figure in names}
        figures |= of_classes if name == held_out else {}
        figures |= {f"{name}_{figure}": value for figure, value in scores.items()}
        if name != "train" and isinstance(task, Classification):
            guessed = int((y == train.mode().values).sum())
            figures[f"{name}_majority_accuracy"] = guessed / len(y)
        elif name != "train":
            figures[f"{name}_mean_rmse"] = float((y - train.mean()).square().mean().sqrt())
    return figures


def _circumstances(experiment: Experiment) -> dict[str, Any]:
    settings, data = experiment.settings, experiment.data
    packages = ("torch", "numpy", "scikit-learn", "safetensors")  # the versions may affect the metrics
    own = {"nsvm": __version__, "python": platform.python_version()}
    return {
        "algorithm": settings.algorithm["name"],
        "dataset": settings.dataset["name"],
        "seed": settings.seed,
        "dtype": settings.dtype,
        "device": experiment.problem.x.device.type,
        "threads": torch.get_num_threads(),
        "engine": experiment.engine,
        "versions": {**own, **{package: version(package) for package in packages}},
        "plugins_sha256": code_of(settings),
        "data": {
            "source": data.samples.source,
            "sha256": data.samples.sha256,
            "origins": list(data.samples.origins or [settings.dataset["name"]]),
            "classes": list(data.task.classes),
            "official_split": data.samples.official_test is not None,
            "official_validation": data.samples.official_validation is not None,
            "generated": data.samples.generated,
            "duplicates": data.duplicates,
            "samples": {name: size for name, size in data.splits.sizes.items() if name != "all"},
        },
    }


def git_state() -> dict[str, str] | None:
    """Return the commit of the repository around the current directory, or None without a repository or git.

    Uncommitted changes are not detected: git would run programs that the repository's settings select.
    """
    try:
        git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": git.stdout.decode().strip()}
