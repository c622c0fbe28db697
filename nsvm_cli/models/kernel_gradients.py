"""Estimates of the gradient of a kernel with respect to features, from kernel values (paper, Section 4.1).

K may be any function of two sets of features. The gradient with respect to theta follows by the chain rule.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import numpy as np
import torch
from pydantic import PositiveInt
from pydantic.dataclasses import dataclass
from torch import Tensor

from nsvm_cli.config.registry import STRICT, Positive, build
from nsvm_cli.models.kernels import Gram, Kernel, Others, Points
from nsvm_cli.randomness import Stream, generator

Random = Iterator[np.random.Generator]
"""An iterator over random generators, one for each random direction of a step."""


def directions(seed: int, t: int) -> Random:
    """Return the generators for the random directions of step t."""
    return (generator(seed, Stream.KERNEL, t, n) for n in count(1))


@dataclass(frozen=True, config=STRICT)
class Differences(ABC):
    """An estimate of a kernel's gradient from central differences of width 2h along directions.

    ``step`` is h. The default is the cube root of the machine precision, which suits features near 1. To add
    an estimate, derive from this class, and add the class to ``GRADIENTS``.
    """

    step: Positive | None = None

    @abstractmethod
    def __call__(self, K: Kernel, a: Points, b: Others, G: Gram, random: Random) -> Points:
        """Return an estimate of the gradient of sum_ij G_ij K(a_i, b_j) with respect to a."""

    def slope(self, K: Kernel, a: Points, b: Others, G: Gram, d: Points) -> Tensor:
        """Return sum_j G_ij (K(a_i + h d_i, b_j) - K(a_i - h d_i, b_j)) / (2h) for every i, as a column."""
        h = self.step or torch.finfo(a.dtype).eps ** (1 / 3)
        return (G * (K(a + h * d, b) - K(a - h * d, b))).sum(-1, keepdim=True) / (2 * h)


@dataclass(frozen=True, config=STRICT)
class FiniteDifference(Differences):
    """Differences along all axes, which require 2n kernel matrices for n features."""

    def __call__(self, K: Kernel, a: Points, b: Others, G: Gram, random: Random) -> Points:
        axes = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
        return torch.cat([self.slope(K, a, b, G, axis.expand_as(a)) for axis in axes], -1)


@dataclass(frozen=True, config=STRICT)
class SPSA(Differences):
    """Simultaneous perturbation (Spall 1992): the mean of d times the slope along d, for random signs d.

    The mean over ``samples`` vectors requires two kernel matrices for each vector. Since E[d d^T] = I, its
    expected value is the estimate of ``FiniteDifference``.
    """

    samples: PositiveInt = 1

    def __call__(self, K: Kernel, a: Points, b: Others, G: Gram, random: Random) -> Points:
        gradient = torch.zeros_like(a)
        for _ in range(self.samples):
            d = torch.from_numpy(next(random).choice([-1.0, 1.0], a.shape)).to(a)
            gradient += self.slope(K, a, b, G, d) * d
        return gradient / self.samples


GRADIENTS: dict[str, type[Differences]] = {"finite_difference": FiniteDifference, "spsa": SPSA}


@dataclasses.dataclass
class WithGradient(Kernel):
    """The kernel K with an estimate of its gradient, for use in the objective of a step."""

    K: Kernel
    estimate: Differences
    random: Random

    def __call__(self, a: Points, b: Others) -> Gram:
        return _Value.apply(a, b, self)  # type: ignore[no-untyped-call]

    def gradient(self, a: Points, b: Others, K: Gram, G: Gram) -> Points:
        with torch.no_grad():
            return self.estimate(self.K, a, b, G, self.random)

    @property
    def unbiased(self) -> Kernel:
        return dataclasses.replace(self, K=self.K.unbiased)


class _Value(torch.autograd.Function):
    """The value of a kernel as an autograd function, whose backward pass estimates the gradient."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, K: WithGradient) -> Tensor:
        value = K.K(a, b)
        ctx.K = K
        ctx.save_for_backward(a, b, value)
        return value

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        a, b, value = ctx.saved_tensors
        needs_a, needs_b, _ = ctx.needs_input_grad
        return (
            ctx.K.gradient(a, b, value, G) if needs_a else None,
            ctx.K.gradient(b, a, value.mT, G.mT) if needs_b else None,  # since K(a, b) = K(b, a)
            None,
        )


def build_gradient(settings: Mapping[str, Any]) -> Differences | None:
    """Return the gradient estimate selected in a ``kernel:`` section, by name or with settings, if any."""
    gradient = settings.get("gradient")
    section = {"name": gradient} if not isinstance(gradient, Mapping) else gradient
    return None if gradient is None else build(GRADIENTS, "kernel.gradient", section)
