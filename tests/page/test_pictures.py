"""The pictures of a stub model: points, colours and labels are in the right places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from sklearn import metrics
from sklearn.calibration import calibration_curve
from sklearn.decomposition import PCA

from nsvm_cli.artifacts.diagnosis import random_samples
from nsvm_cli.page.document import Picture
from nsvm_cli.page.sections import class_curves, features, kernel_matrices, predictions, principal_components
from nsvm_cli.tasks import task_for
from tests.page.models import stub

X = torch.tensor([[-1.0, 10.0], [3.0, 14.0], [2.0, 20.0], [0.5, 11.0], [2.5, 12.0]], dtype=torch.float64)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Return a list that collects the figures instead of converting them to pictures."""
    figures: list[Figure] = []

    def to_picture(figure: Figure, text: str) -> Picture:
        figures.append(figure)
        return Picture(b"", text)

    monkeypatch.setattr("nsvm_cli.page.sections.to_picture", to_picture)
    return figures


def points_of(figure: Figure) -> dict[str, list[list[float]]]:
    """Return the points of each class by its name in the legend."""
    lines = figure.axes[0].lines
    return {str(line.get_label()): sorted(np.stack(line.get_data(), axis=1).tolist()) for line in lines}


def test_real_targets_have_the_colours_of_a_bar_and_predictions_above_them(drawn: list[Figure]) -> None:
    found = stub(X, torch.tensor([3.0, 1.0, 2.0, 5.0, 4.0]))
    some = random_samples(found[1].held_out, 5, seed=0)
    [*features(*found), *predictions(*found)]
    (points,) = drawn[0].axes[0].collections
    assert np.asarray(points.get_array()).tolist() == some.y.tolist()
    assert points.get_clim() == (1, 5)
    assert points.colorbar is not None
    (target, predicted) = drawn[1].axes[0].lines[-1].get_data()
    assert np.asarray(target).tolist() == some.y.tolist()
    assert np.asarray(predicted).tolist() == some.x[:, 0].tolist()


def test_features_before_and_after_training_are_in_the_markers_of_their_classes(drawn: list[Figure]) -> None:
    y = [-1, 1, 1, -1, -1]
    found = stub(X, y, "ab", features=lambda x: x.square())
    found[0].parameters, found[0].before_training = 1, lambda: stub(X, y, "ab")[0]
    [*features(*found)]
    some = random_samples(found[1].held_out, 5, seed=0)
    for figure, stage, z in zip(drawn, ("before", "after"), (some.x, some.x.square()), strict=True):
        points, share = principal_components(z)
        assert figure.axes[0].get_title(loc="left") == f"{stage} training: {share:.0%} of the variance"
        assert points_of(figure)["b"] == sorted(points[some.y > 0].tolist())
        assert points_of(figure)["a"] == sorted(points[some.y < 0].tolist())


def test_a_kernel_matrix_is_in_the_order_of_the_classes(drawn: list[Figure]) -> None:
    y = torch.tensor([2, 0, 1, 0, 2])
    found = stub(X, y, ["ant", "bee", "cat"], features=lambda x: x.square())
    [*kernel_matrices(*found)]
    some, (axis, _) = random_samples(found[1].held_out, 5, seed=0), drawn[0].axes
    order, z = np.argsort(some.y.numpy(), kind="stable"), some.x.square()
    assert axis.get_title(loc="left") == "the inputs themselves"
    np.testing.assert_array_equal(np.asarray(axis.images[0].get_array()), (z @ z.mT).numpy()[order][:, order])
    assert [label.get_text() for label in axis.get_yticklabels()] == ["ant", "bee", "cat"]
    assert axis.get_yticks().tolist() == [0.5, 2.0, 3.5]


