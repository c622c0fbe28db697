"""Experiments: the objects of a run, built from its settings, and the models that they train."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from pydantic import ValidationError
from torch import Tensor

from nsvm_cli.config.registry import OWN_PART, OneLine, build, construct, one_line
from nsvm_cli.config.settings import Settings, code_of, parse_settings, plain, with_values
from nsvm_cli.datasets import Data, load_data
from nsvm_cli.datasets.arrays import file_and_name
from nsvm_cli.datasets.augmentation import build_augmentation
from nsvm_cli.datasets.scaling import Scaled, Scaling, fit_scaling
from nsvm_cli.engines import Engine, for_engine, select, why_slower
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.metrics import METRICS
from nsvm_cli.models.composed_kernels import with_gamma_of_scale
from nsvm_cli.models.feature_map import FeatureMap, at_start, features
from nsvm_cli.models.kernels import check_kernel
from nsvm_cli.models.losses import build_loss
from nsvm_cli.models.nsvm import NSVM, Expansion, ModelMetadata
from nsvm_cli.models.objectives import at_most, feature_change, theta_change
from nsvm_cli.models.penalties import with_weight
from nsvm_cli.output import say
from nsvm_cli.runs.loggers import Logger, build_logger
from nsvm_cli.runs.loop import CALLBACKS, Callback, Scores, run
from nsvm_cli.storage.files import file_sha256
from nsvm_cli.tasks import OF_DECISIONS, Regression, best_threshold
from nsvm_cli.trainers import Problem, State, Trainer, build_parts, build_trainer

PROBE_SAMPLES = 100
"""Number of training samples used to detect a constant model."""

CONSTANT = (
    ": it has no support vectors, or all features or all kernel values are equal or are rounded to 0; "
    "change kernel.gamma, network.scale or algorithm.lam, or lower optimizer.lr or loss.epsilon"
)
"""The reasons and advice at the end of the message on a constant SVM."""


@dataclass(frozen=True)
class Experiment(OneLine):
    """A run that is ready to start, with settings that have been checked.

    Attributes:
        settings: the user's settings ``asked``, updated with ``chosen``.
        metadata: the metadata of the model before the first step.
        algorithm: the algorithm for this number of samples, without the engine.
        chosen: values chosen before the first step, from a grid or in place of null, by dotted keys.
        search: the fields of the result about the choice from a grid.
    """

    settings: Settings
    data: Data
    scaling: Scaling
    metadata: ModelMetadata
    problem: Problem
    F: FeatureMap
    algorithm: Trainer[Any]
    engine: Engine
    logger: Logger
    asked: Settings
    chosen: dict[str, Any]
    search: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def trainer(self) -> Trainer[Any]:
        """The algorithm, converted to the class whose steps the engine takes."""
        return for_engine(self.engine, self.algorithm)

    @cached_property
    def kernel_sha256(self) -> str | None:
        """The checksum of the file at ``kernel.path``; None if there is no such file."""
        file, _ = file_and_name(self.settings.kernel.get("path"))
        return file_sha256(str(file)) if file.is_file() else None

    @property
    def metric(self) -> str:
        """The name of the score by which models are compared and chosen."""
        return self.settings.metric or self.data.task.metric

    @property
    def log_every(self) -> int:
        """The number of steps between two records."""
        return self.settings.log_every or max(1, self.trainer.total // 100)

    def remarks(self) -> list[str]:
        """Return remarks for the user on settings and data that may have unexpected effects."""
        s, m, total = self.settings, len(self.problem.y), self.trainer.total
        lines, name, epochs = [], s.algorithm["name"], s.algorithm.get("epochs")
        for key in ("batch_size", "solver_batch_size"):
            if (k := s.algorithm.get(key) or 1) > m:
                lines += [f"algorithm.{key}={k}: each batch contains all {m} training samples"]
        if epochs and total < (asked := build_trainer(s.algorithm).total):
            limit = f"{epochs} epochs over {m} samples ({total} of {asked} steps)"
            advice = "set algorithm.epochs=null to run all steps"
            lines += [f"algorithm.epochs limits training to {limit}; {advice}"]
        if self.chosen.get("algorithm.solver") == "nystroem":
            lines += [f"algorithm.solver=nystroem is used, since svc would be slow for {m} training samples"]
        if s.validation.every and self.trainer.part_steps[-1] == 0:
            lines += [f"validation.every has no effect: algorithm={name} has a model only at the end"]
        if self.F.learnt and not self.trainer.moves_theta:
            lines += [f"kernel parameters keep their initial values: algorithm={name} does not change theta"]
        if self.F.fixed and self.trainer.part_steps[1:] and self.trainer.part_steps[0] > 1:
            advice = "algorithm.steps=1"
            if not self.trainer.parts[-1].chooses_steps:
                advice += f" algorithm.solver_steps={self.trainer.part_steps[1]}"
            lines += [f"Part 1 has no effect, because theta is fixed; to skip it, set {advice}"]
        slower = why_slower(self.engine, self.algorithm, self.problem, self.F)
        if slower and s.engine != self.engine:
            lines += [slower]
        return [*lines, *self.data.remarks()]

    @cached_property
    def callbacks(self) -> tuple[Scores, list[Callback]]:
        """The callback that scores the model, and the callbacks of the settings, which may use the scores."""
        sections = [{"name": c} if isinstance(c, str) else c for c in self.settings.callbacks]
        return Scores(self), [build(CALLBACKS, "callback", section, self) for section in sections]

    def with_search(self) -> Experiment:
        """Return the experiment with the settings that the algorithm's search finds, if it has a search."""
        if (choice := self.trainer.search(self.problem, self.F)) is None:
            return self
        values, search = choice
        return self.with_choice({**self.chosen, **values}, search)

    def with_choice(self, chosen: Mapping[str, Any], search: dict[str, Any]) -> Experiment:
        """Return the experiment with the settings ``chosen`` and, for its result, the fields ``search``."""
        if chosen == self.chosen:
            return replace(self, search=search)
        e = prepare(parse_settings(with_values(plain(self.asked), chosen)), data=self.data)
        return replace(e, engine=self.engine, asked=self.asked, chosen={**chosen}, search=search)

    def run(self, callbacks: Sequence[Callback] = (), state: State | None = None) -> State:
        """Take all steps, or the steps that remain after ``state``, and return the last state."""
        return run(self.trainer, self.problem, self.F, self.log_every, callbacks, state)

    def train(self, callbacks: Sequence[Callback] = ()) -> NSVM:
        """Search if the algorithm has a search, train, and return the model. Writes no files; see ``fit``."""
        return self.with_search().fit(callbacks)

    def fit(self, callbacks: Sequence[Callback] = ()) -> NSVM:
        """Train without a search, with the settings' callbacks and ``callbacks``, and return the model.

        The model is scored during training only if there are callbacks. With ``keep=best``, the model with
        the best score on the validation set is then returned.
        """
        scores, configured = self.callbacks
        observers = [*configured, *callbacks]  # scoring takes time, and only these need the scores
        model = self.final_model(self.run([scores, *observers] if observers else []))
        return scores.best_model or model

    def untrained(self) -> NSVM:
        """Return a model with the current theta and an empty kernel expansion."""
        K, z = self.problem.K, self.F(self.problem.x[:1])[:0]
        g = Expansion(z, z.new_zeros(0, *self.problem.task.outputs), 1.0)
        return NSVM(self.settings, self.metadata, self.scaling, self.F.network, K, g)

    def model(self, state: State) -> NSVM:
        """Return the model after ``state.t`` steps, without probabilities."""
        g = self.trainer.finish(self.problem, state)
        return replace(self.untrained(), expansion=g).with_metadata(
            scale=g.scale,
            bias=g.bias if isinstance(g.bias, float) else 0.0,
            one_vs_one=g.one_vs_one,
            steps=state.t,
            plugins_sha256=code_of(self.settings),
        )

    def final_model(self, state: State) -> NSVM:
        """Return the model at the end of training, with probabilities. Show a warning if it is constant."""
        model, x = self.model(state), self.data.splits["train"].x
        x = x[at_most(PROBE_SAMPLES, len(x), self.settings.seed, x.device)]
        if not self.algorithm.is_constant and (g := model.decision_function(x)).eq(g[0]).all():
            reason = CONSTANT if self.algorithm.trains_svm else ""
            say(f"the model has the same decision value for all samples{reason}")
        return self.calibrated(model)

    def calibrated(self, model: NSVM) -> NSVM:
        """Return the model, calibrated on the validation set if the settings require calibration."""
        if not calibrates(self.settings, self.data) or model.sigmoids is not None:
            return model
        validation = self.data.splits["validation"]
        return model.calibrated(validation.x, validation.y)

    def with_threshold(self, model: NSVM) -> tuple[NSVM, dict[str, Any]]:
        """Return the model with the threshold of the settings, and the result's field on the threshold."""
        threshold, classes = self.settings.threshold, self.metadata.classes
        slopes = [] if model.sigmoids is None else model.sigmoids[0].flatten().tolist()
        if falling := [name for name, a in zip(classes[-len(slopes) :], slopes, strict=False) if a > 0]:
            names = ", ".join(falling)
            say(f"calibration: larger decision values make {names} less probable on the validation set")
        if threshold is None:
            return model, {}
        if threshold == "best":
            y, g = (split := self.data.splits["validation"]).y, model.decision_function(split.x)
            t = best_threshold(y.numpy(), g.cpu().numpy(), self.metric)
            reason = f"the threshold with the best {self.metric} on the validation set"
        else:
            assert model.sigmoids is not None
            a, b = model.sigmoids.tolist()
            t = (math.log(1 / threshold - 1) - b) / a if a < 0 else 0.0
            falling_reason = "because probabilities do not increase with decision values"
            reason = f"where its probability is {threshold}" if t else falling_reason
        say(f"threshold: {classes[1]} is predicted for decision values of at least {t:.4g}, {reason}")
        return model.with_threshold(t), {"threshold": t}

    def with_changes(self, model: NSVM) -> NSVM:
        """Return the model with metadata on how training changed theta and the kernel matrix."""
        before, after = ((m.network, m.kernel) for m in (model.before_training(), model))
        changes = feature_change(before, after, self.problem.x, self.problem.seed)
        return model.with_metadata(theta_change=theta_change(before, after), feature_change=changes)


