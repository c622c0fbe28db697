"""The objects of a run: building them from settings, and a model and its figures from them."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any

import torch
from pydantic import ValidationError

from nsvm_cli import __version__
from nsvm_cli.config.registry import construct, one_line
from nsvm_cli.config.settings import Settings, parse_settings, plain, with_values
from nsvm_cli.datasets import Data, SampleCache, load_data
from nsvm_cli.datasets.augmentation import build_augmentation
from nsvm_cli.datasets.scaling import Scaling, fit_scaling
from nsvm_cli.engines import LITERAL, Engine, select, taken_by
from nsvm_cli.errors import InputError
from nsvm_cli.loggers import build_logger
from nsvm_cli.models.change import feature_change, theta_change
from nsvm_cli.models.feature_map import FeatureMap, features
from nsvm_cli.models.kernels import check_kernel
from nsvm_cli.models.losses import build_loss
from nsvm_cli.models.networks import build_network
from nsvm_cli.models.nsvm import NSVM, Facts
from nsvm_cli.models.objectives import dataset_alignment, random_subset
from nsvm_cli.models.penalties import Penalties
from nsvm_cli.parallel.device import select_device
from nsvm_cli.plugins import code_sha256
from nsvm_cli.randomness import Stream, derived_seed
from nsvm_cli.runs.loop import Callback, run
from nsvm_cli.tasks import Classification, Regression
from nsvm_cli.trainers import Problem, State, Trainer, build_trainer
from nsvm_cli.trainers.parts import Parts, build_parts

PROBE_SAMPLES = 100
"""Number of training samples of which a trained model has to tell some apart."""


@dataclass(frozen=True)
class Experiment:
    """A run that is ready to start; its settings have been checked.

    ``facts`` are those of its model before the first step, and ``engine`` takes the steps of ``algorithm``.
    """

    settings: Settings
    data: Data
    scaling: Scaling
    facts: Facts
    problem: Problem
    F: FeatureMap
    algorithm: Trainer[Any]
    engine: Engine = LITERAL

    @cached_property
    def trainer(self) -> Trainer[Any]:
        """The algorithm, with its steps taken by the engine."""
        return taken_by(self.engine, self.algorithm)

    def remarks(self) -> list[str]:
        """Return lines about steps, samples and validation that the user may not expect."""
        epochs, m, total = self.settings.algorithm.get("epochs"), len(self.problem.y), self.trainer.total
        lines = []
        if epochs and total < (asked := build_trainer(self.settings.algorithm).total):
            lines += [f"algorithm.epochs={epochs} allows {total} of {asked} steps on {m} training samples"]
        if self.settings.validation.every and self.trainer.part_steps[-1] == 0:
            lines += ["validation.every: this method has a model to validate at its end only"]
        return [*lines, *self.data.remarks()]


def load(settings: Settings, samples: SampleCache | None = None) -> Data:
    """Load and split the data of a run.

    Args:
        settings: those of the run.
        samples: keeps what is loaded for the next run.

    Raises:
        InputError: the data are missing or damaged.
    """
    data = load_data(settings.dataset, settings.seed, settings.task, samples, settings.memory_budget)
    if settings.validation.every and not data.splits.sizes["validation"]:
        raise InputError("validation.every needs a validation set: expected dataset.validation above 0")
    return data


def build(settings: Settings, data: Data) -> Experiment:
    """Build the objects of a run on loaded data.

    Raises:
        InputError: a setting is wrong, or does not suit the data, or files could not hold the run.
    """
    if settings.calibration and not data.splits.sizes["validation"]:
        raise InputError("calibration=sigmoid needs a validation set: expected dataset.validation above 0")
    parts = build_parts(settings)
    device, dtype = select_device(settings.device, settings.threads), getattr(torch, settings.dtype)
    train = data.splits["train"]
    algorithm = parts.algorithm.for_samples(len(train.y))
    scaling = fit_scaling(train.x, data.global_scaling)
    x, y = scaling(train.x, dtype).to(device), data.task.targets(train.y).to(device, dtype)
    loss = build_loss(settings.loss, settings.multiclass, data.task)
    penalties = construct(Penalties, "penalties", settings.penalties)
    how = settings.memory_budget, data.task, loss, penalties
    problem = Problem(x, y, parts.kernel, settings.seed, *how)
    facts = _facts(data)
    F = _feature_map(settings, problem, scaling, parts)
    differentiable = algorithm.moves_theta and parts.gradient is None
    check_kernel(parts.kernel, settings.kernel["name"], F(x[:3]), F(x[:5]), differentiable)
    algorithm.check(problem, F)
    engine = select(settings.engine, algorithm, problem, F)
    return Experiment(settings, data, scaling, facts, problem, F, algorithm, engine)


def _feature_map(settings: Settings, problem: Problem, scaling: Scaling, parts: Parts) -> FeatureMap:
    """Return F_theta, freshly initialised, with its optimizer and augmentation."""
    shape = tuple(problem.x.shape[1:])
    seed = derived_seed(settings.seed, Stream.THETA)
    network = build_network(settings.network, shape, seed, problem.task.outputs).to(problem.x)
    augment = build_augmentation(settings.dataset.get("augment"), scaling, shape)
    return FeatureMap(network, parts.optimizer, settings.seed, augment, parts.gradient)


def prepare(settings: Settings, samples: SampleCache | None = None) -> Experiment:
    """Load the data and build the objects of a run; see ``load``.

    Raises:
        InputError: a setting is wrong, the data are missing or damaged, or files could not hold the run.
    """
    build_parts(settings)  # before loading the data, which may take minutes
    build_logger(settings.logger)
    return build(settings, load(settings, samples))


def _facts(data: Data) -> Facts:
    """Return what a model knows of its data.

    Raises:
        InputError: a model file could not hold it.
    """
    try:
        return Facts(
            scale=1.0,
            bias=0.0,
            shape=tuple(data.splits["train"].x.shape[1:]),
            classes=data.task.classes,
            steps=0,
            source=data.source,
            sha256=data.sha256,
            columns=None if data.encoder is None else data.encoder.columns,
            target=(data.task.mean, data.task.std) if isinstance(data.task, Regression) else None,
        )
    except ValidationError as error:
        raise InputError(f"the files of this run could not be read: {one_line(error)}") from None


def searched(experiment: Experiment) -> tuple[Experiment, dict[str, Any]]:
    """Return the experiment with the values that its algorithm chooses from a grid, and the fields of the
    result about that choice; without a grid, the experiment as it is.
    """
    e = experiment
    found = e.algorithm.search(e.problem, e.F)
    if found is None:
        return e, {}
    chosen, figures = found
    return build(parse_settings(with_values(plain(e.settings), chosen)), e.data), figures


def train_in_memory(experiment: Experiment, callbacks: Sequence[Callback] = ()) -> NSVM:
    """Train and return the model, without writing files."""
    experiment, _ = searched(experiment)
    trainer, problem = experiment.trainer, experiment.problem
    state = run(trainer, problem, experiment.F, log_every(experiment), callbacks)
    return model_of(experiment, state)


def log_every(experiment: Experiment) -> int:
    """Return the number of steps between two records."""
    return experiment.settings.log_every or max(1, experiment.trainer.total // 100)


def movement(experiment: Experiment, model: NSVM) -> dict[str, float | None]:
    """Return how far training has moved theta and the kernel matrix (see ``nsvm_cli.models.change``)."""
    problem, networks = experiment.problem, (model.before_training().network, model.network)
    return {
        "theta_change": theta_change(*networks),
        "feature_change": feature_change(*networks, problem.K, problem.x, problem.seed),
    }


def figures_of(experiment: Experiment, state: State, model: NSVM) -> dict[str, Any]:
    """Return the fields of a result about the trained model and its training."""
    problem, F = experiment.problem, experiment.F
    return {
        **_scores(experiment, model),
        "steps": state.t,
        "part_steps": list(experiment.trainer.part_steps),
        "violations": state.violations if experiment.trainer.trains_svm else None,
        "theta_steps": F.theta_steps,
        "parameters": model.parameters,
        "support_vectors": len(model.expansion.alpha) if experiment.trainer.trains_svm else None,
        **dataset_alignment(
            problem.K,
            features(F.network, problem.x),
            problem.task.code(problem.y),
            problem.seed,
            problem.task.centred,
        ),
        **_circumstances(experiment),
    }


def model_of(experiment: Experiment, state: State) -> NSVM:
    """Return the model at the end of training, calibrated if asked.

    Raises:
        RunError: it cannot tell training samples apart.
    """
    model, x = uncalibrated(experiment, state), experiment.data.splits["train"].x
    if len(x) > PROBE_SAMPLES:
        x = x[random_subset(len(x), PROBE_SAMPLES, experiment.settings.seed, x.device)]
    if not experiment.algorithm.is_constant:
        model.expect_different_decisions(x)
    return calibrated(experiment, model)


def uncalibrated(experiment: Experiment, state: State) -> NSVM:
    """Return the model after the steps taken so far, without probabilities."""
    e, g = experiment, experiment.trainer.finish(experiment.problem, state)
    bias = g.bias if isinstance(g.bias, float) else 0.0
    model = NSVM(e.settings, e.facts, e.scaling, e.F.network, e.problem.K, g)
    of_g = {"scale": g.scale, "bias": bias, "one_vs_one": g.one_vs_one}
    return model.with_facts(**of_g, steps=state.t, plugins_sha256=code_sha256())


def calibrated(experiment: Experiment, model: NSVM) -> NSVM:
    """Return the model, calibrated on the validation set if the settings ask for that."""
    if experiment.settings.calibration is None:
        return model
    validation = experiment.data.splits["validation"]
    return model.calibrated(validation.x, validation.y)


OF_CLASSES = ("balanced_accuracy", "recall", "confusion")
"""Figures that a result holds for the held-out data only, under these names."""


def _scores(experiment: Experiment, model: NSVM) -> dict[str, Any]:
    """Return the scores on the training set, and on the validation set or, without one, the test set; and the
    errors there of always deciding for the most frequent class of the training set.
    """
    splits = experiment.data.splits
    held_out = splits.held_out
    figures: dict[str, Any] = {}
    if isinstance(experiment.data.task, Classification):
        most_frequent = splits["train"].y.mode().values
        figures["guess_errors"] = int((splits[held_out].y != most_frequent).sum())
    for name in (held_out, "train"):
        scores = model.score(splits[name].x, splits[name].y)
        if name == held_out:
            figures |= dict.fromkeys(f"test_{figure}" for figure in scores if figure not in OF_CLASSES)
            figures |= {figure: scores[figure] for figure in OF_CLASSES if figure in scores}
        figures |= {f"{name}_{figure}": scores[figure] for figure in scores if figure not in OF_CLASSES}
    return figures


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that may affect the figures."""
    packages = ("torch", "numpy", "scikit-learn", "safetensors")
    return {
        "nsvm": __version__,
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
    }


def git_state() -> dict[str, Any] | None:
    """Return the commit of the repository that the current directory is in, and whether a file that it tracks
    has changed since; None outside of any, or without git.
    """
    commands = ["git", "rev-parse", "HEAD"], ["git", "status", "--porcelain", "--untracked-files=no"]
    try:
        said = [subprocess.run(c, capture_output=True, check=True, timeout=10).stdout for c in commands]
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": said[0].decode().strip(), "dirty": bool(said[1])}


def _circumstances(experiment: Experiment) -> dict[str, Any]:
    settings, data = experiment.settings, experiment.data
    return {
        "algorithm": settings.algorithm["name"],
        "dataset": settings.dataset["name"],
        "seed": settings.seed,
        "dtype": settings.dtype,
        "device": experiment.problem.x.device.type,
        "threads": torch.get_num_threads(),
        "engine": experiment.engine,
        "versions": versions(),
        "plugins_sha256": code_sha256(),
        "data": {
            "source": data.source,
            "sha256": data.sha256,
            "origins": list(data.origins),
            "classes": list(data.task.classes),
            "official_split": data.official_split,
            "generated": data.generated,
            "duplicates": data.duplicates,
            "samples": {name: size for name, size in data.splits.sizes.items() if name != "all"},
        },
    }
