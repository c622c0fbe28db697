"""Metrics that the user defines: runs record them and choose by them, and comparisons need no module."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, log_loss, roc_auc_score

from nsvm_cli.comparison.compare import cells
from nsvm_cli.comparison.records import find_runs
from nsvm_cli.config.settings import code_of
from nsvm_cli.errors import InputError
from nsvm_cli.estimators import NSVMRegressor
from nsvm_cli.metrics import METRICS, figure_of, metric, sign_of
from nsvm_cli.models.nsvm import scores_of
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.tasks import BINARY
from tests.small_runs import small_run, small_settings

SPLIT = {"name": "ringnorm", "samples": 300, "validation": 60}


@pytest.fixture(autouse=True)
def own_metrics() -> Iterator[None]:
    @metric()
    def macro_f1(y: Any, predicted: Any, weights: Any) -> float:
        return float(f1_score(y, predicted, average="macro"))

    @metric(needs="decisions")
    def area(y: Any, g: Any, weights: Any) -> float:
        return float(roc_auc_score(y, g))

    @metric(needs="probabilities", greater_is_better=False)
    def surprise(y: Any, p: Any, weights: Any) -> float:
        return float(log_loss(y, p))

    @metric(tasks=["regression"], greater_is_better=False)
    def worst(y: Any, predicted: Any, weights: Any) -> Any:
        return np.abs(y - predicted).max() if len(y) < 1000 else None

    yield
    for name in ("macro_f1", "area", "surprise", "worst"):
        METRICS.pop(name, None)


def test_a_run_records_them_keeps_the_best_by_one_and_has_all_in_its_result(tmp_path: Path) -> None:
    """User-defined copies of nsvm's metrics have the same values. Probabilities require calibration."""
    best = {"metric": "surprise", "keep": "best", "validation": {"every": 20}}
    result = small_run(tmp_path / "run", dataset=SPLIT, callbacks=["early_stopping"], **best)
    for split in ("train", "validation", "test"):
        assert result[f"{split}_area"] == pytest.approx(result[f"{split}_roc_auc"])
        assert result[f"{split}_surprise"] == pytest.approx(result[f"{split}_log_loss"])
        assert 0 < result[f"{split}_macro_f1"] <= 1
    assert result["metric"] == "surprise"
    assert result["greater_is_better"] == {"macro_f1": True, "area": True, "surprise": False}
    assert "test_worst" not in result
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    scores = [r["validation_surprise"] for r in records if "validation_surprise" in r]
    assert len(scores) > 2
    assert result["best_validation_surprise"] == min(scores)
    uncalibrated = small_run(tmp_path / "uncalibrated")
    assert "test_area" in uncalibrated
    assert "test_surprise" not in uncalibrated


def test_for_real_targets_it_receives_the_units_of_the_data() -> None:
    X, y = np.linspace(0, 1, 60)[:, None], np.linspace(0, 1000, 60)
    regressor = NSVMRegressor("pegasos", steps=5, engine="torch").fit(X, y)
    scores = regressor.model_.score(torch.from_numpy(X), torch.from_numpy(y))
    assert scores["worst"] == pytest.approx(np.abs(regressor.predict(X) - y).max())


def test_comparing_needs_no_module(tmp_path: Path) -> None:
    for seed, lam in product((0, 1), (1e-3, 1.0)):
        algorithm = {"name": "pegasos", "steps": 50, "lam": lam}
        small_run(
            tmp_path / f"{lam}-{seed}", dataset=SPLIT, algorithm=algorithm, metric="surprise", seed=seed
        )
    METRICS.pop("surprise")
    compared = cells(find_runs([tmp_path]))
    assert [(cell.figure, cell.sign, cell.unit) for cell in compared] == [("surprise", -1, "surprise")] * 2


def test_the_better_direction() -> None:
    for key in ("test_accuracy", "new", "area"):
        assert sign_of(key) == 1
    for key in ("validation_log_loss", "mean_rmse", "hinge_loss", "validation_surprise", "full_objective"):
        assert sign_of(key) == -1


def test_names_and_directions_of_metrics_whose_module_is_not_loaded() -> None:
    assert sign_of("test_cost", {"greater_is_better": {"cost": False}}) == -1
    for wrong in (["cost"], 3, "cost", {"cost": [1]}):
        assert sign_of("test_cost", {"greater_is_better": wrong}) in (-1, 1)
    assert figure_of("test_my_cost").name == "test my cost"
    assert figure_of("test_my_cost").written(0.5) == "0.5000"


def test_its_code_counts_and_its_name_is_checked() -> None:
    assert code_of(small_settings(metric="accuracy")) is None
    for name, says in {
        "surprize": "metric=surprize: there is no such metric; did you mean surprise",
        "worst": "metric=worst: there is no such metric",
        "surprise": "metric=surprise requires probabilities",
    }.items():
        with pytest.raises(InputError, match=says):
            prepare(small_settings(metric=name))


def test_metrics_that_are_refused() -> None:
    def accuracy(y: Any, predicted: Any, weights: Any) -> float:
        return 0.0

    def of_two(y: Any, predicted: Any) -> float:
        return 0.0

    def of_words(y: Any, predicted: Any, weights: Any) -> str:
        return "many"

    with pytest.raises(ValueError, match="needs='probs': expected one of labels, decisions, probabilities"):
        metric(needs="probs")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="metric accuracy: nsvm has a metric of this name"):
        metric()(accuracy)
    with pytest.raises(ValueError, match="metric of_two: expected the parameters y, prediction, weights"):
        metric()(of_two)
    with mock.patch.dict(METRICS):
        metric()(of_words)
        with pytest.raises(InputError, match="metric of_words: expected a number or None, got 'many'"):
            scores_of(BINARY, torch.tensor([-1.0, 1.0]), torch.ones(2))
