"""Samplers of training samples. They are built from a ``Problem``, the batch size k, and settings."""

from __future__ import annotations

from typing import Any

import numpy as np

from nsvm_cli.config.registry import Registry
from nsvm_cli.errors import InputError
from nsvm_cli.randomness import Sampler

SAMPLERS: Registry[type[Sampler]] = Registry("sampler", Sampler, 2)


@SAMPLERS.register("uniform")
class Uniform(Sampler):
    """Draws uniformly from all training samples (paper, Algorithms 0 to 4)."""

    def __init__(self, problem: Any, k: int) -> None:
        super().__init__(problem.seed, len(problem.y), k)


@SAMPLERS.register("balanced")
class Balanced(Uniform):
    """Draws a class uniformly, and then uniformly one of its samples.

    A batch contains no sample twice, so batches contain fewer samples of rare classes than of others.
    """

    def __init__(self, problem: Any, k: int) -> None:
        super().__init__(problem, k)
        if not problem.task.classes:
            raise InputError("sampler=balanced requires task=classification, got task=regression")
        _, index, counts = np.unique(problem.host_y, return_inverse=True, return_counts=True)
        self.p = 1 / counts[index] / len(counts)
