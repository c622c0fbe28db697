"""How theta moves: gradient descent with what the paper leaves open (Section 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

# The functions behind torch's optimizer classes. The classes import the compiler: a second at every start.
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from nsvm_cli.registry import STRICT, Fraction, NonNegative, build


@runtime_checkable
class Descent(Protocol):
    """Moves theta, and remembers what its rule remembers."""

    def step(self, gradients: Sequence[Tensor]) -> None:
        """One step, given the gradient of each parameter."""


@runtime_checkable
class Optimizer(Protocol):
    """Settings of a rule for the descent of given parameters."""

    def __call__(self, parameters: Sequence[Tensor]) -> Descent: ...


def _laid_out_like(parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> list[Tensor]:
    """The gradients with the strides of their parameters, which the fused functions take for granted."""
    return [
        gradient if gradient.stride() == p.stride() else torch.empty_like(p).copy_(gradient)
        for p, gradient in zip(parameters, gradients, strict=True)
    ]


@dataclass(frozen=True, config=STRICT)
class SGD:
    """Gradient descent with momentum and L2 regularisation, as in the paper's experiments."""

    lr: NonNegative
    momentum: Fraction = 0.0
    weight_decay: NonNegative = 0.0

    def __call__(self, parameters: Sequence[Tensor]) -> Descent:
        return _SGDDescent(self, parameters)


class _SGDDescent:
    def __init__(self, settings: SGD, parameters: Sequence[Tensor]) -> None:
        self.settings, self.parameters = settings, list(parameters)
        self.momenta: list[Tensor | None] = [None] * len(parameters)

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        sgd(
            self.parameters,
            _laid_out_like(self.parameters, gradients),
            self.momenta,
            fused=True,
            lr=self.settings.lr,
            momentum=self.settings.momentum,
            weight_decay=self.settings.weight_decay,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )


@dataclass(frozen=True, config=STRICT)
class Adam:
    """Adam with L2 regularisation."""

    lr: NonNegative = 1e-3
    beta1: Fraction = 0.9
    beta2: Fraction = 0.999
    weight_decay: NonNegative = 0.0

    def __call__(self, parameters: Sequence[Tensor]) -> Descent:
        return _AdamDescent(self, parameters)


class _AdamDescent:
    def __init__(self, settings: Adam, parameters: Sequence[Tensor]) -> None:
        self.settings, self.parameters = settings, list(parameters)
        self.means, self.squares = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
        self.steps = [torch.zeros((), device=p.device) for p in parameters]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        adam(
            self.parameters,
            _laid_out_like(self.parameters, gradients),
            self.means,
            self.squares,
            [],
            self.steps,
            fused=True,
            lr=self.settings.lr,
            beta1=self.settings.beta1,
            beta2=self.settings.beta2,
            weight_decay=self.settings.weight_decay,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )


OPTIMIZERS: dict[str, type[Optimizer]] = {"sgd": SGD, "adam": Adam}


def build_optimizer(settings: Mapping[str, Any]) -> Optimizer:
    """The optimizer that an ``optimizer:`` section names."""
    return build(OPTIMIZERS, "optimizer", settings)
