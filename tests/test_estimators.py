"""The estimators follow scikit-learn's conventions and train the same models as ``nsvm train``."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from safetensors.torch import load_file
from sklearn.base import BaseEstimator, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator, check_sample_weight_equivalence_on_dense_data

import nsvm_cli
from nsvm_cli import NSVMClassifier, NSVMRegressor
from nsvm_cli.artifacts.model_file import save_model
from nsvm_cli.compose.composition import compose_settings
from nsvm_cli.config.settings import parse_settings
from nsvm_cli.datasets import Table, split_data
from nsvm_cli.datasets.encoding import labelled
from nsvm_cli.datasets.splits import split_rows
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.models.kernels import KERNELS, RBF, Kernel, squared_distances
from nsvm_cli.models.optimizers import Adam
from nsvm_cli.output import saying
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.runs.loop import Callback
from nsvm_cli.storage.run_directory import read_config
from nsvm_cli.trainers import TRAINERS
from nsvm_cli.trainers.alg1 import Alg1
from tests.cli.process import nsvm, trained
from tests.conftest import few_steps
from tests.small_runs import small_settings
from tests.small_tables import small_table

FEW: dict[str, Any] = {"algorithm": "alg4", "steps": 150, "batch_size": 32}
QUICK: dict[str, Any] = {"algorithm": "pegasos", "network": "identity", "steps": 1000, "lam": 1e-2}
MOONS = make_moons(80, noise=0.2, random_state=0)
OLDER = sklearn.__version__.startswith("1.8.")  # this version checks less, and in another order


@pytest.mark.parametrize(
    "settings",
    [QUICK, *(pytest.param(parameters, marks=pytest.mark.thorough) for parameters in ({"steps": 5}, FEW))],
    ids=["pegasos", "auto", "alg4"],
)
@pytest.mark.parametrize(
    "Estimator", [NSVMClassifier, pytest.param(NSVMRegressor, marks=pytest.mark.thorough)]
)
def test_scikit_learns_checks(Estimator: Any, settings: dict[str, Any]) -> None:
    """The test uses float64, because in float32 the last bits depend on which samples are predicted together.

    A weighted sample is not equivalent to repeated samples, because steps draw samples at random.
    """
    estimator = Estimator(dtype="float64", engine="torch", **settings)
    at_random = {"check_sample_weight_equivalence_on_dense_data": "samples are drawn at random"}
    checks = check_estimator(estimator, on_fail=None, on_skip=None, expected_failed_checks=at_random)
    others = [check for check in checks if check["check_name"] not in at_random]
    assert not [check for check in others if check["status"] not in ("passed", "skipped")]
    skipped = [check["check_name"] for check in checks if check["status"] == "skipped"]
    assert skipped == ([] if OLDER else ["check_array_api_input"])


@pytest.mark.parametrize("Estimator", [NSVMClassifier, NSVMRegressor])
def test_a_weight_of_w_is_w_samples(Estimator: Any) -> None:
    """Weights also affect the scales of features and targets. ``logistic`` draws no samples at random."""
    check_sample_weight_equivalence_on_dense_data("NSVM", Estimator("logistic", dtype="float64"))


@pytest.mark.parametrize("parameters", [{"lam": 1e-9}, {"settings": {"algorithm.lam": 1e-9}}])
def test_a_solver_that_has_not_converged_is_a_warning(
    parameters: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nsvm_cli.trainers.direct.MAX_ITERATIONS", 1)
    says = "linear_svm stopped after 1 iterations.*set lam above 1e-09"
    with pytest.warns(ConvergenceWarning, match=says):
        NSVMClassifier("linear_svm", **parameters).fit(*MOONS)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("kind", [float, int, bool])
def test_class_weights_are_found_by_the_values_of_labels(kind: type) -> None:
    X, y = MOONS
    g = [
        NSVMClassifier("svc", class_weight=weights).fit(X, labels).decision_function(X)
        for weights, labels in (({0: 1, 1: 5}, y.astype(kind)), ({"a": 1, "b": 5}, np.array(["a", "b"])[y]))
    ]
    np.testing.assert_array_equal(*g)


def expect_same_bits(ours: Any, theirs: Any, columns: bool = True) -> None:
    """Check that two models have equal terms, theta and, unless one was fitted to an array, columns."""
    pairs = [(getattr(ours.expansion, name), getattr(theirs.expansion, name)) for name in ("alpha", "z")]
    pairs += zip(ours.network.state_dict().values(), theirs.network.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not columns or ours.metadata.columns == theirs.metadata.columns


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        *(("alg4", "three classes"), ("svc", "three classes"), ("linear_svm", "regression")),
        pytest.param("alg4", "regression", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.filterwarnings("ignore:linear_svm stopped")
def test_the_model_of_nsvm_train_to_the_bit(kind: str, algorithm: str, tmp_path: Path) -> None:
    section = small_table(kind, tmp_path, validation=0)
    words = ["dataset=csv", f"dataset.path={section['dataset']['path']}", f"task={section['task']}"]
    few = {"steps": 100} if (algorithm, kind) == ("alg4", "three classes") else {}
    words += [f"algorithm={algorithm}", "seed=3", *(f"algorithm.steps={steps}" for steps in few.values())]
    run, _ = trained(*words, "curves=false", cwd=tmp_path)
    settings = parse_settings(read_config(run))
    train = prepare(settings).data.splits["train"]
    Estimator: Any = NSVMRegressor if kind == "regression" else NSVMClassifier
    ours = Estimator(algorithm, random_state=3, **few).fit(train.x.numpy(), train.y.numpy())
    assert {**Estimator(algorithm)._settings().algorithm, **few} == settings.algorithm
    theirs = nsvm_cli.load_model(run)
    expect_same_bits(ours.model_, theirs, columns=False)
    assert ours.n_support_ == len(theirs.expansion.alpha)


@pytest.mark.parametrize(
    ("algorithm", "single"),
    [
        *(("pegasos", True), ("alg2", True), ("alg4", True)),
        *(pytest.param(name, False, marks=pytest.mark.thorough) for name in ("alg1", "alg3")),
    ],
)
def test_one_model_from_the_command_line_the_estimator_and_steps_by_hand(
    algorithm: str, single: bool, tmp_path: Path
) -> None:
    X, y = make_moons(150, noise=0.3, random_state=0)
    for name, rows in {"train": slice(0, 120), "test": slice(120, 150)}.items():
        pd.DataFrame(X[rows], columns=["a", "b"]).assign(label=y[rows]).to_csv(
            tmp_path / f"{name}.csv", index=False
        )
    engine = "literal" if single else "auto"
    words = ["dataset=csv", f"dataset.path={tmp_path}/train.csv", f"dataset.test_path={tmp_path}/test.csv"]
    words += [f"algorithm={algorithm}", "algorithm.steps=40", f"engine={engine}", "seed=3"]
    folder, _ = trained(*words, "curves=false", cwd=tmp_path)
    X, y = pd.DataFrame(X[:120], columns=["a", "b"]), y[:120]
    fitted = NSVMClassifier(algorithm, steps=40, engine=engine, random_state=3).fit(X, y)
    fitted.save(tmp_path / "fitted.safetensors")
    run = prepare(parse_settings(read_config(folder)))
    state = run.trainer.start(run.problem, run.F)
    while state.t < run.trainer.total:
        if single:
            run.trainer.step(run.problem, state)
        else:
            run.trainer.advance(run.problem, state, until=state.t + 1)
    with saying(pytest.fail):
        save_model(tmp_path / "by_hand.safetensors", run.final_model(state))
    theirs = load_file(folder / "final.safetensors")
    for ours in map(load_file, (tmp_path / "fitted.safetensors", tmp_path / "by_hand.safetensors")):
        assert ours.keys() == theirs.keys()
        assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []
    assert len(theirs["alpha"]) > 5


def test_what_a_notebook_shows_is_one_line(tmp_path: Path) -> None:
    columns = {f"column {n}": np.random.default_rng(n).normal(size=100) for n in range(30)}
    frame = pd.DataFrame({**columns, "label": np.tile([*"abcdefghij"], 10)})
    frame.to_csv(tmp_path / "table.csv", index=False)
    table = {"name": "csv", "path": str(tmp_path / "table.csv")}
    parts: dict[str, Any] = {"dataset": table, "kernel": {"name": "linear"}, "engine": "literal"}
    data = None
    for name in TRAINERS:
        network = {"name": "mlp", "widths": [8], "head": name == "cross_entropy"}
        algorithm = {"name": name, **few_steps(name, 5)}
        run = prepare(small_settings(**parts, network=network, algorithm=algorithm), data)
        data = run.data
        state = run.trainer.start(run.problem, run.F)
        run.trainer.advance(run.problem, state, min(5, run.trainer.total))
        samples, split, batch = run.data.samples, run.data.splits["train"], run.problem[np.arange(9)][0]
        shown = [run, state, run.problem, run.F, run.data, samples, split, batch, run.metadata]
        for text in map(repr, [*shown, run.untrained(), run.untrained().expansion]):
            assert len(text) < 400
            assert "\n" not in text
        assert repr(split) == f"Split(x=Tensor({len(split)}, 30), y=Tensor({len(split)}), weight=None)"


def test_progress_of_fit(capsys: pytest.CaptureFixture[str]) -> None:
    NSVMClassifier("alg1", steps=20, verbose=True).fit(*MOONS)
    first, *others = capsys.readouterr().err.splitlines()
    assert first == "fit: 20 steps"
    assert len(others) < 15
    assert others[-1].startswith("step 20/20  ")


def test_grid_search_over_values_of_numpy() -> None:
    lam, widths = np.float32([0.5, 0.25]), [np.array([8, 4]), (3,)]
    grid = [{"steps": np.arange(10, 30, 10)}, {"lam": lam}, {"widths": widths}]
    classifier = NSVMClassifier("alg1", steps=10, batch_size=8)
    search = GridSearchCV(classifier, grid, cv=2, error_score="raise").fit(*MOONS)
    for given in search.cv_results_["params"]:
        copied = clone(classifier.set_params(**given)).get_params()
        assert all(type(copied[name]) is type(given[name]) for name in given)
        assert all(np.array_equal(copied[name], given[name]) for name in given)


def test_grid_search_over_algorithms_each_with_its_own_network_and_kernel() -> None:
    expected = {"alg4": ("mlp", "rbf"), "svc": ("identity", "rbf"), "trees": ("identity", "rbf")}
    expected |= {"logistic": ("identity", "linear"), "cross_entropy": ("mlp", "linear")}
    for algorithm, parts in expected.items():
        settings = NSVMClassifier(algorithm)._settings()
        assert (settings.network["name"], settings.kernel["name"]) == parts
    search = GridSearchCV(NSVMClassifier(), {"algorithm": ["svc", "trees", "logistic"]}, error_score="raise")
    assert search.fit(*MOONS).best_params_ == {"algorithm": "svc"}


def test_too_few_samples_for_a_choice_are_reported_once() -> None:
    X, y = make_moons(6, noise=0.2, random_state=0)
    y[:5], y[5] = 0, 1
    with pytest.warns(ConvergenceWarning, match="without a choice") as warned:
        classifier = NSVMClassifier(settings={"algorithm.lengths": [2]}).fit(X, y)
    assert len(warned) == 1
    assert classifier.search_ == {}


def test_a_model_of_scikit_learns_and_one_that_no_file_can_hold(tmp_path: Path) -> None:
    X, y = make_moons(200, noise=0.2, random_state=0)
    svc = NSVMClassifier("svc", settings={"algorithm.grid": {"C": [1, 10], "gamma": [0.01, 2]}})
    svc.fit(X, y).save(tmp_path / "svc.safetensors")
    assert svc.settings_.kernel["gamma"] == 2, "expected the gamma that the search chose"
    assert svc.search_["chosen"]["gamma"] == 2
    loaded = NSVMClassifier.load(tmp_path / "svc.safetensors")
    assert (loaded.decision_function(X) == svc.decision_function(X)).all()
    trees = NSVMClassifier("trees").fit(X, y)
    assert trees.score(X, y) > 0.95
    with pytest.raises(InputError, match="algorithm=trees cannot be saved"):
        trees.save(tmp_path / "trees.safetensors")


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
    np.testing.assert_array_equal(loaded.model_.expansion.i, fitted.model_.expansion.i)
    assert loaded.settings.items() >= {"algorithm.steps": 150, "algorithm.batch_size": 32}.items()
    again = loaded.fit(table, labels)
    np.testing.assert_array_equal(again.decision_function(table), fitted.decision_function(table))
    table[["up", "left"]].to_csv(tmp_path / "table.csv", index=False)
    done = nsvm("predict", "model.safetensors", "table.csv", cwd=tmp_path)
    assert [line.split(",")[0] for line in done.stdout.splitlines()[1:]] == fitted.predict(table).tolist()
    with pytest.raises(InputError, match="expected a model with task=regression, got task=classification"):
        NSVMRegressor.load(tmp_path / "model.safetensors")


def test_images_and_tensors() -> None:
    x = torch.rand(60, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    x[30:] += 0.5
    y = torch.arange(60) // 30
    fitted = NSVMClassifier("alg4", network="cnn", steps=30, batch_size=8).fit(x, y)
    assert fitted.score(x, y) == 1.0
    assert fitted.classes_.tolist() == [0, 1]
    with pytest.raises(InputError, match=r"expected samples of shape \(1, 28, 28\), got \(1, 28\)"):
        fitted.predict(np.zeros((2, 1, 28)))
    with pytest.raises(InputError, match=r"expected samples of shape \(1, 28, 28\), got \(28, 28\)"):
        fitted.model_.predict(x[:, 0])
    assert fitted.model_.predict(x.numpy()).equal(fitted.model_.predict(x))
    pixels = (128 * x).to(torch.uint8)
    g = fitted.decision_function(pixels)
    for same in (pixels.numpy(), pixels / 255):
        np.testing.assert_allclose(fitted.decision_function(same), g, rtol=1e-5)
    with pytest.warns(UserWarning, match=r"pixels have the same range as in training, 0\.\.1 or 0\.\.255"):
        fitted.predict(255 * x.numpy())


@pytest.mark.parametrize(
    ("labels", "loaded"),
    [([3, 7], [3, 7]), ([-1, 1], [-1, 1]), ([False, True], ["False", "True"]), ([1.0, 2.0], ["1.0", "2.0"])],
)
def test_labels_of_a_file_are_integers_or_text(labels: list[Any], loaded: list[Any], tmp_path: Path) -> None:
    X, y = MOONS
    NSVMClassifier(**{**QUICK, "steps": 20}).fit(X, np.array(labels)[y]).save(tmp_path / "model.safetensors")
    assert NSVMClassifier.load(tmp_path / "model.safetensors").classes_.tolist() == loaded


def test_a_loaded_model_of_a_table_takes_text_and_empty_cells(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"colour": rng.choice(["red", "blue"], 60), "size": rng.normal(size=60)})
    labels = np.where((table["size"] > 0) ^ (table["colour"] == "red"), "hen", "owl")
    table.loc[:4, "size"] = None
    table.assign(label=labels).to_csv(tmp_path / "table.csv", index=False)
    words = ["dataset=csv", "dataset.path=table.csv", "algorithm=pegasos", "algorithm.steps=50"]
    run, _ = trained(*words, "dataset.missing=[?]", "curves=false", cwd=tmp_path)
    loaded = NSVMClassifier.load(run)
    assert [*loaded.settings["dataset.missing"]] == ["?"]
    assert (loaded.n_features_in_, loaded.feature_names_in_.tolist()) == (2, ["colour", "size"])
    done = nsvm("predict", run, "table.csv", cwd=tmp_path)
    assert [line.split(",")[0] for line in done.stdout.splitlines()[1:]] == loaded.predict(table).tolist()
    with pytest.raises(ValueError, match=r"^X lacks columns that the model was trained on: size$"):
        loaded.predict(table.rename(columns={"size": "weight"}))


def mixed(m: int = 120) -> tuple[pd.DataFrame, pd.Series]:
    """Return a table with columns of all kinds, most of them with missing values, and labels."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "colour": rng.choice(["red", "blue"], m),
            "size": rng.normal(size=m).round(3),
            "member": rng.choice([True, False], m),
            "plan": pd.Categorical(rng.choice(["small", "large"], m), ["small", "large", "none"]),
            "count": pd.array(rng.integers(0, 9, m), dtype="Int64"),
            "since": pd.to_datetime("2024-01-01") + pd.to_timedelta(rng.integers(0, 500, m), "D"),
        },
        index=rng.permutation(m),
    )
    labels = pd.Series(np.where((frame["size"] > 0) ^ (frame["colour"] == "red"), "hen", "owl"), frame.index)
    for column, gaps in {"colour": 3, "size": 9, "plan": 5, "count": 7, "since": 8}.items():
        frame.iloc[:gaps, [*frame].index(column)] = None
    return frame, labels


