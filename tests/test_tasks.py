"""Decisions, scores and codes of tasks, for arrays and tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics

from nsvm_cli.tasks import (
    BINARY,
    OF_DECISIONS,
    MulticlassClassification,
    Regression,
    Task,
    best_threshold,
    encode,
    task_for,
)

THREE = MulticlassClassification(("a", "b", "c"))
RNG = np.random.default_rng(0)

either = pytest.mark.parametrize("make", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])


@either
def test_decisions(make: Callable[[Any], Any]) -> None:
    assert BINARY.decide(make(np.array([1.0, 0.0, -0.5]))).tolist() == [1, 1, -1], "expected +1 for g = 0"
    g = make(np.array([[0.1, -2.0, 0.3], [1.0, 1.0, 0.0], [-3.0, -2.0, -2.5]]))
    assert THREE.decide(g).tolist() == [2, 0, 1], "expected the first class in case of a tie"
    assert THREE.correct(np.array([2.0, 1.0, 1.0]), np.asarray(g)) == 2


@either
@pytest.mark.parametrize("task", [BINARY, THREE, task_for([str(r) for r in range(7)])])
def test_figures_of_classification_are_scikit_learns(task: Task, make: Callable[[Any], Any]) -> None:
    codes = encode(np.array(task.classes), task.classes)
    y, decisions = (np.append(codes, RNG.choice(codes, 60)) for _ in range(2))
    score = task.score(make(y), make(decisions))
    assert score["accuracy"] == metrics.accuracy_score(y, decisions)
    assert score["errors"] == metrics.zero_one_loss(y, decisions, normalize=False)
    assert score["balanced_accuracy"] == pytest.approx(metrics.balanced_accuracy_score(y, decisions))
    assert score["recall"] == pytest.approx(metrics.recall_score(y, decisions, average=None))
    assert score["precision"] == pytest.approx(metrics.precision_score(y, decisions, average=None))
    average = "macro" if task.outputs else "binary"
    assert score["f1"] == pytest.approx(metrics.f1_score(y, decisions, average=average))
    assert score["confusion"] == metrics.confusion_matrix(y, decisions).tolist()
    assert score[task.metric] == score["accuracy"]


@pytest.mark.parametrize("task", [BINARY, THREE])
def test_figures_of_the_order_of_decision_values_are_scikit_learns(task: Any) -> None:
    y = RNG.choice(encode(np.array(task.classes), task.classes), 200)
    g = RNG.normal(size=(200, *task.outputs)).round(1)  # with ties
    scores = task.rank_scores(y, g)
    positive = [y > 0] if task is BINARY else [y == r for r in range(3)]
    pairs = [*zip(positive, g.reshape(200, -1).T, strict=True)]
    for name in ("roc_auc", "average_precision"):
        metric = getattr(metrics, f"{name}_score")
        assert scores[name] == pytest.approx(np.mean([metric(p, column) for p, column in pairs]))
    nothing = {"roc_auc": None, "average_precision": None}
    assert task.rank_scores(np.full(200, y[0]), g) == nothing


@pytest.mark.parametrize("metric", OF_DECISIONS)
def test_no_threshold_is_better_than_the_best(metric: str) -> None:
    """Compare the score at the threshold with the scores at all candidates and with scikit-learn's curves."""
    for n in range(45):
        rng = np.random.default_rng(n)
        y = np.where(rng.random(size := int(rng.integers(1, 30))) < rng.random(), 1.0, -1.0)
        g = (rng.normal(rng.normal(), 1, size) + y).round(int(rng.integers(0, 3)))  # with ties
        if n % 3 == 0:  # there is no number between neighbouring floating-point numbers
            g = np.nextafter(np.float32(1), np.float32(2)) * np.float32(
                1 + 2.0**-23 * rng.integers(0, 4, size)
            )
        values = np.unique(g).astype(np.float64)
        candidates = np.array([values[0] - 9, *(values[1:] + values[:-1]) / 2, values[-1] + 9])
        scores = [BINARY.score(y, BINARY.decide(g - t))[metric] for t in candidates]
        t = best_threshold(y, g, metric)
        score = BINARY.score(y, BINARY.decide(g - g.dtype.type(t)))[metric]
        assert score == pytest.approx(max(scores))
        inner = [abs(c) for c, s in zip(candidates[1:-1], scores[1:-1], strict=True) if s > score - 1e-9]
        assert n % 3 == 0 or abs(t) <= min(inner, default=np.inf), "expected the threshold nearest to 0"
        if metric == "f1" and (y > 0).any():
            precision, recall, _ = metrics.precision_recall_curve(y, g)
            f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-9)
            assert score == pytest.approx(f1.max(), abs=1e-6)
        elif metric == "balanced_accuracy" and len(set(y)) == 2:
            fpr, tpr, _ = metrics.roc_curve(y, g)
            assert score == pytest.approx((1 + (tpr - fpr).max()) / 2)


