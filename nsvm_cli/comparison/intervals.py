"""Means and 95 % intervals over the seeds of a study, of R^2 and of numbers of errors, which may be few.

The seeds of a study stand for all seeds: an interval covers whatever differs between two of them. That is
always the initial theta and the order of the samples. It includes the choice of the training and test
samples only if each seed has its own split, and the data themselves only if each seed has its own.

Scores from several splits of the same samples are correlated. ``overlap``, the ratio of test to training
samples, corrects for that: c = 1/k + overlap takes the place of 1/k in the variance of a mean over k seeds
(Nadeau & Bengio, Inference for the generalization error, 2003).

With few errors, the variance between the seeds says little: ten runs without an error do not prove that
there will never be one. Both intervals, and the test of a difference, therefore assume at least the variance
of independent errors. In simulations the intervals hold the true mean in at least 95 % of studies if errors
are independent, and in 92 to 95 % if the seeds vary several times more than that. If errors come in rare
bursts, such as one seed in fifty that fails, no interval of ten seeds can know it. R^2 counts nothing: its
intervals are Student's, and end at 1 at the latest. Below three seeds there is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from statistics import NormalDist, fmean, stdev, variance
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

LEVEL = 0.95
R2, PERCENT = "R²", "accuracy, %"
R2_DIGITS, FEWEST_SEEDS = 4, 3


def recorded_overlap(data: Mapping[str, Any], split: str) -> float:
    """Return how much the splits of two seeds overlap, from ``data`` in a result: see ``Data.overlap``."""
    generated = data.get("generated", False)  # earlier versions did not say
    if generated or (data["official_split"] and split == "test"):
        return 0.0
    return float(data["samples"][split] / data["samples"]["train"])


Ends = Float64[np.ndarray, "2 *studies"]
"""The lower ends of intervals, and the upper ends."""

PValues = Float64[np.ndarray, "*studies"]


@dataclass(frozen=True)
class Estimate:
    """Mean, sample standard deviation, and interval of the mean; what too few seeds do not tell is NaN.

    ``digits`` is to how many decimals they are shown.
    """

    mean: float
    std: float
    low: float
    high: float
    digits: int = 2

    def times(self, factor: float, plus: float = 0.0) -> Estimate:
        """Return the estimate of ``factor`` times the quantity, ``plus`` a constant."""
        low, high = sorted(factor * end + plus for end in (self.low, self.high))
        return Estimate(factor * self.mean + plus, abs(factor) * self.std, low, high, self.digits)

    @property
    def spread(self) -> str:
        """Mean and standard deviation as text; nothing if there are none."""
        mean, std = ("" if math.isnan(v) else f"{v:.{self.digits}f}" for v in (self.mean, self.std))
        return mean if math.isnan(self.std) else f"{mean} ± {std}"

    def interval(self, sign: str = "") -> str:
        """Format the interval; nothing if there is none."""
        form = f"{sign}.{self.digits}f"
        return "" if math.isnan(self.low) else f"[{self.low:{form}}, {self.high:{form}}]"

    @property
    def signed(self) -> str:
        """The mean and interval of a difference as text."""
        return f"{self.mean:+.{self.digits}f} {self.interval('+')}"


@dataclass(frozen=True)
class Scores:
    """What a method has scored with each seed.

    Attributes:
        values: R^2, or the number of errors, by the seed.
        samples: of how many samples errors are counted; None for R^2.
        overlap: the ratio of test to training samples if each seed has its own split of the same, else 0.
        counts: whether scores are numbers of errors, rather than accuracies.
    """

    values: Mapping[int, Any]
    samples: int | None
    overlap: float = 0.0
    counts: bool = False

    @property
    def unit(self) -> str:
        """The unit of the scores."""
        if self.samples is None:
            return R2
        return f"errors of {self.samples}" if self.counts else PERCENT

    def __len__(self) -> int:
        """Return the number of seeds."""
        return len(self.values)

    def __getitem__(self, seed: int) -> float:
        """Return the score of a seed."""
        value = self.values[seed]
        return float(value if self.samples is None or self.counts else 100 * (1 - value / self.samples))

    @property
    def each(self) -> list[float]:
        """The scores of all seeds."""
        return [self[seed] for seed in self.values]

    @cached_property
    def estimate(self) -> Estimate:
        """The mean score."""
        values = [*self.values.values()]
        if not values:
            return Estimate(math.nan, math.nan, math.nan, math.nan)
        if (samples := self.samples) is None:
            return estimate(values, partial(mean_interval, values, self.overlap, most=1.0), R2_DIGITS)
        errors = estimate(values, partial(error_interval, np.array(values), samples, self.overlap))
        return errors if self.counts else errors.times(-100 / samples, plus=100.0)

    def differences(self, other: Scores) -> list[Any]:
        """Return R^2, or the errors, minus the other's, for each seed that both have."""
        return [self.values[seed] - other.values[seed] for seed in self.values if seed in other.values]

    def minus(self, other: Scores) -> Estimate | None:
        """Estimate the mean score minus the other's, over the seeds that both have; None without any."""
        more, overlap = self.differences(other), max(self.overlap, other.overlap)
        if not more:
            return None
        if self.samples is None:
            return estimate(more, partial(mean_interval, more, overlap), R2_DIGITS)
        errors = estimate(more, partial(difference_interval, np.array(more), overlap))
        return errors if self.counts else errors.times(-100 / self.samples)


