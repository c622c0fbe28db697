"""scikit-learn's digits in MNIST's shape."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from tests.datasets.helpers import load


@pytest.mark.parametrize("classes", [(1, 0), (7, 0, 3), None])
def test_images_are_enlarged_but_otherwise_unchanged(classes: tuple[int, ...] | None) -> None:
    digits, chosen = load_digits(), classes or range(10)
    rows = np.isin(digits.target, chosen)
    data = load("digits", classes=classes)
    assert (data.task.classes, data.global_scaling) == (tuple(map(str, chosen)), True)
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
