"""Optimizers: the gradient descent in theta, whose details the paper leaves open (Section 4).

``progress`` is the fraction of steps before the current one: (t - 1) / T, in [0, 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY
from typing import Annotated, Any, ClassVar, Protocol, runtime_checkable

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

# torch's optimizer classes import the compiler, which takes a second; the functions behind them do not.
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from nsvm_cli.config.registry import STRICT, Fraction, NonNegative, build, entry_of
from nsvm_cli.storage.state_dict import StateDict, expect_keys, loaded_like


@runtime_checkable
class Optimizer(Protocol):
    """An update rule for theta, with its state."""

    def step(self, gradients: Sequence[Tensor], progress: float) -> None:
        """Update each parameter, given the gradient of each."""

    def state_dict(self) -> StateDict:
        """Return the state, such as momenta."""

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore a saved state.

        Raises:
            ValueError: it belongs to other parameters or to another rule.
        """


@runtime_checkable
class OptimizerConfig(Protocol):
    """The settings of an optimizer; calling them with parameters gives the optimizer."""

    def __call__(self, parameters: Sequence[Tensor]) -> Optimizer: ...


def _laid_out_like(parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> list[Tensor]:
    """Return the gradients with the strides of their parameters, as the fused functions require."""
    return [
        gradient if gradient.stride() == p.stride() else torch.empty_like(p).copy_(gradient)
        for p, gradient in zip(parameters, gradients, strict=True)
    ]


def _by_number(tensors: Sequence[Tensor | None]) -> StateDict:
    return {str(n): tensor for n, tensor in enumerate(tensors)}


def _loaded(like: Sequence[Tensor], saved: Mapping[str, Any]) -> list[Tensor]:
    """Return the saved tensors, each checked against its counterpart in ``like``."""
    expect_keys(saved, _by_number(like))
    return [loaded_like(tensor, saved[str(n)], str(n)) for n, tensor in enumerate(like)]


SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,
    "linear": lambda progress: 1.0 - progress,
    "cosine": lambda progress: (1.0 + math.cos(math.pi * progress)) / 2,
}
"""The factor of the learning rate as a function of ``progress``."""


@dataclass(frozen=True, config=STRICT)
class Rate:
    """The learning rate: ``lr`` times the schedule, with a linear warmup from 0.

    ``warmup`` is the fraction of the run that the warmup takes. With ``warmup=1`` the rate rises to the end,
    which in Algorithms 1 and 2 compensates the factor 1/(t-1) of the objective.
    """

    lr: NonNegative
    _: KW_ONLY
    schedule: Annotated[str, entry_of(SCHEDULES)] = "constant"
    warmup: Annotated[float, Field(ge=0, le=1)] = 0.0

    def rate(self, progress: float) -> float:
        """Return the learning rate at this point of the run."""
        rise = min(1.0, progress / self.warmup) if self.warmup else 1.0
        return self.lr * rise * SCHEDULES[self.schedule](progress)


@dataclass(frozen=True, config=STRICT)
class SGD(Rate):
    """Gradient descent with momentum and L2 regularisation, as in the paper's experiments."""

    compiled: ClassVar[bool] = True
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
        if any(momentum is not None for momentum in saved["momenta"].values()):  # at least one step was taken
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

    compiled: ClassVar[bool] = True
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
    """Return the optimizer settings that an ``optimizer:`` section holds.

    Raises:
        InputError: the optimizer or one of its settings is wrong.
    """
    return build(OPTIMIZERS, "optimizer", settings)
