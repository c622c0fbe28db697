"""Breiman's Ringnorm, generated without a file or network."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from jaxtyping import Bool, Float64
from pydantic import Field
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.base import Samples, Source

DIMENSION = 20
MEAN = 2 / np.sqrt(DIMENSION)
"""a, the mean of class B in every feature."""
MIXED_STD = np.sqrt((4 + 1) / 2 + MEAN**2 / 4)
"""The standard deviation of each feature over both classes, whose mean is a/2."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Ringnorm(Source):
    """Two normal distributions in R^20 with equal priors (Breiman, 1996).

    Class A (-1) is N(0, 4 I), class B (+1) is N((a, ..., a), I) with a = 2/sqrt(20). The best possible
    accuracy is 98.76 %: see ``bayes_accuracy``.
    """

    samples: Annotated[int, Field(ge=20, le=10**7)] = 7400

    def load(self, rng: np.random.Generator) -> Samples:
        y = rng.choice([-1.0, 1.0], self.samples)
        B = y[:, None] > 0
        x = rng.standard_normal((self.samples, DIMENSION)) * np.where(B, 1, 2) + np.where(B, MEAN, 0)
        source = f"Breiman's generator, {self.samples} samples"
        return Samples(x, y, ("A", "B"), source, generated=True)


# Class B is the more likely one where 3/4 |x - 4/3 a|^2 - |a|^2/3 < 40 log 2 (|a|^2 = 4): inside a ball.
CENTRE = 4 / 3 * MEAN
SQUARED_RADIUS = 4 / 3 * (2 * DIMENSION * np.log(2) + 4 / 3)


def bayes_rule(
    x: Float64[np.ndarray, "m n"], scaled_as: Float64[np.ndarray, "p n"]
) -> Bool[np.ndarray, " m"]:
    """Return whether class B is the more likely one for each row: the Bayes-optimal decision.

    The published rows are standardised. Any scaling of the features is first undone, by matching the moments
    of ``scaled_as``, a large sample with the same scaling.
    """
    x = (x - scaled_as.mean(0)) / scaled_as.std(0) * MIXED_STD + MEAN / 2
    inside: np.ndarray = ((x - CENTRE) ** 2).sum(1) < SQUARED_RADIUS
    return inside


def bayes_accuracy() -> float:
    """Return the expected accuracy of ``bayes_rule``."""
    from scipy.stats import ncx2  # slow to import, and needed only here

    a, c = MEAN**2 * DIMENSION, CENTRE**2 * DIMENSION
    right_on_B = ncx2.cdf(SQUARED_RADIUS, DIMENSION, a / 9)  # |a - 4/3 a|^2 = |a|^2 / 9
    right_on_A = ncx2.sf(SQUARED_RADIUS / 4, DIMENSION, c / 4)
    return float(right_on_A + right_on_B) / 2
