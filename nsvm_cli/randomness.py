"""Independent random streams from one seed; the draws of step t depend on the seed and t alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch.overrides import TorchFunctionMode

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
    KERNEL = 7


def generator(seed: int, stream: Stream, *key: int) -> np.random.Generator:
    """Return the generator of a stream, or of the substream that ``key`` identifies."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream, *key)))


def derived_seed(seed: int, stream: Stream, *key: int) -> int:
    """Return an integer seed for a library that has its own generator."""
    return int(generator(seed, stream, *key).integers(2**31))


DRAWING = {
    *("rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm"),
    *("normal", "bernoulli", "binomial", "multinomial", "poisson"),
    *("uniform_", "normal_", "bernoulli_", "random_", "exponential_", "geometric_", "cauchy_", "log_normal_"),
    *("kaiming_uniform_", "kaiming_normal_", "xavier_uniform_", "xavier_normal_", "trunc_normal_"),
    *("orthogonal_", "sparse_"),
}
"""The functions of torch, of its tensors and of ``torch.nn.init`` that draw, and take a ``generator``."""


class DrawingFrom(TorchFunctionMode):
    """Let torch's functions draw from ``generator`` in this context, wherever none is given to them.

    Layers and torchvision take no generator, and the global one is shared by all threads: seeding it here
    would change their draws, and they would change these. A context affects its own thread only. A generator
    draws what the global one would, given the same seed.
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.generator = generator

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        values = dict(kwargs or {})
        if func.__name__ in DRAWING and not (args and isinstance(args[0], torch.Tensor) and args[0].is_meta):
            values["generator"] = values.get("generator") or self.generator
        return func(*args, **values)


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


GOLDEN = -0x61C8864680B583EB
"""2^64 divided by the golden ratio, as a signed number."""

LAYER = 2**48
"""Distance between the masks of two layers in the sequence of random numbers."""


def mixed(x: Any) -> Any:
    """Return SplitMix64's function (Steele, Lea and Flood 2014) of 64-bit integers, modulo 2^64.

    It takes arrays of NumPy and tensors, both of int64, and integers in a compiled function.
    """
    x = (x ^ (x >> 30 & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47
    x = (x ^ (x >> 27 & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return x ^ (x >> 31 & 0x1FFFFFFFF)


def number_at(key: Any, place: Any) -> Any:
    """Return the numbers at these places of the sequence of ``key``: uniform signed 64-bit integers, computed
    without the ones before them.
    """
    return mixed(place * GOLDEN + key)


def key_of_step(seed: int, t: int) -> int:
    """Return the key of the random numbers of step t."""
    return int(number_at(np.array([seed]), np.array([t]))[0])
