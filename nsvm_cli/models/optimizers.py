"""How theta moves: gradient descent with what the paper leaves open (Section 4).

``progress`` is the share of the steps that come before the present one: (t - 1) / T, from 0 to below 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY
from typing import Annotated, Any, Protocol, runtime_checkable

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

# The functions behind torch's optimizer classes. The classes import the compiler: a second at every start.
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from nsvm_cli.config.registry import STRICT, Fraction, NonNegative, build, entry_of
from nsvm_cli.storage.state_dict import StateDict, expect_keys, loaded_like


@runtime_checkable
class Optimizer(Protocol):
    """Moves theta, and remembers what its rule remembers."""

    def step(self, gradients: Sequence[Tensor], progress: float) -> None:
        """One step, given the gradient of each parameter."""

    def state_dict(self) -> StateDict:
        """What it remembers."""

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Remembers what was saved, for the same parameters; a ValueError if these are others."""


@runtime_checkable
class OptimizerConfig(Protocol):
    """Settings of a rule for the descent of given parameters."""

    def __call__(self, parameters: Sequence[Tensor]) -> Optimizer: ...


def _laid_out_like(parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> list[Tensor]:
    """The gradients with the strides of their parameters, which the fused functions take for granted."""
    return [
        gradient if gradient.stride() == p.stride() else torch.empty_like(p).copy_(gradient)
        for p, gradient in zip(parameters, gradients, strict=True)
    ]


def _by_number(tensors: Sequence[Tensor | None]) -> StateDict:
    return {str(n): tensor for n, tensor in enumerate(tensors)}


def _loaded(like: Sequence[Tensor], saved: Mapping[str, Any]) -> list[Tensor]:
    """The saved tensors, one for each of these."""
    expect_keys(saved, _by_number(like))
    return [loaded_like(now, saved[str(n)], str(n)) for n, now in enumerate(like)]


SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,
    "linear": lambda progress: 1.0 - progress,
    "cosine": lambda progress: (1.0 + math.cos(math.pi * progress)) / 2,
}
"""What the learning rate is multiplied with in the course of a run."""


@dataclass(frozen=True, config=STRICT)
class Rate:
    """The learning rate: ``lr`` times the schedule, after a rise from 0 over the first ``warmup`` of a run.

    ``warmup=1`` rises to the end: in Algorithms 1 and 2 it outweighs the factor 1/(t-1) of the objective.
    """

    lr: NonNegative
    _: KW_ONLY
    schedule: Annotated[str, entry_of(SCHEDULES)] = "constant"
    warmup: Annotated[float, Field(ge=0, le=1)] = 0.0

    def rate(self, progress: float) -> float:
        """The learning rate at this point of the run."""
        rise = min(1.0, progress / self.warmup) if self.warmup else 1.0
        return self.lr * rise * SCHEDULES[self.schedule](progress)


@dataclass(frozen=True, config=STRICT)
class SGD(Rate):
    """Gradient descent with momentum and L2 regularisation, as in the paper's experiments."""

    momentum: Fraction = 0.0
    weight_decay: NonNegative = 0.0

    def __call__(self, parameters: Sequence[Tensor]) -> Optimizer:
        return _SGDOptimizer(self, parameters)


class _SGDOptimizer:
    def __init__(self, settings: SGD, parameters: Sequence[Tensor]) -> None:
        self.settings, self.parameters = settings, list(parameters)
        self.momenta: list[Tensor | None] = [None] * len(parameters)

    def state_dict(self) -> StateDict:
        return {"momenta": _by_number(self.momenta)}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        expect_keys(saved, ["momenta"])
        expect_keys(saved["momenta"], _by_number(self.parameters))
        if any(momentum is not None for momentum in saved["momenta"].values()):  # it has moved
            self.momenta = [*_loaded(self.parameters, saved["momenta"])]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], progress: float) -> None:
        sgd(
            self.parameters,
            _laid_out_like(self.parameters, gradients),
            self.momenta,
            fused=True,
            lr=self.settings.rate(progress),
            momentum=self.settings.momentum,
            weight_decay=self.settings.weight_decay,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )


@dataclass(frozen=True, config=STRICT)
class Adam(Rate):
    """Adam with L2 regularisation."""

    lr: NonNegative = 1e-3
    beta1: Fraction = 0.9
    beta2: Fraction = 0.999
    weight_decay: NonNegative = 0.0

    def __call__(self, parameters: Sequence[Tensor]) -> Optimizer:
        return _AdamOptimizer(self, parameters)


class _AdamOptimizer:
    def __init__(self, settings: Adam, parameters: Sequence[Tensor]) -> None:
        self.settings, self.parameters = settings, list(parameters)
        self.means, self.squares = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
        self.steps = [torch.zeros((), device=p.device) for p in parameters]

    def state_dict(self) -> StateDict:
        return {name: _by_number(getattr(self, name)) for name in ("means", "squares", "steps")}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        expect_keys(saved, ["means", "squares", "steps"])
        for name in ("means", "squares", "steps"):
            setattr(self, name, _loaded(getattr(self, name), saved[name]))

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], progress: float) -> None:
        adam(
            self.parameters,
            _laid_out_like(self.parameters, gradients),
            self.means,
            self.squares,
            [],
            self.steps,
            fused=True,
            lr=self.settings.rate(progress),
            beta1=self.settings.beta1,
            beta2=self.settings.beta2,
            weight_decay=self.settings.weight_decay,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )


OPTIMIZERS: dict[str, type[OptimizerConfig]] = {"sgd": SGD, "adam": Adam}


def build_optimizer(settings: Mapping[str, Any]) -> OptimizerConfig:
    """The optimizer that an ``optimizer:`` section names."""
    return build(OPTIMIZERS, "optimizer", settings)