@pytest.mark.parametrize("Estimator", [NSVMClassifier, NSVMRegressor])
def test_a_data_frame_is_read_as_a_table_is(Estimator: Any, tmp_path: Path) -> None:
    frame, labels = mixed()
    if Estimator is NSVMRegressor:
        labels = frame["size"].fillna(0) + 2 * frame["member"]
    frame.assign(label=labels).to_csv(tmp_path / "table.csv", index=False)
    words = ["dataset=csv", f"dataset.path={tmp_path / 'table.csv'}", "seed=3", "algorithm=alg1"]
    words += [f"task={Estimator._task}", "algorithm.steps=50"]
    run, _ = trained(*words, "curves=false", cwd=tmp_path)
    data = prepare(parse_settings(read_config(run))).data
    rows = split_rows(data.samples, 0, 3)["train"]
    ours = Estimator("alg1", steps=50, random_state=3).fit(frame.iloc[rows], labels.iloc[rows])
    expect_same_bits(ours.model_, nsvm_cli.load_model(run))
    assert ours.feature_names_in_.tolist() == [*frame]
    assert ours.n_features_in_ == 6
    np.testing.assert_array_equal(Estimator.load(run).predict(frame), ours.predict(frame))
    encoded = Estimator("alg1", steps=50, random_state=3).fit(data.samples.x[rows], labels.iloc[rows])
    np.testing.assert_array_equal(encoded.predict(data.samples.x), ours.predict(frame))


