"""Independent random streams from one seed; what step t draws depends on the seed, t, m and k alone."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from jaxtyping import Int64

BLOCK = 1024
"""Number of steps drawn at a time. It determines which samples a seed gives, so it must never change."""


class Stream(IntEnum):
    """The random choices of a run, each with its own generator."""

    DATA = 0
    SPLIT = 1
    THETA = 2
    DROPOUT = 3
    SAMPLING = 4
    SUBSAMPLE = 5
    AUGMENT = 6


def generator(seed: int, stream: Stream, *key: int) -> np.random.Generator:
    """Return the generator of a stream, or of the substream that ``key`` identifies."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream, *key)))


def derived_seed(seed: int, stream: Stream) -> int:
    """Return an integer seed for a library that has its own generator."""
    return int(generator(seed, stream).integers(2**31))


class Sampler:
    """Draw i_t, or the subset A_t of size k, uniformly from {0, ..., m-1}, independently for every step t."""

    def __init__(self, seed: int, m: int, k: int = 1) -> None:
        self.seed, self.m, self.k = seed, m, k
        self._block, self._drawn = -1, np.empty((BLOCK, k), np.int64)

    def __call__(self, t: int) -> Int64[np.ndarray, " k"]:
        """Return the k indices of step t, without repeats."""
        drawn: np.ndarray = self.ahead(t)[0]
        return drawn

    def ahead(self, t: int) -> Int64[np.ndarray, "steps k"]:
        """Return the indices of step t and the steps after it, to the end of their block; see ``BLOCK``."""
        block, row = divmod(t, BLOCK)
        if block != self._block:
            self._block, self._drawn = block, self._draw(generator(self.seed, Stream.SAMPLING, self.k, block))
        coming: np.ndarray = self._drawn[row:]
        return coming

    def _draw(self, rng: np.random.Generator) -> np.ndarray:
        if self.k == 1:
            drawn: np.ndarray = rng.integers(self.m, size=(BLOCK, 1))
            return drawn
        return np.stack([rng.choice(self.m, self.k, replace=False) for _ in range(BLOCK)])
