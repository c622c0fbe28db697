"""One seed, several independent streams; the samples of step t depend on the seed and t alone."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from jaxtyping import Int64

BLOCK = 1024
"""Steps that are drawn at a time: part of what a seed means, so never a setting."""


class Stream(IntEnum):
    """What a seed decides, each with its own generator."""

    DATA = 0
    SPLIT = 1
    THETA = 2
    DROPOUT = 3
    SAMPLING = 4
    SUBSAMPLE = 5
    AUGMENT = 6


def generator(seed: int, stream: Stream, *key: int) -> np.random.Generator:
    """The generator of one stream; ``key`` names a part of it."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream, *key)))


def derived_seed(seed: int, stream: Stream) -> int:
    """A seed for a library that wants a number of its own."""
    return int(generator(seed, stream).integers(2**31))


class Sampler:
    """i_t, or the subset A_t of size k, uniform on {0, ..., m-1} and for every t its own."""

    def __init__(self, seed: int, m: int, k: int = 1) -> None:
        self.seed, self.m, self.k = seed, m, k
        self._block, self._drawn = -1, np.empty((BLOCK, k), np.int64)

    def __call__(self, t: int) -> Int64[np.ndarray, " k"]:
        """What step t draws, without repeats."""
        drawn: np.ndarray = self.ahead(t)[0]
        return drawn

    def ahead(self, t: int) -> Int64[np.ndarray, "steps k"]:
        """What the steps from t on draw, to the end of the block of steps that are drawn together."""
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
