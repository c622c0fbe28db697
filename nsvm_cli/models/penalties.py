"""Remedies for overfitting (paper, Section 6): terms that can be added to any objective for theta.

Most terms are functions of the kernel matrix K_A of a batch, without a bias. If K_A is near the identity, any
labels fit. If K_A is near the matrix of ones, nothing can be learnt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from pydantic.dataclasses import dataclass
from torch import Tensor

from nsvm_cli.config.registry import STRICT, NonNegative
from nsvm_cli.models.feature_map import Batch, Objective, Training
from nsvm_cli.models.kernels import Kernel

Value = Float[Tensor, ""]


def scaled(K: Float[Tensor, "k k"]) -> Float[Tensor, "k k"]:
    """Return K with a mean diagonal of 1, or all ones if the diagonal is 0 or subnormal."""
    K = torch.where(K.diagonal().mean() < torch.finfo(K.dtype).tiny, 1.0, K)
    return K / K.diagonal().mean()


def entropy(K: Float[Tensor, "k k"]) -> Value:
    """Return the von Neumann entropy of K / tr K, divided by log k: 0 for constant K, 1 for the identity."""
    K = scaled(K) / len(K)
    if not K.isfinite().all():  # eigvalsh would raise an error
        return K.sum()
    p = torch.linalg.eigvalsh(K).clamp_min(torch.finfo(K.dtype).tiny)
    value: Value = -(p * p.log()).sum() / math.log(len(K))
    return value


def distance(K: Float[Tensor, "k k"], other: Float[Tensor, "k k"]) -> Value:
    """Return the Frobenius norm of ``scaled(K) - other``, divided by the norm of identity minus all ones."""
    k = len(K)
    value: Value = torch.linalg.vector_norm(scaled(K) - other) / math.sqrt(k * (k - 1))
    return value


def distance_identity(K: Float[Tensor, "k k"]) -> Value:
    """Return the distance of K from the identity, which is 1 for the matrix of ones."""
    return distance(K, torch.eye(len(K), dtype=K.dtype, device=K.device))


def distance_ones(K: Float[Tensor, "k k"]) -> Value:
    """Return the distance of K from the matrix of ones, which is 1 for the identity."""
    return distance(K, torch.ones_like(K))


PENALTIES: dict[str, Callable[[Float[Tensor, "k k"]], Value]] = {
    "entropy": lambda K: (2 * entropy(K) - 1) ** 2,
    "identity": lambda K: (1 - distance_identity(K)) ** 2,
    "ones": lambda K: (1 - distance_ones(K)).clamp_min(0) ** 2,  # the distance may exceed 1
}
"""Penalties as functions of K_A, from 0 (best) to 1 (worst)."""


def l1(theta: Sequence[Tensor]) -> Value:
    """Return the sum of the absolute values of theta."""
    return torch.stack([p.abs().sum() for p in theta]).sum()


@dataclass(frozen=True, config=STRICT)
class Penalties:
    """The weight of each term in the objective for theta; see ``PENALTIES`` and ``l1``."""

    entropy: NonNegative = 0.0
    identity: NonNegative = 0.0
    ones: NonNegative = 0.0
    l1: NonNegative = 0.0

    def __bool__(self) -> bool:
        return self != Penalties()

    @property
    def pairwise_term(self) -> str | None:
        """The name of a selected term that requires at least two samples, or None."""
        return next((name for name in PENALTIES if getattr(self, name)), None)

    def added_to(self, objective: Objective, x_A: Batch) -> Objective:
        """Return the objective plus the weighted terms on the batch x_A."""

        def penalised(F: Training, K: Kernel) -> Value:
            value = objective(F, K)
            if self.pairwise_term:
                z = F(x_A)
                K_A = K.unbiased(z, z)
                for name, term in PENALTIES.items():
                    if weight := getattr(self, name):
                        value = value + weight * term(K_A)
            return value + self.l1 * l1(F.F.parameters) if self.l1 else value

        return penalised
