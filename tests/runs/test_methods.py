"""Runs of methods without steps, compared with scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from nsvm_cli.artifacts.model_file import load_model
from nsvm_cli.datasets import load_data
from nsvm_cli.runs.experiment import prepare
from tests.small_runs import small_run, small_settings
from tests.small_tables import small_table

LAM = 1e-3


def theirs(name: str, m: int, regression: bool) -> Any:
    C = 1 / (LAM * m)
    machines = {
        "svc": (SVC(C=C, gamma=0.05), SVR(C=C, gamma=0.05)),
        "logistic": (LogisticRegression(C=C, max_iter=10_000), Ridge(alpha=1 / C)),
        "trees": (
            HistGradientBoostingClassifier(random_state=0),
            HistGradientBoostingRegressor(random_state=0),
        ),
    }
    machine = machines[name][regression]
    return TransformedTargetRegressor(machine, transformer=StandardScaler()) if regression else machine


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("two classes", "svc"), ("three classes", "logistic"), ("three classes", "trees")),
        *(("regression", name) for name in ("svc", "logistic", "trees")),
    ],
)
def test_scores_are_scikit_learns_on_scaled_samples(kind: str, name: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"dataset": {"name": "ringnorm", "samples": 1000}}
    if kind != "two classes":
        settings = small_table(kind, tmp_path, validation=0)
    lam = {} if name == "trees" else {"lam": LAM}
    result = small_run(
        tmp_path / "run",
        **settings,
        network={"name": "identity"},
        kernel={"name": "linear"} if name == "logistic" else {"name": "rbf", "gamma": 0.05},
        algorithm={"name": name, **lam},
        dtype="float64",
    )
    splits = load_data(settings["dataset"], 0, settings.get("task", "classification")).splits
    (x, y), (x_test, y_test) = ((p.x.numpy(), p.y.numpy()) for p in (splits["train"], splits["test"]))
    scale, m = x.std(0, ddof=1), len(x)
    machine = theirs(name, m, kind == "regression")
    machine.fit((x - x.mean(0)) / scale, y)
    score = machine.score((x_test - x.mean(0)) / scale, y_test)
    key = "test_r2" if kind == "regression" else "test_accuracy"
    assert result[key] == pytest.approx(score, abs=1e-3 if kind == "regression" else 1e-9)


def test_frozen_features_are_those_of_the_initial_theta(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"algorithm": {"name": "svc", "lam": LAM}, "dtype": "float64"}
    result = small_run(tmp_path / "run", **changes)
    saved = load_model(tmp_path / "run" / "final.safetensors")
    assert (result["theta_steps"], saved.metadata.theta_change, saved.metadata.feature_change) == (0, 0, 0)
    e = prepare(small_settings(**changes))
    z, y, test = e.F(e.problem.x).numpy(), e.problem.host_y, e.data.splits["test"]
    machine = SVC(C=1 / (LAM * len(y)), gamma="scale").fit(z, y)
    z_test = e.F(e.scaling(test.x, e.problem.x.dtype)).numpy()
    assert result["test_errors"] == np.count_nonzero(machine.predict(z_test) != test.y.numpy())