def estimate(
    values: Sequence[int | float], interval: Callable[[], Ends] | None = None, digits: int = 2
) -> Estimate:
    """Estimate the mean of what the seeds have scored; ``interval`` computes that of enough of them."""
    low, high = map(float, interval()) if interval and len(values) >= FEWEST_SEEDS else (math.nan, math.nan)
    return Estimate(fmean(values), stdev(values) if len(values) > 1 else math.nan, low, high, digits)


def mean_interval(values: Sequence[float], overlap: float = 0.0, most: float = math.inf) -> Ends:
    """Return the interval of the mean of real values, or of their differences seed by seed.

    It is mean +- t_{k-1} sqrt(c Var), without what is above ``most``, which no value can exceed.
    """
    from scipy.special import stdtrit  # slow to import, and needed only here

    half = stdtrit(len(values) - 1, (1 + LEVEL) / 2) * standard_error(values, overlap)
    return np.minimum(fmean(values) + np.array([-half, half]), most)


def error_interval(errors: Int64[np.ndarray, "*studies k"], samples: int, overlap: float = 0.0) -> Ends:
    """Return the intervals of the mean number of errors, one for each row of k seeds.

    They are those of Clopper and Pearson for p = errors / samples, with Korn and Graubard's number of trials
    (Confidence intervals for proportions with small expected number of positive counts estimated from survey
    data, 1998). That is all ``samples / c``, if the errors s of the seeds vary no more than independent ones
    would, and fewer in proportion if they vary more:

        n = samples / c / max(1, Var(s) / (samples p (1 - p)) (t_{k-1} / z)^2)
    """
    from scipy.special import betaincinv, ndtri, stdtrit  # slow to import, and needed only here

    tail, k = (1 - LEVEL) / 2, errors.shape[-1]
    p = errors.mean(-1) / samples
    independent = samples * p * (1 - p)
    excess = errors.var(-1, ddof=1) * (stdtrit(k - 1, tail) / ndtri(tail)) ** 2
    excess = np.divide(excess, independent, out=np.ones_like(p), where=independent > 0)
    n = samples / (1 / k + overlap) / np.maximum(1, excess)
    low = np.where(p > 0, betaincinv(n * p, n * (1 - p) + 1, tail), 0.0)
    high = np.where(p < 1, betaincinv(n * p + 1, n * (1 - p), 1 - tail), 1.0)
    return samples * np.stack([low, high])