def test_principal_components_are_those_of_scikit_learn() -> None:
    z = torch.randn(30, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z[:, 3] *= 9
    points, share = principal_components(z)
    pca = PCA(2).fit(z)
    np.testing.assert_allclose(np.abs(points), np.abs(pca.transform(z)), atol=1e-9)
    assert share == pytest.approx(pca.explained_variance_ratio_.sum())
    for few in (z[:1], z[:, :1], torch.zeros(4, 3)):
        points, share = principal_components(few)
        assert points.shape == (len(few), 2)
        assert np.isfinite([*points.flat, share]).all()


def curves_of(
    y: Any, classes: Sequence[str], g: np.ndarray, p: np.ndarray | None
) -> tuple[str, dict[str, Any]]:
    """Return the text above the curves of these decision values and probabilities, and the rows by class."""
    model, data = stub(np.zeros((len(y), 1)), y, classes)
    model.probabilities = lambda g: p if p is None else torch.from_numpy(p)
    *texts, (*_, table) = class_curves(model, data, lambda: torch.from_numpy(g))
    return " ".join(texts), {row[0]: row[1:] for row in table.rows}


def lines_of(figure: Figure, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the x and y values of the line with this name in the legend."""
    (line,) = (line for line in figure.axes[0].lines if line.get_label() == name)
    return np.asarray(line.get_xdata()), np.asarray(line.get_ydata())


@pytest.mark.parametrize(("classes", "calibrated"), [("ab", True), ("abc", True), ("abc", False)])
def test_curves_are_those_of_scikit_learn(classes: str, calibrated: bool, drawn: list[Figure]) -> None:
    """Each curve is for a class against the rest. The means of the areas are the scores of a result."""
    random, C = np.random.default_rng(0), len(classes)
    index = random.choice(C, 250, p=[0.5, 0.2, 0.3][:C] if C > 2 else [0.8, 0.2])
    g = np.eye(C)[index] + random.normal(size=(250, C)).round(1)  # with ties
    p = np.exp(g) / np.exp(g).sum(1, keepdims=True)
    y, values = (index, g) if C > 2 else (2 * index - 1, g[:, 1])
    text, rows = curves_of(y, classes, values, p if calibrated else None)
    assert "against the rest of 250 test samples" in text
    assert ("Each point of a reliability curve is the mean of 25 samples" in text) == calibrated
    assert [*rows] == ([*"abc"] if C > 2 else ["b"])
    assert len(drawn) == 2 + calibrated
    for name, figures in rows.items():
        r = classes.index(name)
        positive = index == r
        areas = metrics.roc_auc_score(positive, g[:, r]), metrics.average_precision_score(positive, g[:, r])
        assert figures[:2] == [f"{area:.4f}" for area in areas]
        shares = [positive.mean(), p[:, r].mean()][: 1 + calibrated]
        assert figures[2:] == [f"{100 * share:.3g} %" for share in shares]
        fpr, tpr, _ = metrics.roc_curve(positive, g[:, r])
        np.testing.assert_array_equal(lines_of(drawn[0], name), (fpr, tpr))
        precision, recall, _ = metrics.precision_recall_curve(positive, g[:, r])
        np.testing.assert_array_equal(lines_of(drawn[1], name), (recall, precision))
        assert positive.mean() in [line.get_ydata()[0] for line in drawn[1].axes[0].lines]
        if calibrated:
            share, mean = calibration_curve(positive, p[:, r], n_bins=10, strategy="quantile")
            np.testing.assert_array_equal(lines_of(drawn[2], name), (mean, share))
    means = task_for([*classes]).rank_scores(y, values)
    for place, metric in enumerate(("roc_auc", "average_precision")):
        mean = np.mean([float(figures[place]) for figures in rows.values()])
        assert mean == pytest.approx(means[metric], abs=1e-4)


def test_curves_of_classes_without_samples_or_of_many_are_left_out(drawn: list[Figure]) -> None:
    _, rows = curves_of([0, 0, 2, 2], "abc", np.arange(12.0).reshape(4, 3), None)
    assert [*rows] == ["a", "c"]
    for y in ([2] * 13, range(13)):
        found = stub(np.zeros((13, 1)), [*y], [f"class {r}" for r in range(13)])
        (sentence,) = class_curves(*found, lambda: torch.ones(13, 13))
        assert sentence == "These curves are drawn only if held-out samples belong to 2 to 12 classes."
    assert not [*class_curves(*stub([[1.0], [2.0]], [0.5, 1.0]), lambda: torch.ones(2))]
