"""The baselines, compared with their definitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.compose import TransformedTargetRegressor
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from nsvm_cli.datasets import load_data
from nsvm_cli.datasets.ringnorm import bayes_accuracy, bayes_rule
from nsvm_cli.paper.baselines import bayes, svc_on_features, svc_on_inputs, tuned_boosting, tuned_svc
from tests.datasets.helpers import load
from tests.small_runs import small_run
from tests.small_tables import KINDS, small_table

RINGNORM: dict[str, Any] = {"name": "ringnorm", "samples": 1000}


def test_svc_on_inputs_is_what_a_user_would_write() -> None:
    parts = (data := load_data(RINGNORM, 3)).splits
    (x, y), (x_test, y_test) = ((p.x.numpy(), p.y.numpy()) for p in (parts["train"], parts["test"]))
    scaler = StandardScaler().fit(x)
    theirs = SVC().fit(scaler.transform(x), y).score(scaler.transform(x_test), y_test)
    figures = svc_on_inputs(data)
    assert figures["accuracy"] == pytest.approx(theirs)
    assert figures["errors"] == round((1 - theirs) * 100)


def test_nothing_is_better_than_the_bayes_rule() -> None:
    everything = load("ringnorm", samples=200_000).splits["all"]
    x, y = everything.x.numpy(), everything.y.numpy()
    right = bayes_rule(x, x) == (y > 0)
    assert right.mean() == pytest.approx(bayes_accuracy(), abs=1e-3)
    # the likelihoods themselves
    a = 2 / 20**0.5
    A = torch.distributions.Normal(0.0, 2.0).log_prob(everything.x).sum(1)
    B = torch.distributions.Normal(a, 1.0).log_prob(everything.x).sum(1)
    assert ((B >= A).numpy() == bayes_rule(x, x)).mean() > 0.999, "but for the moments, which are estimates"
    scaled = (x - x.mean(0)) / x.std(0)
    assert (bayes_rule(scaled, scaled) == bayes_rule(x, x)).all()
    assert bayes(load_data(RINGNORM, 0))["accuracy"] > 0.95


@pytest.mark.parametrize("kind", KINDS)
def test_svc_on_features_takes_any_task(kind: str, tmp_path: Path) -> None:
    table = small_table(kind, tmp_path, validation=0)
    if kind == "regression":
        table["loss"] = {"name": "epsilon_insensitive", "epsilon": 0.3}
    svc = {"name": "alg4", "steps": 10, "solver": "svc"}
    result = small_run(tmp_path / "run", **table, kernel={"name": "rbf", "gamma": 0.5}, algorithm=svc)
    figures = svc_on_features(tmp_path / "run" / "final.safetensors")
    assert "confusion" not in figures
    same = ("r2", "rmse", "mae") if kind == "regression" else ("accuracy", "errors")
    assert {name: figures[name] for name in same} == {name: result[f"test_{name}"] for name in same}
    assert figures["support_vectors"] == result["support_vectors"]


@pytest.mark.parametrize("kind", KINDS)
def test_tuned_baselines_choose_on_training_samples_and_take_any_task(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nsvm_cli.paper.baselines.MOST_SAMPLES", 100)
    monkeypatch.setattr("nsvm_cli.paper.baselines.EPSILON", (0.1,))
    monkeypatch.setattr("nsvm_cli.paper.baselines.MOST_TREES", 30)
    monkeypatch.setattr(
        "nsvm_cli.paper.baselines.TREES", {"learning_rate": (1e-6, 0.3), "max_leaf_nodes": (4,)}
    )
    table = small_table(kind, tmp_path, validation=0)
    data = load_data(table["dataset"], 0, table["task"])
    svc, trees = tuned_svc(data), tuned_boosting(data)
    assert trees["chosen"] == {"learning_rate": 0.3, "max_leaf_nodes": 4}
    assert trees["support_vectors"] is None
    x, y = data.splits["train"].x.numpy(), data.splits["train"].y.numpy()
    x_test, y_test = data.splits["test"].x.numpy(), data.splits["test"].y.numpy()
    scaler = StandardScaler().fit(x)
    if kind == "regression":
        machine = TransformedTargetRegressor(SVR(**svc["chosen"]), transformer=StandardScaler())
        score = "r2"
    else:
        machine, score = SVC(**svc["chosen"]), "accuracy"
    theirs = machine.fit(scaler.transform(x), y).score(scaler.transform(x_test), y_test)
    assert svc[score] == pytest.approx(theirs, abs=0.01), "on all training samples"
    assert min(svc[score], trees[score]) > 0.7
