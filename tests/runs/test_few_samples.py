"""Runs on few samples, and runs with classes that have few or no samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from nsvm_cli.artifacts.prediction import explain
from nsvm_cli.config.settings import Settings, parse_settings, with_values
from nsvm_cli.errors import InputError
from nsvm_cli.estimators import NSVMClassifier
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.runs.open_model import data_for, open_model
from nsvm_cli.trainers import TRAINERS
from tests.compositions import composed
from tests.conftest import few_steps
from tests.small_runs import small_run
from tests.small_tables import small_table


def by_default(algorithm: str, file: Path, task: str = "classification", **dataset: str) -> Settings:
    """Return the default settings for an algorithm and a table, with only a few steps."""
    steps = [f"algorithm.{key}={value}" for key, value in few_steps(algorithm, 6).items()]
    words = ["dataset=csv", "dataset.path=x.csv", f"algorithm={algorithm}", *steps]
    values = {f"dataset.{key}": value for key, value in {"path": str(file), **dataset}.items()}
    usual = composed([*words, "engine=torch", "threads=1"])
    return parse_settings(with_values(usual, {"task": task, **values}))


@pytest.mark.parametrize(
    ("kind", "rows"),
    [("2 classes", 4), pytest.param("3 classes", 6, marks=pytest.mark.thorough), ("reals", 4)],
)
def test_defaults_fit_a_table_of_a_few_rows(kind: str, rows: int, tmp_path: Path) -> None:
    C = {"2 classes": 2, "3 classes": 3}.get(kind)
    x = np.random.default_rng(0).normal(size=(rows, 3)).round(3)
    labels = [f"c{i % C}" if C else f"{x[i, 0]:.2f}" for i in range(rows)]
    file = tmp_path / "table.csv"
    file.write_text(
        "\n".join(["a,b,c,label", *(f"{a},{b},{c},{y}" for (a, b, c), y in zip(x, labels, strict=True))])
    )
    for algorithm in TRAINERS:
        experiment = prepare(by_default(algorithm, file, "classification" if C else "regression"))
        model, test = experiment.train(), experiment.data.splits["test"]
        assert len(model.predict(test.x)) == len(test) >= (C or 1)


@pytest.mark.parametrize("name", ["trees", "svc"])
def test_a_constant_model_is_a_result(name: str, tmp_path: Path) -> None:
    lam = {} if name == "trees" else {"lam": 1e300}
    table: Any = small_table("three classes", tmp_path, validation="62 each")
    result = small_run(
        tmp_path / "run", **table, network={"name": "identity"}, algorithm={"name": name, **lam}
    )
    assert len([n for n in np.sum(result["confusion"], axis=0) if n]) == 1
    assert (tmp_path / "run" / "result.json").is_file()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("classes", "left_out", "multiclass"),
    [(3, 0, "one_vs_rest"), pytest.param(4, 2, "crammer_singer", marks=pytest.mark.thorough)],
)
def test_a_class_of_weight_0_is_as_if_its_rows_were_not_there(
    classes: int, left_out: int, multiclass: str
) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(15 * classes) % classes
    X = rng.normal(size=(len(y), 2)) + 2 * np.eye(4)[y, :2]
    kept = y != left_out
    for algorithm in TRAINERS if classes == 3 else sorted(TRAINERS.keys() - {"auto"}):
        how = {"multiclass": multiclass} if TRAINERS[algorithm].trains_svm else {}
        how |= {f"algorithm.{key}": value for key, value in few_steps(algorithm, 9).items()}
        classifier = NSVMClassifier(algorithm, engine="torch", settings=how)
        model = clone(classifier).fit(X, y, sample_weight=kept * 1.0)
        assert [*model.classes_] == [*range(classes)]
        assert model.decision_function(X).shape == (len(y), classes)
        without = clone(classifier).fit(X[kept], y[kept])
        np.testing.assert_array_equal(model.predict(X), without.predict(X), err_msg=algorithm)


def test_a_class_that_is_never_predicted_is_known_and_counts(tmp_path: Path) -> None:
    rows = [f"{i % 7},{i % 3},{'abc'[i % 3]},{int(i % 3 != 1)}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["x,z,label,w", *rows]))
    dataset = {"name": "csv", "path": str(tmp_path / "t.csv"), "weight": "w"}
    result = small_run(tmp_path / "run", dataset=dataset, algorithm={"name": "svc"})
    assert result["data"]["classes"] == ["a", "b", "c"]
    assert result["recall"][1] == 0
    assert [row[1] for row in result["confusion"]] == [0, 0, 0]
    _, model = open_model(tmp_path / "run")
    data = data_for(model, dataset)
    assert model.score(data.splits["test"].x, data.splits["test"].y)["accuracy"] == result["test_accuracy"]
    assert all(total >= 0 for _, total, _ in explain(model, data.splits["test"].x))


def test_a_class_whose_rows_are_all_held_out_is_refused(tmp_path: Path) -> None:
    rows = [f"{i % 7},{i},{'c' if i > 55 else 'ab'[i % 2]}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["x,day,label", *rows]))
    said = "class c has no training samples, because dataset.time puts all of them in the test set"
    with pytest.raises(InputError, match=said):
        prepare(by_default("svc", tmp_path / "t.csv", time="day"))


def test_one_class_of_a_weight_is_refused() -> None:
    X, y = np.arange(20.0)[:, None], np.arange(20) % 2
    with pytest.raises(InputError, match="a positive weight in at least two classes, found only class 1"):
        NSVMClassifier("svc").fit(X, y, sample_weight=y * 1.0)


@pytest.mark.parametrize("algorithm", ["svc", "trees"])
def test_a_search_takes_fewer_folds_for_a_rare_class(algorithm: str) -> None:
    X, y = np.arange(30.0)[:, None], np.array(["no"] * 28 + ["yes"] * 2)
    grid = {"svc": {"C": [1.0, 10.0]}, "trees": {"max_leaf_nodes": [4, 8]}}[algorithm]
    classifier = NSVMClassifier(algorithm, settings={"algorithm.grid": grid})
    assert len(classifier.fit(X, y).predict(X)) == 30
    with pytest.raises(InputError, match="at least 2 training samples of class yes, found 1"):
        classifier.fit(X[:-1], y[:-1])


@pytest.mark.filterwarnings("error")
def test_a_class_that_a_fold_of_groups_lacks_is_named(tmp_path: Path) -> None:
    rows = [f"{i % 7},{i // 4},{'c' if i in (2, 30) else 'ab'[i % 2]}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["x,patient,label", *rows]))
    settings = [by_default("svc", tmp_path / "t.csv", group="patient", fold=f"{k}/5") for k in range(5)]
    data = [prepare(each).data for each in settings]
    assert sum("class c has no test samples" in d.remarks() for d in data) == 3