def test_columns_are_matched_by_name() -> None:
    frame, labels = mixed()
    fitted = NSVMClassifier(**QUICK).fit(frame, labels)
    g = fitted.decision_function(frame)
    other = frame[[*reversed([*frame])]].astype({"plan": object}).assign(more=1.0)
    np.testing.assert_array_equal(fitted.decision_function(other), g)
    assert fitted.score(other, labels) > 0.85
    with pytest.raises(ValueError, match=r"^X lacks columns that the model was trained on: size, plan$"):
        fitted.predict(frame.drop(columns=["plan", "size"]))
    with pytest.raises(ValueError, match=r"^X: column size, row 2: expected a number, got 'x'$"):
        fitted.predict(frame.assign(size=[1, "x", *frame["size"][2:]]))
    unseen = fitted.decision_function(frame.assign(plan="giant"))
    np.testing.assert_array_equal(unseen, fitted.decision_function(frame.assign(plan="tiny")))
    named = NSVMClassifier(**QUICK).fit(frame.assign(name=[f"n{row}" for row in range(len(frame))]), labels)
    np.testing.assert_array_equal(named.decision_function(frame), g, "identifiers are left out")
    with pytest.raises(ValueError, match="contains NaN"):
        fitted.fit(frame[["size"]].to_numpy(), labels)