def difference_interval(differences: Int64[np.ndarray, "*studies k"], overlap: float = 0.0) -> Ends:
    """Return the intervals of the mean of paired differences d of errors, one for each row of k seeds.

    They are Student's, or those of independent errors if these are wider:

        mean(d) +- sqrt(c max(t_{k-1}^2 Var(d), z^2 (mean(|d|) + c z^2)))

    The second variance is that of errors that only one of the methods makes, of which a seed has at least
    |d|. To those of all seeds, z^2/2 are added for each method, as Agresti and Coull do for a proportion
    (Approximate is better than "exact" for interval estimation of binomial proportions, 1998). So ten
    differences of zero give +-0.38 rather than +-0: the exact limit of the mean of ten zeros is 0.37.
    """
    from scipy.special import ndtri, stdtrit  # slow to import, and needed only here

    tail, k = (1 - LEVEL) / 2, differences.shape[-1]
    c, z = 1 / k + overlap, ndtri(tail)
    students = stdtrit(k - 1, tail) ** 2 * differences.var(-1, ddof=1)
    half = np.sqrt(c * np.maximum(students, z**2 * (np.abs(differences).mean(-1) + c * z**2)))
    return np.stack([differences.mean(-1) - half, differences.mean(-1) + half])


def standard_error(values: Sequence[float], overlap: float = 0.0, samples: int | None = None) -> float:
    """Return the standard error of the mean over seeds: sqrt(c Var(values)); NaN for a single one.

    If the values are accuracies on so many ``samples`` each, their variance is at least that of independent
    errors, p (1 - p) / samples. p is the accuracy after adding z^2/2 samples with an error and as many
    without to the ``samples / c``, as Agresti and Coull do: ten times 100 of 100 give 0.0014 rather than 0.
    """
    if len(values) < 2:
        return math.nan
    c, least = 1 / len(values) + overlap, 0.0
    if samples is not None:
        n, z = samples / c, NormalDist().inv_cdf((1 + LEVEL) / 2)
        p = (n * fmean(values) + z**2 / 2) / (n + z**2)
        least = p * (1 - p) / samples
    return math.sqrt(c * max(variance(values), least))


def paired_p_value(differences: Float64[np.ndarray, "*studies k"], overlap: float = 0.0) -> PValues:
    """Return the two-sided p-values of the paired t-test for a mean difference of 0, for each row of k seeds.

    t = mean(d) / sqrt(c Var(d)) with k - 1 degrees of freedom; with Nadeau and Bengio's c, as for intervals.
    If all differences are equal, the p-value is 1 when they are zero and 0 otherwise.
    """
    from scipy.special import stdtr  # slow to import, and needed only here

    k = differences.shape[-1]
    mean, variance = differences.mean(-1), (1 / k + overlap) * differences.var(-1, ddof=1)
    t = np.divide(np.abs(mean), np.sqrt(variance), out=np.full_like(mean, math.inf), where=variance > 0)
    p: PValues = 2 * stdtr(k - 1, -np.where(mean == 0, 0.0, t))
    return p


def difference_p_value(differences: Int64[np.ndarray, "*studies k"], overlap: float = 0.0) -> PValues:
    """Return the two-sided p-values for a mean difference of 0 errors, for each row of k seeds.

    They are those of ``paired_p_value``, or of independent errors if these are larger: 1 minus the level at
    which ``difference_interval`` ends at 0. For independent errors that is where

        mean(d)^2 = c z^2 (mean(|d|) + c z^2)
    """
    from scipy.special import ndtr  # slow to import, and needed only here

    mean, size = differences.mean(-1), np.abs(differences).mean(-1)
    z_squared = (np.sqrt(size**2 + 4 * mean**2) - size) / 2 / (1 / differences.shape[-1] + overlap)
    p: PValues = np.maximum(2 * ndtr(-np.sqrt(z_squared)), paired_p_value(differences.astype(float), overlap))
    return p


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values that hold for all comparisons together (Holm, A simple sequentially rejective multiple
    test procedure, 1979): the i-th smallest of n times n - i + 1, and none below a smaller one's. NaNs stay.
    """
    known = [index for index, p in enumerate(p_values) if not math.isnan(p)]
    adjusted, largest = [*p_values], 0.0
    for i, index in enumerate(sorted(known, key=lambda index: p_values[index])):
        largest = max(largest, min(1.0, (len(known) - i) * p_values[index]))
        adjusted[index] = largest
    return adjusted
