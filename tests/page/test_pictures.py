"""What is drawn of a model whose decisions are written down: each point, colour and label in its place."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from markupsafe import Markup
from matplotlib.colors import to_rgba_array
from matplotlib.figure import Figure
from torch import Tensor

from nsvm_cli.page.pictures import (
    decision_pictures,
    feature_pictures,
    kernel_pictures,
    prediction_picture,
    principal_components,
)
from nsvm_cli.page.plotting import SERIES
from tests.page.stub import stub

pytestmark = pytest.mark.usefixtures("unchecked")

X = torch.tensor([[-1.0, 10.0], [3.0, 14.0], [2.0, 20.0], [0.5, 11.0], [2.5, 12.0]], dtype=torch.float64)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures, in place of pictures."""
    figures: list[Figure] = []

    def to_svg(figure: Figure, label: str) -> Markup:
        figures.append(figure)
        return Markup()

    monkeypatch.setattr("nsvm_cli.page.pictures.to_svg", to_svg)
    return figures


def points_of(figure: Figure) -> dict[str, list[list[float]]]:
    """The points of each class, and those in a ring, by the names in the legend."""
    lines = figure.axes[0].lines
    return {str(line.get_label()): sorted(np.stack(line.get_data(), axis=1).tolist()) for line in lines}


def slanted(x: Tensor) -> Tensor:
    return x[:, 0] - (x[:, 1] - 10) / 5


def test_the_decision_at_each_point_of_the_plane_and_the_samples_in_it(drawn: list[Figure]) -> None:
    y = [-1, 1, 1, -1, -1]  # slanted: -1, 2.2, 0, 0.3, 2.1
    list(decision_pictures(stub(X, y, "ab", slanted)))
    (axis,) = drawn[0].axes
    (image,) = axis.images
    left, right, bottom, top = image.get_extent()
    assert (left, right, bottom, top) == pytest.approx((-1.2, 3.2, 9.5, 20.5))
    assert image.origin == "lower"
    across, up = np.meshgrid(np.linspace(left, right, 200), np.linspace(bottom, top, 200))
    decided = (slanted(torch.tensor(np.stack([across.ravel(), up.ravel()], 1))) >= 0).numpy().astype(int)
    expected = to_rgba_array(SERIES, 0.3)[decided.reshape(200, 200)]
    assert (np.asarray(image.get_array()) == expected).mean() > 0.999
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("one", "two")
    x = X.tolist()
    assert points_of(drawn[0]) == {"a": [x[0], x[3], x[4]], "b": [x[2], x[1]], "mistake": [x[3], x[4]]}


def test_a_plane_of_large_numbers_keeps_its_grid() -> None:
    seen = []

    def g(x: Tensor) -> Tensor:
        seen.append(x)
        return x[:, 0] - 1.7e9

    list(decision_pictures(stub(X + 1.7e9, [-1, 1, 1, -1, 1], "ab", g)))
    assert len(seen[0][:, 0].unique()) == 200


def test_real_targets_in_the_plane_and_the_bar_of_their_colours(drawn: list[Figure]) -> None:
    y = torch.tensor([3.0, 1.0, 2.0, 5.0, 4.0])
    found = stub(X, y, g=slanted)
    list(decision_pictures(found))
    list(feature_pictures(found))
    for figure, extend in zip(drawn, ("both", "neither"), strict=True):
        (points,) = figure.axes[0].collections
        assert np.asarray(points.get_array()).tolist() == found.some(5).y.tolist()
        assert points.get_clim() == (1, 5)
        assert points.colorbar is not None
        assert points.colorbar.extend == extend
    (image,) = drawn[0].axes[0].images
    assert image.get_clim() == (1, 5)
    assert image.get_alpha() is None, "the colours of the bar"
    assert np.asarray(image.get_array())[0, -1] == pytest.approx(3.2 + 0.1)


def test_no_two_classes_of_a_legend_look_alike(drawn: list[Figure]) -> None:
    y = torch.arange(12)
    x = torch.stack([y, y % 5], 1)
    list(feature_pictures(stub(x, y, "abcdefghijkl", lambda x: torch.nn.functional.one_hot(x[:, 0].long()))))
    looks = {(line.get_color(), line.get_marker()) for line in drawn[0].axes[0].lines}
    assert len(looks) == len(drawn[0].legends[0].get_texts()) == 12


def test_features_before_and_after_training_with_rings_around_mistakes(drawn: list[Figure]) -> None:
    y = [-1, 1, 1, -1, -1]
    found = stub(X, y, "ab", slanted, lambda x: x.square())
    found.__dict__["before"] = stub(X, y, "ab").model
    list(feature_pictures(found))
    some = found.some(5)
    for figure, stage, z in zip(drawn, ("before", "after"), (some.x, some.x.square()), strict=True):
        points, share = principal_components(z)
        assert figure.axes[0].get_title(loc="left") == f"{stage} training: {share:.0%} of the variance"
        assert points_of(figure)["b"] == sorted(points[some.y > 0].tolist())
        wrong = (slanted(some.x) >= 0) != (some.y > 0)
        assert points_of(figure)["mistake"] == sorted(points[wrong].tolist())
        assert wrong.sum() == 2


def test_a_kernel_matrix_is_in_the_order_of_the_classes(drawn: list[Figure]) -> None:
    y = torch.tensor([2, 0, 1, 0, 2])
    found = stub(X, y, ["ant", "bee", "cat"], features=lambda x: x.square())
    found.__dict__["before"] = stub(X, y, ["ant", "bee", "cat"]).model
    list(kernel_pictures(found))
    some = found.some(5)
    order = np.argsort(some.y.numpy(), kind="stable")
    for figure, stage, z in zip(drawn, ("before", "after"), (some.x, some.x.square()), strict=True):
        axis = figure.axes[0]
        assert axis.get_title(loc="left") == f"{stage} training"
        expected = (z @ z.mT).numpy()[order][:, order]
        np.testing.assert_array_equal(np.asarray(axis.images[0].get_array()), expected)
        assert [label.get_text() for label in axis.get_yticklabels()] == ["ant", "bee", "cat"]
        assert axis.get_yticks().tolist() == [0.5, 2.0, 3.5]
        lines = [np.asarray(line.get_data()).tolist() for line in axis.lines]
        across, up = ([[0, 1], [at, at]] for at in (1.5, 2.5)), ([[at, at], [0, 1]] for at in (1.5, 2.5))
        assert lines == [line for pair in zip(across, up, strict=True) for line in pair], "between classes"


def test_predictions_stand_above_their_targets(drawn: list[Figure]) -> None:
    prediction_picture(found := stub(X, [1, 2, 3, 4, 5]))
    (axis,) = drawn[0].axes
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("target", "prediction")
    (target, predicted), some = axis.lines[-1].get_data(), found.some(5)
    assert np.asarray(target).tolist() == some.y.tolist()
    assert np.asarray(predicted).tolist() == some.x[:, 0].tolist()
