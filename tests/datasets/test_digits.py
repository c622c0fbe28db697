"""scikit-learn's digits in MNIST's shape."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from tests.datasets.helpers import load, refusal


def test_zeros_and_ones_by_default() -> None:
    data = load("digits")
    x, y = data.splits["all"].x, data.splits["all"].y
    assert x.shape == (360, 1, 28, 28)
    assert y.eq(-1).sum() == 178
    assert y.eq(1).sum() == 182
    assert data.task.classes == ("0", "1")
    assert data.global_scaling
    assert (len(data.splits["train"]), len(data.splits["test"])) == (324, 36)


@pytest.mark.parametrize("classes", [(0, 1), (1, 0), (3, 8), (9, 4)])
def test_images_are_enlarged_but_otherwise_unchanged(classes: tuple[int, int]) -> None:
    digits = load_digits()
    rows = np.isin(digits.target, classes)
    part = load("digits", classes=classes).splits["all"]
    np.testing.assert_array_equal(part.y, np.where(digits.target[rows] == classes[1], 1, -1))
    x, original = part.x[:, 0].numpy(), digits.images[rows] / 16
    assert x.min() >= 0
    assert x.max() <= 1
    np.testing.assert_allclose(x.mean((1, 2)), original.mean((1, 2)), atol=0.01)
    corners = np.ix_(range(len(x)), [0, -1], [0, -1])
    np.testing.assert_allclose(x[corners], original[corners])
    # where a pixel of the small image has its centre, 3.5 pixels apart, the large one has nearly its value
    centres = np.round(3.5 * np.arange(8) + 1.25).astype(int)
    assert np.abs(x[:, centres][:, :, centres] - original).mean() < 0.05


@pytest.mark.parametrize("classes", [(7, 0, 3), None])
def test_several_classes_or_all(classes: tuple[int, ...] | None) -> None:
    data, digits = load("digits", classes=classes), load_digits()
    chosen = classes or range(10)
    assert data.task.classes == tuple(map(str, chosen))
    assert data.origins == ("digits",), "whichever classes are chosen"
    labels = [label for label in digits.target.tolist() if label in chosen]
    np.testing.assert_array_equal(data.splits["all"].y, [chosen.index(label) for label in labels])


@pytest.mark.parametrize(
    ("classes", "says"),
    [
        ([3, 3], "dataset.classes: expected two or more different classes, got [3, 3]"),
        ([0, 10], "dataset.classes: there is no class '10'; did you mean 1? "),
        ([-1, 2], "dataset.classes: there is no class '-1'; did you mean 1? "),
        ([4], "dataset.classes: expected two or more different classes, got [4]"),
        (["zero", 1], "dataset.classes: there is no class 'zero'; expected one of: 0, 1, "),
        (5, "dataset.classes should be a list, got 5"),
    ],
)
def test_classes_are_two_or_more_different_digits(classes: object, says: str) -> None:
    assert refusal("digits", classes=classes).startswith(says)