def test_objects_of_a_frame_are_read_as_cells_of_a_file() -> None:
    frame, labels = (some.reset_index(drop=True) for some in mixed())
    n = np.arange(len(frame))
    price = pd.Series((frame["size"].fillna(1).abs() * 1500).round() + 1)
    day = pd.Series(pd.Timestamp("2024-01-01") + pd.to_timedelta(n % 40, unit="D"))
    plain = frame[["plan"]].assign(price=price.mask(n % 9 == 0), share=n % 7 / 2, day=day)
    cells = plain.assign(
        price=price.map("{:,.0f}".format).mask(n % 9 == 0, "?"),
        share=(n % 7 / 2).astype(str),
        day=day.dt.strftime("%d.%m.%Y"),
    )
    cells["share"] = [f"{share}%" for share in cells["share"]]
    as_objects = cells.astype(object)
    says = r"expected numbers, found '\?' in 14 cells; add settings\['dataset\.missing'\]=\['\?'\]"
    with pytest.raises(ValueError, match=says):
        NSVMClassifier(**QUICK).fit(as_objects, labels)
    g = NSVMClassifier(**QUICK).fit(plain, labels).decision_function(plain)
    fitted = NSVMClassifier(**QUICK, settings={"dataset.missing": ["?"]})
    np.testing.assert_array_equal(fitted.fit(as_objects, labels).decision_function(as_objects), g)
    np.testing.assert_array_equal(fitted.decision_function(cells.iloc[::-1]), g[::-1])
    np.testing.assert_array_equal(fitted.decision_function(cells.replace("?", " ")), g)
    text = NSVMClassifier(**QUICK, settings={"dataset.text": ["price"]}).fit(as_objects, labels)
    assert "?" in text.model_.metadata.columns["price"]


