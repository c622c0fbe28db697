"""What is drawn of a model whose decisions are written down: each point, colour and label in its place."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from sklearn.decomposition import PCA

from nsvm_cli.artifacts.diagnosis import some_of
from nsvm_cli.errors import RunError
from nsvm_cli.page.document import Picture
from nsvm_cli.page.pictures import features, kernel_matrices, predictions, principal_components
from tests.page.models import stub

pytestmark = pytest.mark.usefixtures("unchecked")

X = torch.tensor([[-1.0, 10.0], [3.0, 14.0], [2.0, 20.0], [0.5, 11.0], [2.5, 12.0]], dtype=torch.float64)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures, in place of pictures."""
    figures: list[Figure] = []

    def to_picture(figure: Figure, text: str) -> Picture:
        figures.append(figure)
        return Picture(b"", text)

    monkeypatch.setattr("nsvm_cli.page.pictures.to_picture", to_picture)
    return figures


def points_of(figure: Figure) -> dict[str, list[list[float]]]:
    """The points of each class, by the names in the legend."""
    lines = figure.axes[0].lines
    return {str(line.get_label()): sorted(np.stack(line.get_data(), axis=1).tolist()) for line in lines}


def test_real_targets_have_the_colours_of_a_bar_and_predictions_above_them(drawn: list[Figure]) -> None:
    found = stub(X, torch.tensor([3.0, 1.0, 2.0, 5.0, 4.0]))
    some = some_of(found[1].held_out, 5, seed=0)
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
    some = some_of(found[1].held_out, 5, seed=0)
    for figure, stage, z in zip(drawn, ("before", "after"), (some.x, some.x.square()), strict=True):
        points, share = principal_components(z)
        assert figure.axes[0].get_title(loc="left") == f"{stage} training: {share:.0%} of the variance"
        assert points_of(figure)["b"] == sorted(points[some.y > 0].tolist())
        assert points_of(figure)["a"] == sorted(points[some.y < 0].tolist())


def test_a_kernel_matrix_is_in_the_order_of_the_classes(drawn: list[Figure]) -> None:
    y = torch.tensor([2, 0, 1, 0, 2])
    found = stub(X, y, ["ant", "bee", "cat"], features=lambda x: x.square())
    [*kernel_matrices(*found)]
    some, (axis, _) = some_of(found[1].held_out, 5, seed=0), drawn[0].axes
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
    with pytest.raises(RunError, match="not finite"):
        [*features(*stub(X, [1, 2, 3, 4, 5], features=lambda x: x / 0))]
