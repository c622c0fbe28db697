"""Independent random streams from one seed. The random choices of step t depend on the seed and t alone."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import IntEnum
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64

BLOCK = 1024
"""Number of steps whose samples are drawn together. Samples depend on it, so it must never change."""


class Stream(IntEnum):
    """The kinds of random choices in a run. Each kind has a separate generator."""

    DATA = 0
    SPLIT = 1
    THETA = 2
    DROPOUT = 3
    SAMPLING = 4
    SUBSAMPLE = 5
    AUGMENT = 6
    KERNEL = 7


def generator(seed: int, stream: Stream, *key: int) -> np.random.Generator:
    """Return the generator of a stream, or of the substream that ``key`` identifies."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream, *key)))


def derived_seed(seed: int, stream: Stream, *key: int) -> int:
    """Return an integer seed for a library with its own generator."""
    return int(generator(seed, stream, *key).integers(2**31))


SEEDING = threading.RLock()
"""The lock that a thread holds while it has seeded the global generators."""


def seed_generators(seed: int) -> None:
    """Seed the global generators of torch on the CPU, NumPy and Python."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


@contextmanager
def seeded(seed: int, device: str = "cpu") -> Iterator[None]:
    """Context manager: seed the global generators of torch, NumPy and Python, and restore them on exit."""
    with SEEDING, ExitStack() as restored:
        cuda = [torch.cuda.default_generators[torch.cuda.current_device()]] if device == "cuda" else []
        for generator in [torch.default_generator, *cuda]:
            restored.callback(generator.set_state, generator.get_state())
            generator.manual_seed(seed)
        restored.callback(np.random.set_state, np.random.get_state())
        restored.callback(random.setstate, random.getstate())
        seed_generators(seed)
        yield


def draws(function: Callable[[], object], device: str) -> bool:
    """Return whether a function draws from the global generators."""
    next_numbers: list[list[float]] = []
    for call in (function, lambda: None):
        with seeded(0, device):
            call()
            next_numbers.append([float(torch.rand(1, device=d)) for d in ("cpu", device)])
            next_numbers[-1] += [np.random.random(), random.random()]
    return next_numbers[0] != next_numbers[1]


class Sampler:
    """Draw k of the m sample indices uniformly, independently for every step t (i_t or A_t in the paper).

    A subclass may set ``p``, the probabilities of the m indices, or override ``draw``.
    """

    p: np.ndarray | None = None

    def __init__(self, seed: int, m: int, k: int = 1) -> None:
        self.seed, self.m, self.k = seed, m, k
        self._block, self._drawn = -1, np.empty((BLOCK, k), np.int64)

    def __call__(self, t: int) -> Int64[np.ndarray, " k"]:
        """Return the k indices of step t, without repeats."""
        return self.rest_of_block(t)[0]

    def rest_of_block(self, t: int) -> Int64[np.ndarray, "steps k"]:
        """Return the indices of all steps from t to the end of the block of t; see ``BLOCK``."""
        block, row = divmod(t, BLOCK)
        if block != self._block:
            self._block, rng = block, generator(self.seed, Stream.SAMPLING, self.k, block)
            self._drawn = drawn = np.ascontiguousarray(self.draw(rng, BLOCK), np.int64)
            if drawn.shape != (BLOCK, self.k) or drawn.min() < 0 or drawn.max() >= self.m:
                raise ValueError(f"expected draws of shape {(BLOCK, self.k)}, from 0 to {self.m - 1}")
            if not np.diff(np.sort(drawn)).all():
                raise ValueError("expected different samples in each batch, got a sample twice")
        return self._drawn[row:]

    def draw(self, rng: np.random.Generator, steps: int) -> Int64[np.ndarray, "steps k"]:
        """Return the indices of several steps. The k indices of a step must be distinct."""
        if self.k > 1:
            return np.stack([rng.choice(self.m, self.k, replace=False, p=self.p) for _ in range(steps)])
        if self.p is not None:
            return rng.choice(self.m, (steps, 1), p=self.p)
        return rng.integers(self.m, size=(steps, 1))


GOLDEN = -0x61C8864680B583EB
"""2^64 divided by the golden ratio, as a signed number."""

LAYER = 2**48
"""Distance between the dropout masks of two layers in the sequence of random numbers."""


def mixed(x: Any) -> Any:
    """Apply SplitMix64's mixing function (Steele, Lea and Flood 2014) to int64 arrays, tensors or numbers."""
    x = (x ^ (x >> 30 & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47
    x = (x ^ (x >> 27 & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return x ^ (x >> 31 & 0x1FFFFFFFF)


def number_at(key: Any, place: Any) -> Any:
    """Return the uniform signed 64-bit integers at these places in the random sequence of ``key``."""
    return mixed(place * GOLDEN + key)


def key_of_step(seed: int, t: int) -> int:
    """Return the key of the random sequence of step t."""
    return int(number_at(np.array([seed]), np.array([t]))[0])
