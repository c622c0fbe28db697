"""Breiman's Ringnorm data set, which is generated."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.base import Samples, Source


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Ringnorm(Source):
    """Two normal distributions in R^20 with equal priors (Breiman, 1996).

    Class A (-1) is N(0, 4 I), and class B (+1) is N((a, ..., a), I) with a = 2/sqrt(20). The best possible
    accuracy is 98.76 %.
    """

    samples: Annotated[int, Field(ge=20, le=10**7)] = 7400

    def load(self, rng: np.random.Generator) -> Samples:
        y = rng.choice([-1.0, 1.0], self.samples)
        B, a = y[:, None] > 0, 2 / np.sqrt(20)
        x = rng.standard_normal((self.samples, 20)) * np.where(B, 1, 2) + np.where(B, a, 0)
        source = f"Breiman's generator, {self.samples} samples"
        return Samples(x, y, ("A", "B"), source, generated=True)
