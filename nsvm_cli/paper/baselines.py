"""Baselines: alternatives to a neural SVM, evaluated on the same split of the same data."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import clone, svm
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.model_selection import GridSearchCV, train_test_split
from threadpoolctl import threadpool_limits

from nsvm_cli.artifacts.model_file import load_model
from nsvm_cli.datasets import Data, load_data
from nsvm_cli.datasets.ringnorm import bayes_rule
from nsvm_cli.datasets.scaling import fit_scaling
from nsvm_cli.models.losses import DEFAULTS, build_loss
from nsvm_cli.runs.experiment import OF_CLASSES
from nsvm_cli.trainers import Problem, build_trainer
from nsvm_cli.trainers.svc import SVC


def svc_on_inputs(data: Data) -> dict[str, Any]:
    """Evaluate scikit-learn's SVC with its defaults on the standardised inputs.

    The defaults are an RBF kernel, C = 1 and gamma = "scale".
    """
    x, x_test = _inputs(data)
    begin = time.perf_counter()
    machine = svm.SVC().fit(x, data.splits["train"].y.numpy())
    seconds = time.perf_counter() - begin
    return _figures(machine.predict(x_test), data, seconds, len(machine.support_))


C = (1.0, 10.0, 100.0)
GAMMA = (0.25, 1.0, 4.0)
"""In multiples of 1/d for d features, which are standardised: 1 is scikit-learn's default, "scale"."""

EPSILON = (0.03, 0.1, 0.3)
"""In standard deviations of the targets."""

TREES = {"learning_rate": (0.05, 0.1, 0.2), "max_leaf_nodes": (15, 31, 63)}
MOST_TREES = 500
"""Of each class; early stopping on a tenth of the training samples takes fewer."""

MOST_SAMPLES, FOLDS = 5000, 3
CACHE = 500
"""Of kernel values, in MB."""


def tuned_svc(data: Data) -> dict[str, Any]:
    """Evaluate SVC, or SVR for real targets, with an RBF kernel on the standardised inputs, tuned."""
    d = math.prod(data.splits["train"].x.shape[1:])
    grid = {"C": C, "gamma": [factor / d for factor in GAMMA]}
    if data.task.kind == "regression":
        return _tuned(svm.SVR(cache_size=CACHE), {**grid, "epsilon": EPSILON}, data)
    return _tuned(svm.SVC(cache_size=CACHE), grid, data)


def tuned_boosting(data: Data) -> dict[str, Any]:
    """Evaluate scikit-learn's histogram-based gradient boosting of trees, tuned."""
    regression = data.task.kind == "regression"
    machine = HistGradientBoostingRegressor if regression else HistGradientBoostingClassifier
    return _tuned(machine(max_iter=MOST_TREES, early_stopping=True, random_state=0), TREES, data)


def _tuned(machine: BaseEstimator, grid: Mapping[str, Sequence[int | float]], data: Data) -> dict[str, Any]:
    """Evaluate a machine of scikit-learn's, with the values of a grid that cross-validation finds best.

    They are those with the highest accuracy, or R^2, over 3 folds of the training samples, or of 5000 that
    are drawn in proportion to the classes. Then the machine is fitted once, to all training samples;
    ``seconds`` are those of this fit.
    """
    task, (x, x_test) = data.task, _inputs(data)
    y = task.targets(data.splits["train"].y).numpy()
    rows = np.arange(len(y))
    if len(y) > MOST_SAMPLES:
        strata = y if task.classes else None
        rows, _ = train_test_split(rows, train_size=MOST_SAMPLES, stratify=strata, random_state=0)
    with threadpool_limits(1):  # several runs share the cores
        search = GridSearchCV(machine, grid, cv=FOLDS, refit=False).fit(x[rows], y[rows])
        begin = time.perf_counter()
        machine = clone(machine).set_params(**search.best_params_).fit(x, y)
        seconds = time.perf_counter() - begin
        predicted = machine.predict(x_test)
    decisions = predicted if task.classes else task.decide(predicted)
    vectors = len(machine.support_) if hasattr(machine, "support_") else None
    return {**_figures(decisions, data, seconds, vectors), "chosen": search.best_params_}


def svc_on_features(model_file: Path) -> dict[str, Any]:
    """Evaluate scikit-learn's SVC on the features of a trained model, with the model's kernel.

    It solves to scikit-learn's precision, with a bias, the problem that Pegasos approximates: C =
    1/(lambda m). For real targets it is SVR with the model's epsilon, or its default if the model has another
    loss.
    """
    model = load_model(model_file)
    settings = model.settings
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
    lam: float = build_trainer(settings.algorithm).lam
    begin = time.perf_counter()
    g = SVC(lam).solve(problem, z)
    seconds = time.perf_counter() - begin
    decisions = model.task.decide(g(model.kernel, z_test)).cpu().numpy()
    return _figures(decisions, data, seconds, len(g.alpha))


def bayes(data: Data) -> dict[str, Any]:
    """Evaluate the Bayes rule for Ringnorm, which knows the two distributions."""
    test = data.splits["test"]
    likelier_B = bayes_rule(test.x.numpy(), data.splits["all"].x.numpy())
    return _figures(np.where(likelier_B, 1, -1), data, None, None)


def _inputs(data: Data) -> tuple[np.ndarray, np.ndarray]:
    """Return the standardised inputs of the training and test samples as vectors."""
    train, test = data.splits["train"].x, data.splits["test"].x
    scaling = fit_scaling(train, data.global_scaling)
    return scaling(train).flatten(1).numpy(), scaling(test).flatten(1).numpy()


def _figures(decisions: np.ndarray, data: Data, seconds: float | None, vectors: int | None) -> dict[str, Any]:
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
