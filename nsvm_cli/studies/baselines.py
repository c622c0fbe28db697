"""Baselines: alternatives to a neural SVM, evaluated on the same split of the same data."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import svm

from nsvm_cli.config.settings import Section
from nsvm_cli.datasets import Data, load_data
from nsvm_cli.datasets.ringnorm import bayes_rule
from nsvm_cli.datasets.scaling import fit_scaling
from nsvm_cli.models.losses import DEFAULTS, build_loss
from nsvm_cli.runs.experiment import OF_CLASSES
from nsvm_cli.runs.model_file import load_model
from nsvm_cli.trainers import Problem, build_trainer
from nsvm_cli.trainers.svc import SVC

Figures = dict[str, Any]


def svc_on_inputs(dataset: Section, seed: int) -> Figures:
    """Evaluate scikit-learn's SVC with its defaults on the standardised inputs.

    The defaults are an RBF kernel, C = 1 and gamma = "scale".
    """
    data = load_data(dataset, seed)
    train, test = data.splits["train"], data.splits["test"]
    scaling = fit_scaling(train.x, data.global_scaling)
    x, x_test = (scaling(split.x).flatten(1).numpy() for split in (train, test))
    begin = time.perf_counter()
    machine = svm.SVC().fit(x, train.y.numpy())
    seconds = time.perf_counter() - begin
    return _figures(machine.predict(x_test), data, seconds, len(machine.support_))


def svc_on_features(model_file: Path) -> Figures:
    """Evaluate scikit-learn's SVC on the features of a trained model, with the model's kernel.

    It solves to optimality, with a bias, the problem that Pegasos approximates: C = 1/(lambda m). For real
    targets it is SVR with the model's epsilon, or its default if the model has another loss.
    """
    saved = load_model(model_file)
    model, settings = saved.model, saved.settings
    data = load_data(settings.dataset, settings.seed, settings.task)
    train, test = data.splits["train"], data.splits["test"]
    like = model.expansion.z
    z, z_test = model.features(train.x), model.features(test.x)
    own = settings.loss or {}
    default = DEFAULTS[settings.task]
    loss = build_loss(
        own if own.get("name") == default else {"name": default}, settings.multiclass, model.task
    )
    y = model.task.targets(train.y).to(like)
    problem = Problem(z, y, model.kernel, settings.seed, task=model.task, loss=loss)
    lam: float = build_trainer(settings.algorithm).lam  # type: ignore[attr-defined]
    begin = time.perf_counter()
    g = SVC(lam).solve(problem, z)
    seconds = time.perf_counter() - begin
    decisions = model.task.decide(g(model.kernel, z_test)).cpu().numpy()
    return _figures(decisions, data, seconds, len(g.alpha))


def bayes(dataset: Section, seed: int) -> Figures:
    """Evaluate the Bayes rule for Ringnorm, which knows the two distributions."""
    data = load_data(dataset, seed)
    test = data.splits["test"]
    likelier_B = bayes_rule(test.x.numpy(), data.splits["all"].x.numpy())
    return _figures(np.where(likelier_B, 1, -1), data, None, None)


def _figures(decisions: np.ndarray, data: Data, seconds: float | None, vectors: int | None) -> Figures:
    test = data.splits["test"]
    scores = data.task.score(test.y.numpy(), decisions)
    return {
        **{name: figure for name, figure in scores.items() if name not in OF_CLASSES},
        "samples": len(test),
        "overlap": data.overlap("test"),
        "generated": data.generated,
        "seconds": None if seconds is None else round(seconds, 3),
        "support_vectors": vectors,
        "theta_steps": None,
    }