def prepare(settings: Settings, data: Data | None = None) -> Experiment:
    """Load the data of a run, unless given as ``data``, and build its objects.

    Raises:
        InputError: a setting is invalid or does not fit the data, the data are missing or damaged, or the run
            contains a value that its files cannot store.
    """
    # errors here are raised before the data are loaded, which may take minutes
    algorithm, optimizer, gradient, device = build_parts(settings)
    logger = build_logger(settings.logger)
    penalties = construct(with_weight, "", {"penalties": settings.penalties})
    data = data or load(settings)
    _expect_supported(settings, data)
    (task, y), train, dtype = data.training, data.splits["train"], getattr(torch, settings.dtype)
    kind = settings.dataset.get("scaling", "standard")
    scaling = fit_scaling(train.x, data.global_scaling, kind, train.weight)
    x: Any = Scaled(train.x, scaling, dtype, device)
    shape = tuple(x.shape[1:])
    if train.x.dtype != torch.uint8 or math.prod(x.shape) * dtype.itemsize <= settings.memory_budget * 2**20:
        x = x[:]
    network, K = at_start(settings, shape, task.outputs, x[:0])
    asked, named, algorithm = settings, algorithm, algorithm.for_samples(len(train.y))
    chosen = _in_place_of_null(asked, named, algorithm, partial(features, network, x), train.weight)
    settings = parse_settings(with_values(plain(asked), chosen))
    if settings.kernel != asked.kernel:
        network, K = at_start(settings, shape, task.outputs, x[:0])
    problem = Problem(
        x,
        y.to(device, dtype),
        K,
        settings.seed,
        settings.memory_budget,
        task,
        build_loss(settings.loss, settings.multiclass, task),
        penalties,
        data.weights(settings.class_weight),
        settings.sampler,
        settings.metric if settings.metric and METRICS[settings.metric].needs != "probabilities" else None,
    )
    augment = build_augmentation(settings.dataset.get("augment"), scaling.mean, scaling.std, shape)
    F = FeatureMap(network, optimizer, settings.seed, augment, gradient, K, settings.freeze)
    F.try_out(problem[np.arange(3) % len(x)][0])
    metadata = _metadata(data)
    differentiable = algorithm.moves_theta and gradient is None
    check_kernel(K, settings.kernel["name"], F(problem.x[:3]), F(problem.x[:5]), differentiable)
    algorithm.check(problem, F)
    engine = select(settings.engine, algorithm, problem, F)
    parts = problem, F, algorithm, engine, logger
    experiment = Experiment(settings, data, scaling, metadata, *parts, asked, chosen)
    _ = experiment.callbacks  # built here because their settings may be invalid
    return experiment


