"""The Ringnorm generator, compared with Breiman's definition."""

from __future__ import annotations

import numpy as np
import pytest

from nsvm_cli.datasets import Split
from tests.datasets.helpers import load

a = 2 / np.sqrt(20)


@pytest.fixture(scope="module")
def many() -> Split:
    return load("ringnorm", samples=200_000).splits["all"]


@pytest.mark.parametrize(("label", "mean", "variance"), [(-1, 0.0, 4.0), (1, a, 1.0)])
def test_classes_are_the_two_normal_distributions(
    many: Split, label: int, mean: float, variance: float
) -> None:
    x = many.x[many.y == label].numpy()
    assert abs(len(x) / len(many) - 0.5) < 0.005, "the classes should be equally frequent"
    # the tolerances are five standard errors for 100,000 samples
    np.testing.assert_allclose(x.mean(0), mean, atol=5 * np.sqrt(variance / 1e5))
    np.testing.assert_allclose(np.cov(x.T), variance * np.eye(20), atol=5 * variance * np.sqrt(2 / 1e5))
    kurtosis = (((x - mean) ** 4).mean(0)) / variance**2
    np.testing.assert_allclose(kurtosis, 3, atol=5 * np.sqrt(96 / 1e5))


def test_the_seed_determines_the_draw() -> None:
    first, again, other = (load("ringnorm", seed, samples=100) for seed in (5, 5, 6))
    assert first.samples.sha256 == again.samples.sha256
    assert not np.isin(first.splits["all"].x, other.splits["all"].x).any()
