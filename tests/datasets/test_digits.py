"""scikit-learn's digits in MNIST's shape."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from tests.datasets.helpers import load


def test_zeros_and_ones_by_default() -> None:
    data = load("digits")
    x, y = data.splits["all"].x, data.splits["all"].y
    assert x.shape == (360, 1, 28, 28)
    assert y.eq(-1).sum() == 178
    assert y.eq(1).sum() == 182
    assert data.task.classes == ("0", "1")
    assert data.global_scaling
    assert (len(data.splits["train"]), len(data.splits["test"])) == (324, 36)


@pytest.mark.parametrize("classes", [(1, 0), (7, 0, 3), None])
def test_images_are_enlarged_but_otherwise_unchanged(classes: tuple[int, ...] | None) -> None:
    digits, chosen = load_digits(), classes or range(10)
    rows = np.isin(digits.target, chosen)
    data = load("digits", classes=classes)
    assert data.task.classes == tuple(map(str, chosen))
    assert data.origins == ("digits",), "whichever classes are chosen"
    part = data.splits["all"]
    labels = [chosen.index(label) for label in digits.target[rows].tolist()]
    np.testing.assert_array_equal(data.task.index(part.y), labels)
    x, original = part.x[:, 0].numpy(), digits.images[rows] / 16
    np.testing.assert_allclose(x.mean((1, 2)), original.mean((1, 2)), atol=0.01)
    corners = np.ix_(range(len(x)), [0, -1], [0, -1])
    np.testing.assert_allclose(x[corners], original[corners])
    # where a pixel of the small image has its centre, 3.5 pixels apart, the large one has nearly its value
    centres = np.round(3.5 * np.arange(8) + 1.25).astype(int)
    assert np.abs(x[:, centres][:, :, centres] - original).mean() < 0.05
