"""Means and 95 % confidence intervals over seeds. Intervals of accuracies are valid even with few errors.

Intervals cover everything that differs between seeds: the initial theta, the order of the samples and, if
each seed has its own, the split or the data. Scores from several splits of the same samples are correlated.
The variance of a mean over k seeds therefore contains c = 1/k + overlap instead of 1/k, where ``overlap`` is
the ratio of test to training samples (Nadeau & Bengio, Inference for the generalization error, 2003).

Ten runs without an error do not prove that there will never be an error. Intervals of accuracies, and the
test of a difference, therefore assume at least the variance of independent errors. In simulations, the
intervals contain the true mean in at least 95 % of studies if errors are independent, and in 92 to 95 % if
the variance over the seeds is several times larger. Intervals of R^2 are Student's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev, variance

import numpy as np
from jaxtyping import Float, Num
from scipy.special import betaincinv, ndtr, ndtri, stdtr, stdtrit

LEVEL = 0.95
TAIL, Z = (1 - LEVEL) / 2, float(ndtri((1 + LEVEL) / 2))
FEWEST_SEEDS = 3

Values = Num[np.ndarray, "*studies k"]
"""A value for each of k seeds, for one study or for many studies."""

Inferred = Float[np.ndarray, "_ *studies"]
"""Lower and upper ends of intervals and, from a test, p-values."""


@dataclass(frozen=True)
class Estimate:
    """Mean, standard deviation and confidence interval of seeds' scores; NaN where there are too few seeds.

    ``p`` is the p-value of the test whether a mean difference is 0; NaN for a mean score.
    """

    mean: float
    std: float
    seeds: int
    digits: int
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan

    @property
    def spread(self) -> str:
        """The mean and the standard deviation as text; empty for NaN."""
        mean, std = (known(value, f".{self.digits}f") for value in (self.mean, self.std))
        return f"{mean} ± {std}" if std else mean

    def interval(self, sign: str = "") -> str:
        """The interval as text; empty for NaN."""
        low, high = (known(value, f"{sign}.{self.digits}f") for value in (self.low, self.high))
        return low and f"[{low}, {high}]"

    @property
    def signed(self) -> str:
        """The mean and interval of a difference as text."""
        return f"{known(self.mean, f'+.{self.digits}f')} {self.interval('+')}".strip()

    @property
    def magnitude(self) -> str:
        """The mean and interval of a difference as text, without its sign."""
        ends = sorted(abs(end) for end in (self.low, self.high))
        low, high = (f"{end:.{self.digits}f}" for end in ends)
        return f"{abs(self.mean):.{self.digits}f}, at 95 % between {low} and {high}"


def known(value: float, form: str) -> str:
    """Format a number; empty for NaN."""
    return "" if math.isnan(value) else f"{value:{form}}"


def estimate(values: Sequence[float], digits: int, infer: Callable[[Values], Inferred]) -> Estimate:
    """Estimate a mean. With enough seeds, ``infer`` returns its interval and, in a test, the p-value."""
    mean, std = fmean(values) if values else math.nan, stdev(values) if len(values) > 1 else math.nan
    inferred = infer(np.array(values)) if len(values) >= FEWEST_SEEDS else ()
    return Estimate(mean, std, len(values), digits, *map(float, inferred))


def proportion_interval(shares: Values, samples: int, overlap: float = 0.0) -> Inferred:
    """Return the lower and upper ends of the interval of a proportion, for each row of k seeds.

    The intervals are Clopper and Pearson's for the mean p of the seeds' proportions s (``shares``), with Korn
    and Graubard's number of trials n (Confidence intervals for proportions with small expected number of
    positive counts estimated from survey data, 1998), which need not be an integer:

        n = samples / c / max(1, Var(s) samples / (p (1 - p)) (t_{k-1} / z)^2)
    """
    p, k = shares.mean(-1), shares.shape[-1]
    independent = p * (1 - p) / samples
    excess = shares.var(-1, ddof=1) * (stdtrit(k - 1, TAIL) / Z) ** 2
    excess = np.divide(excess, independent, out=np.ones_like(p), where=independent > 0)
    n = samples / (1 / k + overlap) / np.maximum(1, excess)
    low = np.where(p > 0, betaincinv(n * p, n * (1 - p) + 1, TAIL), 0.0)
    high = np.where(p < 1, betaincinv(n * p + 1, n * (1 - p), 1 - TAIL), 1.0)
    return np.stack([low, high])


NO_SPREAD = 1e-300
"""Added to a standard error, which is 0 if all values are equal. Then p is 1 if the values are 0, else 0."""


def mean_test(values: Values, overlap: float = 0.0, error: float = 0.0) -> Inferred:
    """Return the ends of the interval of the mean, and the p-value for a mean of 0, for each row of k seeds.

    Interval and test are Student's, with Nadeau and Bengio's c = 1/k + overlap. t_{k-1} and z are the 97.5 %
    quantiles of Student's distribution and of the normal distribution. For paired differences d of scores, in
    which one error changes a score by ``error``, the interval for independent errors replaces Student's if
    wider:

        mean(d) +- max(t_{k-1} sqrt(c Var(d)), z sqrt(c error (mean(|d|) + c error z^2)))

    The second square root is the standard error due to the errors that exactly one of the two methods makes:
    at least |d| per seed, plus z^2/2 for each method, as in Agresti and Coull's interval of a proportion
    (Approximate is better than "exact" for interval estimation of binomial proportions, 1998).
    """
    k = values.shape[-1]
    c, mean = 1 / k + overlap, values.mean(-1)
    students = np.sqrt(c * values.var(-1, ddof=1)) + NO_SPREAD
    independent = np.sqrt(c * error * (np.abs(values).mean(-1) + c * error * Z**2)) + NO_SPREAD
    half = np.maximum(-stdtrit(k - 1, TAIL) * students, Z * independent)
    p = 2 * np.maximum(stdtr(k - 1, -np.abs(mean) / students), ndtr(-np.abs(mean) / independent))
    return np.stack([mean - half, mean + half, p])


def standard_error(values: Sequence[float], overlap: float = 0.0, samples: int | None = None) -> float:
    """Return the standard error of the mean over k seeds; NaN for a single seed.

    It is sqrt(c Var(values)) with c = 1/k + overlap. The variance of accuracies on ``samples`` samples is at
    least p (1 - p) / samples, the variance of independent errors, where p is the accuracy with Agresti and
    Coull's correction.
    """
    if len(values) < 2:
        return math.nan
    c, least_variance = 1 / len(values) + overlap, 0.0
    if samples is not None:
        n = samples / c
        p = (n * fmean(values) + Z**2 / 2) / (n + Z**2)
        least_variance = p * (1 - p) / samples
    return math.sqrt(c * max(variance(values), least_variance))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for all comparisons; NaNs remain NaN.

    See Holm, A simple sequentially rejective multiple test procedure, 1979.
    """
    p, order = np.array(p_values), np.argsort(p_values)  # NaNs last
    factors = np.count_nonzero(~np.isnan(p)) - np.arange(len(p))
    p[order] = np.maximum.accumulate(np.minimum(1, factors * p[order]))
    return [*map(float, p)]
