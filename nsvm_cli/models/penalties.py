"""Remedies for overfitting (paper, Section 6): terms that can be added to any objective for theta.

Most terms are functions of the kernel matrix K_A of a batch, without a bias. If K_A is near the identity, any
labels fit. If K_A is near the matrix of ones, nothing can be learnt.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from nsvm_cli.config.registry import NonNegative, Registry, entry_of, shown
from nsvm_cli.errors import InputError
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
    return -(p * p.log()).sum() / math.log(len(K))


def distance(K: Float[Tensor, "k k"], other: Float[Tensor, "k k"]) -> Value:
    """Return ``||scaled(K) - other|| / ||I - J||`` in the Frobenius norm, where all entries of J are 1."""
    k = len(K)
    return torch.linalg.vector_norm(scaled(K) - other) / math.sqrt(k * (k - 1))


def distance_identity(K: Float[Tensor, "k k"]) -> Value:
    """Return the distance of K from the identity, which is 1 for the matrix of ones."""
    return distance(K, torch.eye(len(K), dtype=K.dtype, device=K.device))


def distance_ones(K: Float[Tensor, "k k"]) -> Value:
    """Return the distance of K from the matrix of ones, which is 1 for the identity."""
    return distance(K, torch.ones_like(K))


def l1(theta: Sequence[Tensor]) -> Value:
    """Return the sum of the absolute values of theta."""
    return torch.stack([p.abs().sum() for p in theta]).sum()


PENALTIES: Registry[Callable[..., Value]] = Registry("penalties", object)
PENALTIES |= {
    "entropy": lambda K: (2 * entropy(K) - 1) ** 2,
    "identity": lambda K: (1 - distance_identity(K)) ** 2,
    "ones": lambda K: (1 - distance_ones(K)).clamp_min(0) ** 2,  # the distance may exceed 1
    "l1": l1,
}
"""Functions of K_A or, if their parameter is called ``theta``, of the list of the trainable tensors.

The values of ``entropy``, ``identity`` and ``ones`` are from 0 (best) to 1 (worst).
"""


Weights = dict[
    Annotated[str, entry_of(PENALTIES)], Annotated[NonNegative, Field(strict=True, allow_inf_nan=False)]
]


def with_weight(penalties: Weights) -> dict[str, float]:
    """Return the penalties whose weight is not 0, in the order of ``PENALTIES``."""
    return {name: penalties[name] for name in PENALTIES if penalties.get(name)}


@functools.cache
def _of_theta(term: Callable[..., Value]) -> bool:
    return "theta" in inspect.signature(term).parameters


def of_pairs(penalties: Mapping[str, float]) -> str | None:
    """Return the name of a penalty that requires at least two samples, or None."""
    return next((name for name in penalties if not _of_theta(PENALTIES[name])), None)


def penalised(objective: Objective, penalties: Mapping[str, float], x_A: Batch) -> Objective:
    """Return the objective plus the weighted penalties on the batch x_A."""

    def total(F: Training, K: Kernel) -> Value:
        value, theta = objective(F, K), F.F.parameters
        if of_pairs(penalties):
            z = F(x_A)
            K_A = K.unbiased(z, z)
        for name, weight in penalties.items():
            term = PENALTIES[name](theta if _of_theta(PENALTIES[name]) else K_A)
            if (got := getattr(term, "shape", term)) != ():
                raise InputError(f"penalties.{name}: expected a tensor of shape (), got {shown(got)}")
            if value.requires_grad and not term.requires_grad:
                advice = "compute it with torch, without detach() or item()"
                raise InputError(f"penalties.{name} does not depend on theta: {advice}")
            value = value + weight * term
        return value

    return total
