"""Weights of samples and classes, and their effects."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.utils.class_weight import compute_sample_weight

from nsvm_cli.compose.composition import compose_settings
from nsvm_cli.config.settings import parse_settings
from nsvm_cli.datasets import Data, Samples, load_data, split_data
from nsvm_cli.errors import InputError
from nsvm_cli.estimators import NSVMClassifier
from nsvm_cli.runs.checkpoint import environment
from nsvm_cli.runs.experiment import prepare
from tests.datasets.conftest import Write
from tests.datasets.helpers import load, refusal
from tests.small_runs import small_settings

NAMES = ("no", "perhaps", "yes")


def data_of(y: np.ndarray, weight: np.ndarray | None = None, seed: int = 0) -> Data:
    """Return data with the labels y. The last two samples are the test set."""
    x = np.random.default_rng(seed).normal(size=(len(y), 3))
    classes = NAMES if 2 in y else ("no", "yes")
    return split_data(Samples(x, y, classes, "mine", len(y) - 2, weight=weight), 0, 0, False)


TWO, THREE = np.repeat([-1.0, 1.0], [10, 40]), np.repeat([0.0, 1.0, 2.0], [5, 15, 30])


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("class_weight", ["balanced", {"no": 5.0}, {"no": 0.5, "yes": 2.0}], ids=str)
def test_weights_of_classes_are_scikit_learns(y: np.ndarray, class_weight: Any) -> None:
    data = data_of(y)
    names = np.array(data.task.classes)[np.unique(y, return_inverse=True)[1]][:-2]
    given = class_weight if class_weight == "balanced" else {**dict.fromkeys(names, 1.0), **class_weight}
    theirs = compute_sample_weight(given, names)
    np.testing.assert_allclose(data.weights(class_weight), theirs / theirs.mean())


def test_weights_of_classes_multiply_those_of_samples() -> None:
    weight = np.random.default_rng(1).uniform(0.5, 2, 50)
    data = data_of(THREE, weight)
    own, balanced, given = (data.weights(by_class) for by_class in (None, "balanced", {"no": 3.0}))
    np.testing.assert_allclose(own, weight[:-2] / weight[:-2].mean())
    np.testing.assert_allclose(np.bincount(THREE[:-2].astype(int), balanced), 48 / 3)
    ratio = given / own
    np.testing.assert_allclose(ratio / ratio[-1], np.where(THREE[:-2] == 0, 3, 1))
    assert data_of(THREE).weights(None) is None


@pytest.mark.parametrize("class_weight", ["balance", {"no": 0}, {"no": -1}, {"no": float("inf")}], ids=str)
def test_impossible_weights_of_classes_are_refused(class_weight: Any) -> None:
    got = re.escape(repr(class_weight))
    with pytest.raises(InputError, match=rf"^class_weight: expected balanced, null, or positive .*got {got}"):
        small_settings(class_weight=class_weight)


def test_weights_of_unknown_classes_are_refused() -> None:
    with pytest.raises(InputError, match="class_weight: there is no class perhap; did you mean perhaps"):
        data_of(THREE).weights({"perhap": 1.0})
    with pytest.raises(InputError, match="class_weight requires task=classification, got task=regression"):
        prepare(small_settings(class_weight="balanced", task="regression"))


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf])
def test_impossible_weights_of_samples_are_refused(wrong: float) -> None:
    weight = np.ones(50)
    weight[7] = wrong
    with pytest.raises(InputError, match=rf"sample 8: expected a finite weight of 0 or more, got {wrong:g}$"):
        data_of(TWO, weight)
    with pytest.raises(InputError, match="expected training samples with a positive weight"):
        data_of(TWO, np.zeros(50))


def test_a_sample_of_weight_0_is_left_out() -> None:
    weight = np.random.default_rng(1).integers(0, 3, 50).astype(float)
    weight[-2:] = 0  # the test set
    data, kept = data_of(TWO, weight), np.flatnonzero(weight[:-2])
    assert torch.equal(data.splits["train"].x, data.splits["all"].x[kept])
    assert len(data.weights(None)) == len(kept)
    assert data.splits.sizes["test"] == 2


def test_a_column_of_weights(write: Write) -> None:
    """The weights are not a feature, and data for a trained model may lack them."""
    weight = np.random.default_rng(1).integers(0, 3, 60)
    table = pd.DataFrame({"x": np.arange(60), "copies": weight, "label": np.resize(["no", "yes"], 60)})
    section = {"name": "csv", "path": write(table), "weight": "copies"}
    data = load(**section)
    train = data.splits["train"]
    assert train.x.shape[1] == 1
    np.testing.assert_array_equal(train.weight, weight[train.x[:, 0].int()])
    assert 0 not in train.weight
    assert 0 in data.splits["all"].weight
    np.testing.assert_allclose(data.weights(None), train.weight / train.weight.mean())
    assert load_data(section, 0, task=data.task, encoder=data.encoder).splits.sizes == data.splits.sizes
    write(table.drop(columns="copies"))
    without = load_data(section, 0, task=data.task, encoder=data.encoder)
    assert without.splits["all"].weight is None


@pytest.mark.parametrize(
    ("cell", "column", "said"),
    [
        ("-1", "copies", "column copies, row 2: expected a weight of 0 or more, got -1"),
        ("", "copies", "column copies, row 2: expected a weight, got an empty cell"),
        ("many", "copies", "column copies, row 2: expected a number, got 'many'"),
        ("2", "copy", "dataset.weight: .* has no column 'copy'; did you mean copies"),
    ],
)
def test_impossible_columns_of_weights_are_refused(write: Write, cell: str, column: str, said: str) -> None:
    path = write(f"x,copies,label\n1,1,a\n2,{cell},b\n3,1,a\n4,1,b\n")
    assert re.search(said, refusal("csv", path=path, weight=column))


def test_names_of_classes_may_be_numbers() -> None:
    words = ["class_weight={0: 1, 1: 2.5}"]
    assert parse_settings(compose_settings(words)).class_weight == {"0": 1.0, "1": 2.5}


def test_a_checkpoint_knows_the_weights() -> None:
    """A run must not resume with other weights, which its state does not contain."""
    alike, weighted, more = (
        environment(prepare(small_settings(class_weight=weights))) for weights in (None, "balanced", {"A": 3})
    )
    assert "weights_sha256" not in alike
    assert weighted["weights_sha256"] != more["weights_sha256"]
    assert {key: weighted[key] for key in alike} == alike


def rare(m: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return samples of two overlapping classes, with one sample in 101 in class 1."""
    y = (np.arange(m) % 101 == 0).astype(int)
    return np.random.default_rng(seed).normal(size=(m, 2)) + 1.5 * y[:, None], y


def test_balanced_classes_find_the_rare_one() -> None:
    (x, y), (new, truth) = rare(2020, 0), rare(20_200, 1)

    def recall(class_weight: str | None) -> tuple[float, float]:
        classifier = NSVMClassifier("svc", class_weight=class_weight, network="identity", lam=1e-3)
        decided = classifier.fit(x, y).predict(new)
        return (decided[truth == 1] == 1).mean(), (decided[truth == 0] == 0).mean()

    (before, _), (after, others) = recall(None), recall("balanced")
    assert before < 0.1 < 0.4 < after
    assert others > 0.6