def _in_place_of_null(
    asked: Settings,
    named: Trainer[Any],
    algorithm: Trainer[Any],
    z: Callable[[], Float[Tensor, "m n"]],
    w: Float64[Tensor, " m"] | None,
) -> dict[str, Any]:
    """Return values, by dotted keys, that replace null in loss, kernel.gamma, algorithm.lam and .solver.

    ``algorithm`` is the algorithm ``named`` in the settings, completed for the number of samples.
    """
    names = [name for name in ("lam", "solver") if getattr(named, name, 0) is None]
    chosen = {f"algorithm.{name}": getattr(algorithm, name) for name in names}
    if asked.loss is None and (loss := algorithm.usual_loss(asked.task)):
        chosen["loss"] = {"name": loss}
    if algorithm.trains_svm and not algorithm.moves_theta:
        kernel = with_gamma_of_scale(asked.kernel, z, w)
        chosen |= {f"kernel.{key}": kernel[key] for key in kernel if kernel[key] != asked.kernel.get(key)}
    return {name: value for name, value in chosen.items() if value is not None}


def load(settings: Settings) -> Data:
    """Load and split the data of a run. Raise an InputError if the data cannot be read."""
    return load_data(settings.dataset, settings.seed, settings.task, settings.memory_budget)


def _expect_supported(settings: Settings, data: Data) -> None:
    """Raise an InputError if the data lack what the settings require."""
    uses = {
        "validation.every": settings.validation.every,
        "calibration=sigmoid": settings.calibration == "sigmoid",
        "threshold=best": settings.threshold == "best",
    }
    if settings.keep == "best" and not settings.validation.every:
        raise InputError(
            "keep=best requires validation.every: set it to the number of steps between two evaluations"
        )
    for use, required in uses.items():
        if required and not data.splits.sizes["validation"]:
            raise InputError(f"{use} requires a validation set: set dataset.validation above 0")
    t, metric, classes = settings.threshold, settings.metric or data.task.metric, data.task.classes
    if metric not in (names := [name for name, entry in METRICS.items() if settings.task in entry.tasks]):
        where = f" for task={settings.task}" if metric in METRICS else ""
        raise InputError(
            f"metric={metric}: there is no such metric{where}; {did_you_mean(metric, names)}; {OWN_PART}"
        )
    if t and len(classes) != 2:
        raise InputError(f"threshold={t} requires two classes, but the data have {len(classes) or 'none'}")
    if t == "best" and metric not in OF_DECISIONS:
        known = " or ".join(OF_DECISIONS)
        raise InputError(f"threshold=best requires metric={known}, got metric={metric}")
    use = f"threshold={t}" if isinstance(t, float) else f"metric={metric}"
    if (isinstance(t, float) or METRICS[metric].needs == "probabilities") and not calibrates(settings, data):
        raise InputError(
            f"{use} requires probabilities: set calibration=sigmoid, or set calibration=auto and a "
            "validation set with the class proportions of the data, such as dataset.validation=0.1"
        )


def calibrates(settings: Settings, data: Data) -> bool:
    """Return whether the model of a run has probabilities."""
    if settings.calibration != "auto":
        return settings.calibration is not None
    # a balanced validation set, such as "200 each", would make rare classes too probable
    balanced = isinstance(settings.dataset.get("validation"), str)
    return bool(data.task.classes and not balanced and data.splits.sizes["validation"])


def _metadata(data: Data) -> ModelMetadata:
    """Return the metadata of a model before training."""
    try:
        return ModelMetadata(
            scale=1.0,
            bias=0.0,
            shape=tuple(data.splits["train"].x.shape[1:]),
            classes=data.task.classes,
            absent=data.absent,
            steps=0,
            source=data.samples.source,
            sha256=data.samples.sha256,
            columns=None if data.encoder is None else data.encoder.columns,
            target=(data.task.mean, data.task.std) if isinstance(data.task, Regression) else None,
        )
    except ValidationError as error:
        raise InputError(f"the metadata of the model cannot be saved: {one_line(error)}") from None