def test_a_frame_of_numbers_is_an_array_with_names() -> None:
    X, y = MOONS
    frame = pd.DataFrame(X, columns=["left", "up"])
    of_frame, of_array = (NSVMClassifier(**QUICKLY).fit(x, y) for x in (frame, X))
    np.testing.assert_array_equal(of_frame.decision_function(frame), of_array.decision_function(X))
    assert of_frame.model_.metadata.columns == frame.median().to_dict()
    codes = frame.assign(up=pd.Categorical((X[:, 1] > 0).astype(int)))
    assert NSVMClassifier(**QUICKLY).fit(codes, y).model_.metadata.columns["up"] == ("0", "1")
    unnamed = NSVMClassifier(**QUICKLY).fit(pd.DataFrame(X), y)
    np.testing.assert_array_equal(unnamed.decision_function(X), of_array.decision_function(X))
    says = "feature names should match" if OLDER else "Expected unique column names"
    with pytest.raises(Exception, match=says):
        of_frame.predict(frame.set_axis(["left", "left"], axis=1))


def test_frames_in_the_tools_of_scikit_learn() -> None:
    frame, labels = mixed(300)
    classifier = NSVMClassifier(**QUICK)
    search = GridSearchCV(classifier, {"lam": [1e-2, 1e-3]}, cv=2, error_score="raise").fit(frame, labels)
    fitted = search.best_estimator_
    g = fitted.decision_function(frame)
    for same in (pickle.loads(pickle.dumps(fitted)), clone(fitted).fit(frame, labels)):
        np.testing.assert_array_equal(same.decision_function(frame), g)
    assert np.mean(cross_val_predict(classifier, frame, labels, cv=3) == labels) > 0.7
    filled = ColumnTransformer(
        [("fill", SimpleImputer(), ["size"])], remainder="passthrough", verbose_feature_names_out=False
    )
    pipeline = make_pipeline(filled.set_output(transform="pandas"), classifier).fit(frame, labels)
    assert pipeline[-1].feature_names_in_.tolist() == ["size", "colour", "member", "plan", "count", "since"]
    assert pipeline.score(frame, labels) > 0.8
    calibrated = CalibratedClassifierCV(classifier, cv=2).fit(frame, labels)
    assert calibrated.predict_proba(frame)[labels == "hen", 0].mean() > 0.6


def test_probabilities_are_fitted_to_samples_held_out(tmp_path: Path) -> None:
    frame, labels = mixed()
    held_out = {"dataset.validation": 0.25, "freeze": ["layers.0"]}
    classifier = NSVMClassifier("alg1", steps=50, settings=held_out, random_state=3)
    assert not hasattr(classifier, "predict_proba")
    p = classifier.fit(frame, labels).predict_proba(frame)
    np.testing.assert_allclose(p.sum(1), 1)
    assert log_loss(labels, p) < 0.5
    frame.assign(label=labels).to_csv(tmp_path / "table.csv", index=False)
    whole = Table(pd.read_csv(tmp_path / "table.csv"), ("table",), "label", official_test=len(frame))
    data = split_data(labelled(whole, "classification"), 0.25, 3, False, table=whole)
    words = ["dataset=csv", f"dataset.path={tmp_path / 'table.csv'}", "seed=3", "algorithm=alg1"]
    words += ["algorithm.steps=50", "dataset.validation=0.25", "freeze=[layers.0]"]
    settings = compose_settings(words)
    run = prepare(parse_settings(settings), data=data)
    expect_same_bits(run.train(), classifier.model_)
    classifier.save(tmp_path / "model.safetensors")
    loaded = NSVMClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(frame), p)
    expect_same_bits(loaded.fit(frame, labels).model_, classifier.model_)  # the file keeps the settings
    with pytest.raises(AttributeError, match="no attribute 'predict_proba'"):
        NSVMClassifier(**QUICKLY).fit(frame, labels).predict_proba(frame)
    with pytest.raises(InputError, match=r"dataset\.validation: expected a number of samples, .*, got -1"):
        NSVMClassifier(settings={"dataset.validation": -1}).fit(frame, labels)


def test_weights_of_the_rows_of_a_frame() -> None:
    """A row of weight 0 affects neither training nor the encoding of columns."""
    frame, labels = mixed()
    frame.iloc[-1, 0] = "green"
    weights = np.arange(len(frame)) < 90
    balanced = NSVMClassifier(class_weight="balanced", **QUICK)
    weighted = clone(balanced).fit(frame, labels, weights)
    without = clone(balanced).fit(frame[weights], labels[weights])
    assert weighted.model_.metadata.columns == without.model_.metadata.columns
    np.testing.assert_allclose(weighted.decision_function(frame), without.decision_function(frame), rtol=1e-5)
    plain = NSVMClassifier(**QUICK).fit(frame[weights], labels[weights])
    assert not np.array_equal(plain.decision_function(frame), without.decision_function(frame))