def test_a_class_without_samples_has_no_recall_and_does_not_count() -> None:
    score = THREE.score(np.array([0.0, 0.0, 2.0]), np.array([0.0, 1.0, 2.0]))
    assert score["recall"] == [0.5, None, 1.0]
    assert score["balanced_accuracy"] == 0.75
    assert score["confusion"] == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]


@either
def test_figures_of_regression_are_scikit_learns(make: Callable[[Any], Any]) -> None:
    """The figures are in the units of the data, although algorithms use standardised targets."""
    y = 200 + 30 * RNG.standard_normal(50)
    task = Regression(float(y.mean()), float(y.std(ddof=1)))
    standardised = task.targets(torch.from_numpy(y)).numpy()
    assert (standardised.mean(), standardised.std(ddof=1)) == (pytest.approx(0), pytest.approx(1))
    g = standardised + 0.3 * RNG.standard_normal(50)
    predicted = np.asarray(task.decide(make(g)))
    score = task.score(make(y), make(predicted))
    assert score["rmse"] == pytest.approx(metrics.mean_squared_error(y, predicted) ** 0.5)
    assert score["mae"] == pytest.approx(metrics.mean_absolute_error(y, predicted))
    assert score["r2"] == pytest.approx(metrics.r2_score(y, predicted))
    assert score["rmse"] == pytest.approx(task.std * np.sqrt(np.mean((g - standardised) ** 2)))
    assert task.decide(standardised) == pytest.approx(y)
    assert task.correct(y, g) is None
    for constant in (1.0, 0.1):  # in floating point, the mean of three values of 0.1 is not 0.1
        score = Regression().score(make(np.full(3, constant)), make(np.zeros(3)))
        assert score["r2"] is None
        assert score["rmse"] == pytest.approx(constant)


@either
def test_predicted_targets_have_the_digits_of_float64(make: Callable[[Any], Any]) -> None:
    g = np.linspace(-2, 2, 9, dtype=np.float32)
    for mean, std in ((1.7e9, 30.0), (1000.0, 1e-6)):
        predicted = np.asarray(Regression(mean, std).decide(make(g)))
        np.testing.assert_array_equal(predicted, mean + std * g.astype(np.float64))


@pytest.mark.parametrize("C", [2, 3, 10])
def test_inner_products_of_codes_are_the_ideal_kernel(C: int) -> None:
    """The ideal kernel is 1 within a class and -1/(C-1) otherwise, so y_i y_j for two classes."""
    task = MulticlassClassification(tuple(str(r) for r in range(C)))
    y = torch.arange(2 * C, dtype=torch.float64) % C
    U = task.code(y) @ task.code(y).T
    expected = torch.where(y[:, None] == y[None], 1.0, -1 / (C - 1)).double()
    torch.testing.assert_close(U, expected)
    if C == 2:
        sign = BINARY.code(2 * y - 1)
        torch.testing.assert_close(U, torch.outer(sign, sign))
