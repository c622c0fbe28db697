"""Diagnoses of models with one deliberate fault each, and of models to which some metrics do not apply."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.svm import SVC

from nsvm_cli.artifacts.diagnosis import better, diagnose, overfitted, verdict
from nsvm_cli.errors import InputError
from nsvm_cli.estimators import NSVMClassifier
from nsvm_cli.runs.open_model import load_trained
from nsvm_cli.words import diagnosis_rows
from tests.page.models import load
from tests.small_tables import small_table

ALG4 = {"name": "alg4", "steps": 200, "solver": "svc", "lam": 1e-3}
RINGNORM = {"dataset": {"name": "ringnorm", "samples": 1000}, "network": {"name": "identity"}}
PEGASOS = {**RINGNORM, "algorithm": {"name": "pegasos", "steps": 1500, "lam": 1e-3}}
MADE: dict[str, dict[str, Any]] = {
    "healthy": {"dataset": RINGNORM["dataset"], "algorithm": ALG4},
    "worse than the initial features": {
        "dataset": RINGNORM["dataset"],
        "network": {"name": "mlp", "widths": [8, 6]},
        "optimizer": {"name": "sgd", "lr": 20.0},
        "algorithm": ALG4,
    },
    "identity-like kernel": {**PEGASOS, "kernel": {"name": "rbf", "gamma": 50.0, "bias": True}},
    "constant kernel": {**PEGASOS, "kernel": {"name": "rbf", "gamma": 1e-4}},
    "frozen features": {
        "dataset": {"name": "digits"},
        "optimizer": {"name": "sgd", "lr": 0.0},
        "algorithm": {"name": "alg1", "steps": 300, "lam": 1e-3},
    },
}


@pytest.mark.parametrize("made", MADE)
def test_made_cases_are_told_apart(made: str, tmp_path: Path) -> None:
    figures = diagnose(*(found := load(tmp_path, **MADE[made])))
    assert figures["verdict"] == made, figures["why"]
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures
    has_theta = MADE[made].get("network") != RINGNORM["network"]
    assert (figures["theta_change"] is not None) == (figures["frozen_accuracy"] is not None) == has_theta
    assert (figures["refreshed_accuracy"] is not None) == (made == "frozen features")
    assert figures["duality_gap"] >= 0
    assert (figures["duality_gap"] < 1e-3) == (MADE[made]["algorithm"] == ALG4), "only exact SVMs converge"
    if made == "healthy":
        some = diagnose(*found, most=50)
        meanings = {name: meaning for name, _, meaning in diagnosis_rows(some)}
        assert meanings["test accuracy"] == "on 50 of 100 test samples"
        assert meanings["train accuracy"] == "on 50 of 900 training samples"
        assert "on 50 of 100 test samples" in some["why"]


def test_the_model_of_an_estimator_has_no_data_to_diagnose_it_on(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(20, 2))
    NSVMClassifier("pegasos", steps=5).fit(x, x[:, 0] > 0).save(tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="saved by an estimator, so the arrays on which"):
        load_trained(tmp_path / "model.safetensors", {})


@pytest.mark.parametrize("class_weight", [None, {"A": 4.0}])
def test_the_gap_is_that_to_the_dual_value_of_scikit_learn(class_weight: Any, tmp_path: Path) -> None:
    kernel = {"name": "rbf", "gamma": 0.05}
    model, data = load(tmp_path, **PEGASOS, kernel=kernel, dtype="float64", class_weight=class_weight)
    train, lam = data.splits["train"], 1e-3
    y, z = train.y.numpy(), model.features(train.x)
    K = model.kernel(z, z).numpy()
    m = len(y)
    w = np.ones(m) if class_weight is None else data.weights(class_weight)
    svc = SVC(C=1 / (lam * m), kernel="precomputed", tol=1e-9).fit(K, y, sample_weight=w)
    a = np.zeros(m)
    a[svc.support_] = svc.dual_coef_[0]
    dual = lam * (np.abs(a).sum() - a @ K @ a / 2)
    f = K[:, svc.support_] @ svc.dual_coef_[0] + svc.intercept_
    primal = lam / 2 * a @ K @ a + (w * np.maximum(0, 1 - y * f)).mean()
    figures = diagnose(model, data)
    assert primal == pytest.approx(dual, abs=1e-6)
    assert figures["duality_gap"] > 1e-4, "Pegasos should not have converged in so few steps"
    alpha, i = torch.from_numpy(svc.dual_coef_[0]), torch.from_numpy(svc.support_).long()
    bias = float(svc.intercept_[0])
    expansion = replace(model.expansion, z=z[i], alpha=alpha, scale=1.0, bias=bias, i=i)
    figures = diagnose(replace(model, expansion=expansion), data)
    assert figures["objective"] == pytest.approx(primal, rel=1e-9)
    assert figures["objective"] - figures["duality_gap"] == pytest.approx(dual, abs=1e-8)
    assert figures["refit_accuracy"] == figures["test_accuracy"]


SVM = {"support_vectors", "refit_accuracy", "frozen_accuracy", "objective", "duality_gap"}
THETA = {"theta_change", "feature_change", "theta_zeros"}
NO_GAP = {"duality_gap", "refreshed_accuracy"}
BUDGET = {"name": "alg1", "steps": 60, "lam": 0.01, "budget": 10}
LINEAR = {"kernel": {"name": "linear"}}
HEAD = {"network": {"name": "mlp", "widths": [6], "head": True}, **LINEAR}
VALIDATED = {"name": "ringnorm", "samples": 200, "validation": 50}
CASES: list[tuple[dict[str, Any], set[str]]] = [
    ({"algorithm": {"name": "cross_entropy", "steps": 20}, **HEAD}, {*SVM, "refreshed_accuracy"}),
    ({"dataset": VALIDATED, "calibration": "sigmoid"}, {"refreshed_accuracy"}),
    ({**LINEAR, "algorithm": {"name": "alg4", "steps": 20, "solver": "linear", "lam": 0.01}}, NO_GAP),
    ({"loss": {"name": "logistic"}}, NO_GAP),
    ({"algorithm": {"name": "pegasos", "steps": 60}}, {*THETA, "frozen_accuracy", "refreshed_accuracy"}),
    ({"algorithm": {**BUDGET, "maintenance": "removal"}}, set()),
    ({"algorithm": {**BUDGET, "maintenance": "merging"}}, NO_GAP),
]


@pytest.mark.parametrize(("changes", "expected"), CASES)
def test_what_does_not_apply_is_null(changes: dict[str, Any], expected: set[str], tmp_path: Path) -> None:
    figures = diagnose(*load(tmp_path, **changes))
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures
    unknown = {name for name, value in figures.items() if value is None}
    assert unknown - {"rescaled_accuracy"} == expected
    assert figures["verdict"] != "frozen features"
    names = [name for name, *_ in diagnosis_rows(figures)]
    assert ("validation accuracy" in names) == ("calibration" in changes)


@pytest.mark.parametrize("solver", ["pegasos", "svc"])
@pytest.mark.parametrize("table", ["three classes", "regression"])
def test_tables(table: str, solver: str, tmp_path: Path) -> None:
    algorithm = {"name": "alg4", "steps": 20, "solver_steps": 100, "lam": 0.01, "solver": solver}
    changes = {**small_table(table, tmp_path), "algorithm": algorithm}
    if table == "regression" and solver == "pegasos":
        changes["loss"] = {"name": "squared"}
    figures = diagnose(*load(tmp_path, **changes))
    metric = "r2" if table == "regression" else "accuracy"
    assert figures["metric"] == metric
    assert None not in (figures[f"test_{metric}"], figures[f"refit_{metric}"], figures[f"frozen_{metric}"])
    assert figures["duality_gap"] is None
    assert (figures["objective"] is None) == (table == "three classes" and solver == "svc")
    assert "duality gap" not in {name for name, *_ in diagnosis_rows(figures)}


def test_chance_makes_no_difference() -> None:
    none, some = torch.zeros(1000), torch.zeros(1000)
    some[:4] = 1
    assert not better(none, some)
    assert not better(none, none)
    some[4:6] = 1
    assert better(none, some)
    assert not better(some, none)
    assert overfitted(none, some)
    assert not overfitted(some, some)


FINE: dict[str, Any] = {
    "metric": "accuracy",
    **{f"{name}_accuracy": None for name in ("refreshed", "frozen", "rescaled")},
    "test_accuracy": 0.98,
    "train_accuracy": 0.99,
    "refit_accuracy": 0.98,
    "guess_accuracy": 0.5,
    "support_vectors": 9,
    "distance_identity": 0.5,
    "distance_ones": 0.5,
    "entropy": 0.5,
    "theta_change": 0.5,
    "feature_change": 0.5,
    "split": "test",
    **dict.fromkeys(("samples", "held_out_samples", "fitted_samples", "train_samples"), 100),
    "beats_guess": True,
    "worse_features": False,
    "overfitted": True,
}
NARROW = {"distance_identity": 0.01, "entropy": 0.99}
FLAT = {"distance_ones": 0.01}
GUESSED = {**FLAT, "beats_guess": False, "test_accuracy": 0.5}
AT_CHANCE = {"test_accuracy": 0.715, "guess_accuracy": 0.699, "refit_accuracy": 0.715}
NONE_OF = dict.fromkeys(("refreshed_r2", "frozen_r2", "rescaled_r2"))
R2 = {**NONE_OF, "train_r2": 0.989, "guess_r2": -0.01}


@pytest.mark.parametrize(
    ("expected", "changes"),
    [
        ("healthy", {}),
        ("healthy", NARROW),
        ("identity-like kernel", {**NARROW, "test_accuracy": 0.9}),
        ("healthy", {**NARROW, "overfitted": False, "test_accuracy": 0.9}),
        ("healthy", {**FLAT, "rescaled_accuracy": 0.99}),
        ("constant kernel", {**FLAT, "test_accuracy": 0.8, "refit_accuracy": 0.8, "rescaled_accuracy": 0.99}),
        ("constant kernel", {**GUESSED, "refit_accuracy": 0.5}),
        ("no better than one answer for all", GUESSED),
        ("no better than one answer for all", {"beats_guess": False, "train_accuracy": 0.6, **AT_CHANCE}),
        ("overfitted", {"beats_guess": False, "train_accuracy": 0.984, **AT_CHANCE}),
        ("overfitted", {"train_accuracy": 0.984, **AT_CHANCE}),
        ("healthy", {"train_accuracy": 0.984, **AT_CHANCE, "overfitted": False}),
        ("overfitted", {"metric": "r2", **R2, "test_r2": -0.07, "refit_r2": None}),
        ("healthy", {"metric": "r2", **R2, "test_r2": 0.6, "refit_r2": 0.6}),
        ("frozen features", {"feature_change": 0.0}),
        ("healthy", {"theta_change": 1e-4}),
        ("frozen features", {"theta_change": 1e-4, "feature_change": None}),
        ("worse than the initial features", {**NARROW, "test_accuracy": 0.9, "worse_features": True}),
    ],
)
def test_the_worst_is_the_verdict(expected: str, changes: dict[str, Any]) -> None:
    said = verdict({**FINE, **changes})
    assert said["verdict"] == expected
    assert "{" not in said["why"]
    if expected in ("overfitted", "no better than one answer for all"):
        of = f"_{changes.get('metric', 'accuracy')}"
        figures = {**FINE, **changes}
        assert all(f"{figures[name + of]:.4f}" in said["why"] for name in ("train", "test", "guess"))
