"""Intervals over seeds: their coverage in simulated studies, agreement with SciPy, and extreme cases."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from nsvm_cli.comparison.intervals import estimate, mean_test, proportion_interval, standard_error

STUDIES = 4000
NOISE = 0.01
"""Three standard errors of a coverage near 95 %."""


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def coverage(ends: np.ndarray, truth: float) -> float:
    """Return the share of the intervals that contain the truth."""
    return float(np.mean((ends[0] <= truth) & (truth <= ends[1])))


def splits(rng: np.random.Generator, p: float, k: int) -> np.ndarray:
    """Return the errors of k seeds, each tested on a tenth of 7400 samples with a share p of errors."""
    hard = rng.binomial(7400, p, (STUDIES, 1))
    return rng.hypergeometric(hard, 7400 - hard, 740, (STUDIES, k))


@pytest.mark.parametrize(("p", "k"), [(1e-4, 3), (1e-3, 10), (0.02, 3), (0.3, 10)])
def test_the_interval_of_independent_errors_holds_their_mean(
    p: float, k: int, rng: np.random.Generator
) -> None:
    errors = rng.binomial(2115, p, (STUDIES, k))
    assert coverage(proportion_interval(errors / 2115, 2115), p) > 0.95 - NOISE
    differences = errors - rng.binomial(2115, p, errors.shape)
    assert coverage(mean_test(differences, error=1.0), 0) > 0.95 - NOISE


@pytest.mark.parametrize("p", [1e-3, 0.02, 0.3])
def test_the_interval_of_overlapping_splits_holds_the_mean_of_all_data(
    p: float, rng: np.random.Generator
) -> None:
    errors, others = splits(rng, p, 10), splits(rng, p / 2, 10)
    assert coverage(proportion_interval(errors / 740, 740, 1 / 9), p) > 0.95 - NOISE
    assert coverage(proportion_interval(errors / 740, 740), p) < 0.94, "expected the overlap to matter"
    assert coverage(mean_test(errors - others, 1 / 9, error=1.0), 740 * p / 2) > 0.95 - NOISE


def test_the_interval_widens_with_what_differs_between_the_seeds(rng: np.random.Generator) -> None:
    rates = rng.beta(4, 200, (STUDIES, 10))  # more than four times the variance of independent errors
    shares = rng.binomial(740, rates) / 740
    low, high = proportion_interval(shares, 740)
    assert coverage(np.stack([low, high]), 4 / 204) > 0.95 - NOISE
    theirs = stats.ttest_1samp(shares, 0, axis=1).confidence_interval(0.95)
    assert np.mean(high - low) == pytest.approx(np.mean(theirs.high - theirs.low), rel=0.07)


@pytest.mark.parametrize(("k", "overlap"), [(3, 0.0), (10, 1 / 9)])
def test_a_difference_has_a_p_value_below_5_percent_where_its_interval_leaves_out_0(
    k: int, overlap: float, rng: np.random.Generator
) -> None:
    rare, many = rng.poisson(0.4, (STUDIES, k)), rng.normal(9, 12, (STUDIES, k)).round()
    equal = np.repeat(np.arange(-20, 20)[:, None], k, axis=1)
    differences = np.concatenate([rare, many, equal])
    low, high, p = mean_test(differences, overlap, error=1.0)
    assert ((p < 0.05) == ((low > 0) | (high < 0))).all()
    assert p.min() > 0
    assert (p[differences.mean(-1) == 0] == 1).all()
    students = mean_test(differences, overlap)[2]
    assert (p >= students).all()
    assert np.mean(p == students) > 0.3, "expected Student's p-value for many differences"


def test_real_values_have_students_interval_and_p_value(rng: np.random.Generator) -> None:
    values = rng.normal(0.3, 1, (20, 5))
    theirs = stats.ttest_1samp(values, 0, axis=1)
    assert mean_test(values) == pytest.approx(np.stack([*theirs.confidence_interval(0.95), theirs.pvalue]))
    assert mean_test(np.array([[0.5] * 3, [0.0] * 3]))[2].tolist() == [0, 1]  # SciPy returns NaN


def test_independent_errors_have_clopper_and_pearsons_interval() -> None:
    theirs = stats.binomtest(42, 3 * 740).proportion_ci()
    assert proportion_interval(np.array([14, 14, 14]) / 740, 740) == pytest.approx(theirs)
    assert proportion_interval(np.array([[0] * 10, [1] * 10]), 20).T.tolist() == [
        [0, pytest.approx(1 - 0.025 ** (1 / 200))],
        [pytest.approx(0.025 ** (1 / 200)), 1],
    ]


def test_what_too_few_seeds_do_not_tell_is_nan() -> None:
    alone, two = (estimate(values, 2, mean_test) for values in ([12.0], [10.0, 14.0]))
    assert (alone.mean, two.mean, two.std) == (12, 12, pytest.approx(8**0.5))
    assert all(map(math.isnan, (alone.std, alone.low, two.low, two.high)))
    assert math.isnan(standard_error([0.9]))


def test_equal_accuracies_have_the_standard_error_of_independent_errors() -> None:
    """Ten runs without an error do not prove that there will never be an error."""
    assert standard_error([1.0] * 10, samples=100) == pytest.approx(0.00138, abs=1e-5)
    for p, overlap in ((0.7, 0.0), (0.7, 1 / 9), (0.3, 0.0)):
        error = standard_error([p] * 5, overlap, samples=10_000)
        assert error == pytest.approx(((1 / 5 + overlap) * p * (1 - p) / 10_000) ** 0.5, rel=1e-3)
    varied = [0.5, 0.7, 0.9]
    # these accuracies vary more than independent errors
    assert standard_error(varied, samples=1000) == pytest.approx(stats.sem(varied))
    assert standard_error(varied, 1 / 3) == pytest.approx(2**0.5 * stats.sem(varied))  # c = 1/3 + 1/3