def test_parameters() -> None:
    X, y = MOONS
    fitted = NSVMClassifier(
        "alg1", kernel="polynomial", steps=50, settings={"kernel.degree": 3, "multiclass": "one_vs_rest"}
    ).fit(X, y)
    assert fitted.settings_.kernel["degree"] == 3
    assert fitted.settings_.multiclass == "one_vs_rest"
    for kind, values in {"none": X, "minmax": (X - X.min(0)) / (X.max(0) - X.min(0))}.items():
        fitted = NSVMClassifier("pegasos", steps=50, settings={"dataset.scaling": kind}).fit(X, y)
        np.testing.assert_allclose(fitted.model_.scaling(torch.from_numpy(X)), values, atol=1e-15)
    for wrong, message in {"algoritm.lam": "algoritm", "algorithm.lamm": "lamm"}.items():
        with pytest.raises(ValueError, match=message):
            NSVMClassifier(settings={wrong: 1}).fit(X, y)
    for elsewhere in ("task", "dataset.fold", "checkpoint.every", "calibration"):
        known = f"{elsewhere} does not apply to estimators; .*: algorithm, callbacks, class_weight, dataset"
        with pytest.raises(InputError, match=known):
            NSVMClassifier(settings={elsewhere: "regression"}).fit(X, y)
    both = NSVMClassifier("alg1", steps=10, settings={"algorithm.steps": 20}).fit(X, y)
    assert both.settings_.algorithm["steps"] == 10
    with pytest.raises(ValueError, match="did you mean alg4"):
        NSVMClassifier("alg5").fit(X, y)
    before = torch.get_num_threads()
    NSVMClassifier("alg4", threads=2, steps=2, batch_size=8).fit(X, y)
    assert torch.get_num_threads() == before


def test_targets_keep_their_digits_in_float32() -> None:
    X = np.random.default_rng(0).normal(size=(150, 2))
    signal = np.sin(X[:, 0]) + X[:, 1]
    for y in (1.7e9 + 30 * signal, 1000 + 1e-6 * signal):
        single, double = (
            NSVMRegressor(**QUICK, dtype=dtype).fit(X, y).predict(X) for dtype in ("float32", "float64")
        )
        assert len(np.unique(single)) == len(X)
        np.testing.assert_allclose(single, double, rtol=0, atol=1e-3 * y.std())


COLLAPSED = {"network": "mlp", "settings": {"network.scale": 1e-300, "network.normalize": True}}


@pytest.mark.parametrize(
    ("Estimator", "parameters"),
    [
        (NSVMClassifier, {"lam": 1e300}),
        (NSVMClassifier, {"algorithm": "alg4", "lam": 1e308, "settings": {"algorithm.solver": "svc"}}),
        (NSVMClassifier, {"gamma": 1e-300}),
        (NSVMClassifier, COLLAPSED),
        (NSVMRegressor, {"loss": "epsilon_insensitive", "settings": {"loss.epsilon": 1e9}}),
    ],
)
def test_a_model_that_tells_no_samples_apart_is_a_result(Estimator: Any, parameters: dict[str, Any]) -> None:
    says = "the model has the same decision value for all samples: it has no support vec"
    with pytest.warns(ConvergenceWarning, match=says):
        fitted = Estimator(**{**QUICK, "steps": 30, **parameters}).fit(*MOONS)
    assert len(np.unique(fitted.predict(MOONS[0]))) == 1


@dataclass(frozen=True)
class Matern52(Kernel):
    length: float = 1.0

    def __call__(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        d = (5 * squared_distances(a, b)).clamp_min(1e-12).sqrt() / self.length
        return (1 + d + d**2 / 3) * (-d).exp()


class Adjustable(BaseEstimator, Matern52):  # type: ignore[misc]
    """A kernel with scikit-learn's ``get_params`` and ``set_params``."""

    def __init__(self, length: float = 1.0) -> None:
        object.__setattr__(self, "length", length)

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


QUICKLY: dict[str, Any] = {"algorithm": "alg1", "steps": 30, "batch_size": 8}


@pytest.fixture
def registered() -> Iterator[None]:
    with mock.patch.dict(KERNELS):
        KERNELS.register("matern52")(Matern52)
        yield


def test_objects_take_the_place_of_names() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh())
    before = network[0].weight.detach().clone()
    algorithm = Alg1(steps=30, lam=1e-3)
    classifier = NSVMClassifier(algorithm, network, Matern52(0.5), Adam(1e-2)).fit(*MOONS)
    trained_weight = next(classifier.model_.network.parameters())
    assert torch.equal(network[0].weight, before), "expected fit to train a copy of the network"
    assert trained_weight.shape == before.shape
    assert not torch.equal(trained_weight, before)
    again = clone(classifier).fit(*MOONS)
    restored = pickle.loads(pickle.dumps(classifier))
    for other in (again, restored):
        np.testing.assert_array_equal(
            other.decision_function(MOONS[0]), classifier.decision_function(MOONS[0])
        )
    plain = NSVMClassifier("alg1", network, Matern52(0.5), settings={"network.normalize": False}, steps=30)
    assert plain.fit(*MOONS).settings_.network["normalize"] is False


def test_an_object_has_its_own_settings_and_those_of_any_part() -> None:
    for key in ("kernel.length", "kernel.lenght"):
        with pytest.raises(InputError, match="cannot be set if kernel is an object; set it in the object"):
            NSVMClassifier(kernel=Matern52(1.0), settings={key: 2.0}, **QUICKLY).fit(*MOONS)
    learnt = NSVMClassifier(kernel=Matern52(1.0), settings={"kernel.learn": ["length"]}, **QUICKLY)
    length = learnt.fit(*MOONS).kernel_parameters_["length"]
    assert 0 < abs(length - 1) < 1


def test_what_moves_in_theta_and_when_to_stop_are_settings() -> None:
    stop = {"name": "early_stopping", "metric": "running_accuracy", "patience": 2}
    settings = {"freeze": ["layers"], "callbacks": [stop]}
    classifier = NSVMClassifier("alg1", steps=3000, widths=[4], settings=settings).fit(*MOONS)
    before = classifier.model_.before_training().network
    assert all(map(torch.equal, classifier.model_.network.parameters(), before.parameters()))
    assert classifier.model_.metadata.steps < 3000


