"""The scikit-learn face: its conventions, and the models of ``nsvm train``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import make_moons
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import nsvm_cli
from nsvm_cli import NSVMClassifier, NSVMRegressor
from nsvm_cli.cli.hydra_app import compose_settings
from nsvm_cli.config.settings import parse_settings
from nsvm_cli.errors import InputError
from nsvm_cli.runs.experiment import prepare
from tests.cli.process import nsvm, trained
from tests.small_tables import small_table

pytestmark = pytest.mark.usefixtures("unchecked")

FEW: dict[str, Any] = {"steps": 150, "batch_size": 32}


QUICK: dict[str, Any] = {"algorithm": "pegasos", "network": "identity", "steps": 1000, "lam": 1e-2}


@pytest.mark.parametrize(
    "settings", [QUICK, pytest.param(FEW, marks=pytest.mark.thorough)], ids=["quick", "alg4"]
)
@pytest.mark.parametrize("Estimator", [NSVMClassifier, NSVMRegressor])
def test_scikit_learns_checks(Estimator: Any, settings: dict[str, Any]) -> None:
    """In float64: sums of float32 depend in their last bits on the samples predicted together."""
    estimator = Estimator(dtype="float64", engine="torch", **settings)
    found = check_estimator(estimator, on_fail=None, on_skip=None)
    failed = [check for check in found if check["status"] not in ("passed", "skipped")]
    assert not failed
    assert [check["check_name"] for check in found if check["status"] == "skipped"] == [
        "check_array_api_input"
    ]


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        *(("alg1", "regression"), ("alg4", "three classes")),
        pytest.param("alg1", "three classes", marks=pytest.mark.thorough),
        pytest.param("alg4", "regression", marks=pytest.mark.thorough),
    ],
)
def test_the_model_of_nsvm_train_to_the_bit(kind: str, algorithm: str, tmp_path: Path) -> None:
    section = small_table(kind, tmp_path, validation=0)
    words = ["dataset=csv", f"dataset.path={section['dataset']['path']}", f"task={section['task']}"]
    words += [f"algorithm={algorithm}", "seed=3"]
    if algorithm == "alg1":
        words.append("algorithm.steps=60")
    run, _ = trained(*words, "curves=false", cwd=tmp_path)
    train = prepare(parse_settings(compose_settings(words))).data.splits["train"]
    Estimator = NSVMRegressor if kind == "regression" else NSVMClassifier
    steps = 60 if algorithm == "alg1" else None
    ours = Estimator(algorithm, steps=steps, random_state=3).fit(train.x.numpy(), train.y.numpy())
    theirs = nsvm_cli.load_model(run).model
    assert torch.equal(ours.model_.expansion.alpha, theirs.expansion.alpha)
    assert torch.equal(ours.model_.expansion.z, theirs.expansion.z)
    state = theirs.network.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in ours.model_.network.state_dict().items())
    assert ours.n_support_ == len(theirs.expansion.alpha)


def test_grid_search_in_a_pipeline() -> None:
    X, y = make_moons(150, noise=0.2, random_state=0)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), NSVMClassifier(steps=60)),
        {"nsvmclassifier__lam": [1e-4, 1e-2, 10.0]},
        cv=3,
    ).fit(X, y)
    assert search.best_params_["nsvmclassifier__lam"] < 10
    assert search.best_score_ > 0.85


def test_names_of_columns_and_labels_are_kept(tmp_path: Path) -> None:
    X, y = make_moons(150, noise=0.2, random_state=0)
    table = pd.DataFrame(X, columns=["left", "up"])
    labels = np.array(["no", "yes"])[y]
    fitted = NSVMClassifier(**FEW).fit(table, labels)
    assert set(fitted.predict(table)) == {"no", "yes"}
    fitted.save(tmp_path / "model.safetensors")
    loaded = NSVMClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.decision_function(table), fitted.decision_function(table))
    np.testing.assert_array_equal(loaded.predict(table), fitted.predict(table))
    again = loaded.fit(table, labels)
    np.testing.assert_array_equal(again.decision_function(table), fitted.decision_function(table))
    table[["up", "left"]].to_csv(tmp_path / "table.csv", index=False)
    done = nsvm("predict", "model.safetensors", "table.csv", cwd=tmp_path)
    assert [line.split(",")[0] for line in done.stdout.splitlines()[1:]] == fitted.predict(table).tolist()
    with pytest.raises(InputError, match="expected task=regression"):
        NSVMRegressor.load(tmp_path / "model.safetensors")


def test_images_and_tensors() -> None:
    x = torch.rand(60, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    x[30:] += 0.5
    y = torch.arange(60) // 30
    fitted = NSVMClassifier("alg4", network="cnn", steps=30, batch_size=8).fit(x, y)
    assert fitted.score(x, y) == 1.0
    assert fitted.classes_.tolist() == [0, 1]


def test_parameters() -> None:
    X, y = make_moons(60, noise=0.2, random_state=0)
    fitted = NSVMClassifier(
        "alg1", kernel="polynomial", steps=50, settings={"kernel.degree": 3, "multiclass": "one_vs_rest"}
    ).fit(X, y)
    assert fitted.settings_.kernel["degree"] == 3
    assert fitted.settings_.multiclass == "one_vs_rest"
    for wrong, message in {"algoritm.lam": "algoritm", "algorithm.lamm": "lamm"}.items():
        with pytest.raises(ValueError, match=message):
            NSVMClassifier(settings={wrong: 1}).fit(X, y)
    with pytest.raises(ValueError, match="did you mean alg4"):
        NSVMClassifier("alg5").fit(X, y)
    before = torch.get_num_threads()
    NSVMClassifier(threads=2, steps=2, batch_size=8).fit(X, y)
    assert torch.get_num_threads() == before
