"""How theta moves: gradient descent with what the paper leaves open (Section 4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from pydantic.dataclasses import dataclass
from torch import nn

from nsvm_cli.registry import STRICT, Fraction, NonNegative, build


@runtime_checkable
class Optimizer(Protocol):
    """Settings that make a torch optimizer for given parameters."""

    def __call__(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer: ...


@dataclass(frozen=True, config=STRICT)
class SGD:
    """Gradient descent with momentum and L2 regularisation, as in the paper's experiments."""

    lr: NonNegative
    momentum: Fraction = 0.0
    weight_decay: NonNegative = 0.0

    def __call__(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, self.lr, self.momentum, weight_decay=self.weight_decay, fused=True)


@dataclass(frozen=True, config=STRICT)
class Adam:
    """Adam with L2 regularisation."""

    lr: NonNegative = 1e-3
    beta1: Fraction = 0.9
    beta2: Fraction = 0.999
    weight_decay: NonNegative = 0.0

    def __call__(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(
            parameters,
            self.lr,
            (self.beta1, self.beta2),
            weight_decay=self.weight_decay,
            fused=True,
        )


OPTIMIZERS: dict[str, type[Optimizer]] = {"sgd": SGD, "adam": Adam}


def build_optimizer(settings: Mapping[str, Any]) -> Optimizer:
    """The optimizer that an ``optimizer:`` section names."""
    return build(OPTIMIZERS, "optimizer", settings)