class Objectives(Callback):
    """Collects objectives, and stops training after three."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_log(self, state: Any, record: dict[str, Any]) -> str | None:
        self.values.append(record["objective"])
        return "three values" if len(self.values) == 3 else None


def test_callbacks_are_objects_that_keep_what_they_see() -> None:
    seen = Objectives()
    classifier = NSVMClassifier("alg1", steps=300, callbacks=[seen]).fit(*MOONS)
    assert len(seen.values) == 3
    assert classifier.model_.metadata.steps < 300
    copied = clone(classifier.set_params(callbacks=[Objectives()])).fit(*MOONS)
    assert copied.callbacks[0].values == seen.values
    assert classifier.callbacks[0].values == []


@pytest.mark.parametrize("kernel", [Matern52(0.5), Adjustable(0.5)], ids=["dataclass", "get_params"])
def test_grid_search_over_a_parameter_of_an_object(kernel: Kernel) -> None:
    classifier = NSVMClassifier(kernel=kernel, **QUICKLY)
    assert classifier.get_params()["kernel__length"] == 0.5
    assert "kernel__length" not in classifier.get_params(deep=False)
    grid = {"kernel__length": [0.2, 2.0]}
    search = GridSearchCV(classifier, grid, cv=2, error_score="raise").fit(*MOONS)
    best = search.best_estimator_
    assert best.kernel.length == best.model_.kernel.length == search.best_params_["kernel__length"]
    assert kernel.length == 0.5, "the search changed the user's object"  # type: ignore[attr-defined]


def test_names_and_objects_give_the_same_bits(registered: None, tmp_path: Path) -> None:
    X, y = MOONS
    pairs = {
        "rbf": ({"kernel": RBF(2.0)}, {"gamma": 2.0}),
        "matern52": ({"kernel": Matern52(0.5)}, {"kernel": "matern52", "settings": {"kernel.length": 0.5}}),
    }
    for name, pair in pairs.items():
        by_object, by_name = (NSVMClassifier(**parameters, **QUICKLY).fit(X, y) for parameters in pair)
        g = by_name.decision_function(X)
        np.testing.assert_array_equal(by_object.decision_function(X), g)
        by_object.save(tmp_path / "model.safetensors")
        loaded = NSVMClassifier.load(tmp_path / "model.safetensors")
        assert loaded.kernel == name
        np.testing.assert_array_equal(loaded.decision_function(X), g)


def test_a_class_that_is_defined_again_has_its_new_defaults(registered: None) -> None:
    """This happens when a cell of a notebook is run again."""
    for default in (0.5, 2.0):

        @KERNELS.register("matern52")
        @dataclass(frozen=True)
        class Again(Matern52):
            length: float = default

        assert NSVMClassifier(kernel="matern52", **QUICKLY).fit(*MOONS).model_.kernel == Again(default)


def test_a_model_with_an_object_that_has_no_name(tmp_path: Path) -> None:
    fitted = NSVMClassifier(kernel=Matern52(0.5), **QUICKLY).fit(*MOONS)
    with pytest.raises(
        InputError, match=r"kernel was passed as an object, so the model cannot be saved: make "
    ):
        fitted.save(tmp_path / "model.safetensors")
    assert not [*tmp_path.iterdir()]


def test_a_file_with_a_part_that_is_not_imported(registered: None, tmp_path: Path) -> None:
    NSVMClassifier(kernel="matern52", **QUICKLY).fit(*MOONS).save(tmp_path / "model.safetensors")
    del KERNELS["matern52"]
    with pytest.raises(InputError, match=r"no kernel 'matern52'; .*; to use your own, import its module "):
        NSVMClassifier.load(tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"gamma": -1}, "gamma should be greater than 0, got -1"),
        ({"steps": 0.5}, "steps should be a valid integer, got 0.5"),
        ({"settings": {"kernel.bias": 3}}, "settings['kernel.bias'] should be a valid boolean, got 3"),
        ({"kernel": "matern"}, "kernel=matern: there is no such kernel; expected one of: "),
        ({"kernel": "matern"}, "; to use your own, import its module first"),
        ({"kernel": Matern52}, "kernel: expected a name or an instance of Kernel, got <class "),
        (
            {"kernel": Matern52(), "gamma": 2.0},
            "kernel was passed as an object; set gamma in the constructor of Matern52",
        ),
        ({"kernel": RBF(), "kernel__gamma": -1}, "kernel__gamma should be greater than 0, got -1"),
        ({"kernel": Matern52(), "kernel__lenght": 1}, "kernel__lenght: Matern52 has no such setting; did "),
        ({"kernel__gamma": 1}, "kernel__gamma requires an object, but kernel is None; pass an"),
        ({"settings": {"seed": 3}}, "settings: seed is the parameter random_state"),
        ({"settings": {"dtype": "float64"}}, "settings: dtype is the parameter dtype"),
        ({"settings": {"kernel": "laplacian"}}, "settings: kernel is the parameter kernel"),
        ({"settings": {"validation.every": 5}}, "validation.every requires a validation set"),
        ({"settings": {"loss": object()}}, "settings: expected plain values, got ...; pass objects as param"),
    ],
)
def test_messages_name_parameters(parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said).replace(r"\.\.\.", ".*")) as caught:
        NSVMClassifier(**QUICKLY).set_params(**parameters).fit(*MOONS)
    assert "plugins" not in str(caught.value)


def test_weights_of_samples_and_classes(tmp_path: Path) -> None:
    X, y = make_moons(120, noise=0.3, random_state=0)
    counts = np.random.default_rng(0).integers(0, 3, 120)
    # class weights, unlike sample weights, affect neither the scaling nor the default of gamma
    unscaled = {**QUICK, "gamma": 1.0, "settings": {"dataset.scaling": "none"}}
    weighted = NSVMClassifier(class_weight={0: 1, 1: 3}, **unscaled)
    weighted.fit(X, y, sample_weight=[*map(float, counts > 0)])
    of_samples = NSVMClassifier(**unscaled).fit(X, y, np.where(y, 3 * (counts > 0), counts > 0))
    np.testing.assert_allclose(weighted.decision_function(X), of_samples.decision_function(X), rtol=1e-6)
    weighted.save(tmp_path / "model.safetensors")
    assert NSVMClassifier.load(tmp_path / "model.safetensors").class_weight == {"0": 1, "1": 3}
    search = GridSearchCV(NSVMClassifier(**QUICK), {"class_weight": [{1: 50}, None]}, cv=2, scoring="recall")
    assert search.fit(X, y).best_params_ == {"class_weight": {1: 50}}
    with pytest.raises(ValueError, match=r"sample_weight\.shape == \(2,\), expected \(120,\)"):
        NSVMClassifier(**QUICK).fit(X, y, [1, 2])


def test_validation_samples_that_are_given_are_those_of_the_command_line(tmp_path: Path) -> None:
    X, y = make_moons(200, noise=0.3, random_state=0)
    frame = pd.DataFrame(X, columns=["a", "b"]).round(6)
    files = {"train": slice(0, 150), "validation": slice(150, 200)}
    for name, rows in files.items():
        frame[rows].assign(label=y[rows]).to_csv(tmp_path / f"{name}.csv", index=False)
    words = ["dataset=csv", "dataset.path=train.csv", "algorithm=alg4", "algorithm.steps=40", "seed=3"]
    words += ["dataset.validation_path=validation.csv", "dataset.test_path=validation.csv", "log_every=20"]
    words += ["validation.every=20", "keep=best", "callbacks=[early_stopping]", "curves=false"]
    run, _ = trained(*words, cwd=tmp_path)
    settings = {"log_every": 20, "validation.every": 20, "keep": "best", "callbacks": ["early_stopping"]}
    theirs = nsvm_cli.load_model(run)
    assert theirs.sigmoids is not None
    records = pd.DataFrame(map(json.loads, (run / "metrics.jsonl").read_text().splitlines()))
    for samples in (frame, frame.to_numpy()):
        fit_on, validate_on = ((samples[rows], y[rows]) for rows in files.values())
        ours: Any = NSVMClassifier("alg4", steps=40, settings=settings, random_state=3)
        ours.fit(*fit_on, X_val=validate_on[0], y_val=validate_on[1])
        expect_same_bits(ours.model_, theirs, columns=False)
        assert ours.model_.sigmoids is not None
        assert torch.equal(ours.model_.sigmoids, theirs.sigmoids)
        pd.testing.assert_frame_equal(ours.history_, records, check_dtype=False)
        assert "validation_accuracy" in ours.history_
        assert len(repr(ours.model_)) < 400


def test_validation_samples_that_do_not_fit() -> None:
    (X, y), classifier = MOONS, NSVMClassifier(**QUICK)
    frame = pd.DataFrame(X, columns=["a", "b"])
    for X_val, y_val, message in [
        (X, None, "X_val and y_val: expected both or neither"),
        (frame, y, "X_val: expected a data frame if X is a data frame, otherwise an array"),
        (X, y + 5, r"y_val: expected classes that occur in y, got .*5"),
        (X[:, :1], y, "X has 1 features, but NSVMClassifier is expecting 2"),
    ]:
        with pytest.raises(ValueError, match=message):
            classifier.fit(X, y, X_val=X_val, y_val=y_val)
    with pytest.raises(InputError, match="X_val: expected the columns of X, but 'b' is missing"):
        classifier.fit(frame, y, X_val=frame[["a"]], y_val=y)


@pytest.fixture(scope="module")
def model() -> Any:
    return NSVMClassifier("svc").fit(*MOONS).model_


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.int32, torch.float32])
def test_numbers_of_every_type_have_the_same_values(dtype: torch.dtype, model: Any) -> None:
    """Bytes are scaled to 0..1 only if the samples are images."""
    x = torch.tensor([[0, 1], [1, 1]])
    assert torch.equal(model.decision_function(x.to(dtype)), model.decision_function(x.double()))


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (torch.zeros(2, 2, dtype=torch.complex64), "expected real numbers"),
        (np.array([["a", "b"]]), "expected an array or a tensor of numbers"),
        (pd.DataFrame({"a": ["b"]}), "expected an array or a tensor of numbers"),
        (np.zeros((2, 3)), r"expected samples of shape \(2,\), got \(3,\)"),
        (np.full((1, 2), np.nan), "the features are not finite; check the samples"),
    ],
)
def test_samples_that_a_model_refuses(x: Any, said: str, model: Any) -> None:
    for function in (model.predict, model.features, model.decision_function):
        with pytest.raises((InputError, RunError), match=said):
            function(x)
