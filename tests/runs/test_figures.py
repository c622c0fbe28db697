"""Metrics that a run records for each task, and the changes of theta and of the features in training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nsvm_cli.artifacts.model_file import load_model
from nsvm_cli.errors import InputError
from nsvm_cli.runs.open_model import evaluate_model, open_model
from nsvm_cli.storage.metrics_file import read_metrics
from nsvm_cli.trainers import TRAINERS
from tests.conftest import few_steps
from tests.small_runs import small_run
from tests.small_tables import small_table

pytestmark = pytest.mark.usefixtures("shapes")


def run(folder: Path, **changes: Any) -> dict[str, Any]:
    return small_run(folder, **{"algorithm": {"name": "alg2", "steps": 60}, **changes})


@pytest.mark.parametrize("algorithm", ["alg1", "alg2", "alg3", "alg4"])
def test_without_a_learning_rate_nothing_changes(algorithm: str, tmp_path: Path) -> None:
    chosen = {"name": algorithm, "steps": 10, **({"solver_steps": 10} if algorithm == "alg4" else {})}
    still = {"name": "sgd", "lr": 0.0, "momentum": 0.9, "weight_decay": 0.1}
    for optimizer, moved in ((still, False), ({**still, "lr": 1e-4}, True)):
        result = run(tmp_path / str(moved), algorithm=chosen, optimizer=optimizer)
        assert (result["theta_change"] > 0, result["feature_change"] > 0) == (moved, moved)
        assert result["parameters"] == 20 * 10 + 10 + 10 * 6 + 6
        assert result["data"]["origins"] == ["ringnorm"]


def test_what_has_no_theta_has_none_that_changed(tmp_path: Path) -> None:
    result = run(tmp_path / "run", network={"name": "identity"})
    assert (result["parameters"], result["theta_change"], result["feature_change"]) == (0, None, 0)


def test_model_files_and_evaluate_know_what_changed(tmp_path: Path) -> None:
    table = small_table("three classes", tmp_path)
    result = run(tmp_path / "run", **table, validation={"every": 30})
    figures = evaluate_model(*open_model(tmp_path / "run"), None, None, {})
    same = ("recall", "precision", "confusion", "parameters", "theta_change", "feature_change")
    assert {key: figures[key] for key in same} == {key: result[key] for key in same}
    assert figures["task"] == "classification"
    assert figures["errors"] == result["validation_errors"]
    test = evaluate_model(*open_model(tmp_path / "run"), "test", None, {})
    assert all(result[f"test_{name}"] == test[name] for name in ("accuracy", "errors"))
    assert [sum(row) for row in result["confusion"]] == [20, 20, 20]
    best = load_model(tmp_path / "run" / "best.safetensors").metadata
    assert best.steps == result["best_step"]
    assert (best.theta_change or 0) > 0
    assert (best.feature_change or 0) > 0
    for value in (-0.1, 2.1, float("nan")):
        with pytest.raises(ValueError, match="feature_change"):
            replace(best, feature_change=value)


@pytest.mark.parametrize("kind", ["three classes", "regression"])
@pytest.mark.parametrize("algorithm", sorted(TRAINERS))
def test_a_model_file_of_every_algorithm_and_task_scores_as_its_run(
    algorithm: str, kind: str, tmp_path: Path
) -> None:
    table = small_table(kind, tmp_path)
    if algorithm in ("cross_entropy", "linear_pegasos", "linear_svm", "logistic"):
        table |= {"kernel": {"name": "linear"}}
    if algorithm == "cross_entropy":
        table |= {"network": {"name": "mlp", "widths": [8], "head": True}}
    result = run(tmp_path / "run", **table, algorithm={"name": algorithm, **few_steps(algorithm, 20)})
    if not TRAINERS[algorithm].saves_model:
        with pytest.raises(InputError, match=f"algorithm={algorithm} cannot be saved"):
            open_model(tmp_path / "run")
        return
    figures = evaluate_model(*open_model(tmp_path / "run"), None, None, {})
    assert figures["support_vectors"] == result["support_vectors"]
    without_svm = not TRAINERS[algorithm].trains_svm
    assert (result["support_vectors"] is None) == without_svm
    chosen = TRAINERS[result["algorithm"]]  # algorithm=auto chooses another algorithm
    assert (result["violations"] is None) == (without_svm or chosen.chooses_steps)
    for score in ("errors",) if kind == "three classes" else ("rmse", "r2"):
        assert figures[score] == result[f"validation_{score}"]


def test_real_targets_have_errors_in_the_units_of_the_data(tmp_path: Path) -> None:
    table = small_table("regression", tmp_path)
    algorithm = {"name": "alg4", "steps": 20, "solver_steps": 300, "lam": 1e-2}
    changes = {"kernel": {"name": "rbf", "gamma": 0.5}, "network": {"name": "mlp", "widths": [8, 6]}}
    result = run(tmp_path / "run", **table, **changes, algorithm=algorithm, validation={"every": 60})
    assert 0.3 < result["test_r2"] < 1
    assert 0.3 < result["validation_r2"] < 1
    spread = result["validation_rmse"] / (1 - result["validation_r2"]) ** 0.5
    assert 15 < spread < 40, "the standard deviation of the targets is about 24"
    assert "confusion" not in result
    figures = evaluate_model(*open_model(tmp_path / "run"), None, None, {})
    for name in ("r2", "rmse", "mae"):
        assert figures[name] == result[f"validation_{name}"]
    records = read_metrics(tmp_path / "run" / "metrics.jsonl")
    seen = {record["step"]: record["validation_r2"] for record in records if "validation_r2" in record}
    assert result["best_validation_r2"] == max(seen.values()) == seen[result["best_step"]]


def test_without_an_r2_there_is_no_best_model(tmp_path: Path) -> None:
    """R^2 is undefined for a validation set of one sample."""
    table = small_table("regression", tmp_path, validation=1)
    result = run(tmp_path / "run", **table, validation={"every": 30})
    assert result["validation_r2"] is None
    assert "best_step" not in result
    assert not (tmp_path / "run" / "best.safetensors").exists()
