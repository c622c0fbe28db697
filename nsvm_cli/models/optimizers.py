"""Optimizers for theta. The paper leaves the details of gradient descent open (Section 4)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, fields
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

# torch's optimizer classes import the compiler, which takes a second; the functions behind them do not.
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from nsvm_cli.config.registry import (
    STRICT,
    Fraction,
    NonNegative,
    Positive,
    Registry,
    Text,
    construct,
    entry_of,
)
from nsvm_cli.config.settings import is_within
from nsvm_cli.errors import InputError, did_you_mean

SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,
    "linear": lambda progress: 1.0 - progress,
    "cosine": lambda progress: (1.0 + math.cos(math.pi * progress)) / 2,
}
"""Functions of the progress (t - 1) / T, in [0, 1), that return the factor of the learning rate."""


StateTensors = Mapping[str, list[Tensor]]


@dataclass(frozen=True, config=STRICT)
class Rule(ABC):
    """The settings of an optimizer.

    Attributes:
        lr: the learning rate, which is multiplied by ``schedule``.
        warmup: the fraction of the run during which the rate rises linearly from 0. With ``warmup=1``, the
            rise compensates for the factor 1/(t-1) of the objective of Algorithms 1 and 2.
        groups: settings for parameters by prefixes of their names. The last matching prefix applies.
        clip: the maximum norm of the gradient of all parameters together. A longer gradient is shortened to
            this norm. None leaves gradients unchanged.
    """

    state: ClassVar[Mapping[str, Callable[[Tensor], Tensor]]]
    """Names of the tensors that the rule keeps for each parameter, and functions that initialise them."""

    lr: NonNegative
    _: KW_ONLY
    schedule: Annotated[str, entry_of(SCHEDULES)] = "constant"
    warmup: Annotated[float, Field(ge=0, le=1)] = 0.0
    groups: dict[Text, dict[str, Any]] | None = None
    clip: Positive | None = None

    def rate(self, progress: float) -> float:
        rise = min(1.0, progress / self.warmup) if self.warmup else 1.0
        factor = SCHEDULES[self.schedule](progress)
        if not 0 <= factor < math.inf:
            raise InputError(f"optimizer.schedule={self.schedule}: expected a factor from 0, got {factor}")
        return self.lr * rise * factor

    def grouped(self, names: Sequence[str]) -> list[tuple[Rule, list[int]]]:
        """Return the rule of each group in ``groups``, and the indices of its parameters in ``names``.

        An InputError is raised if a prefix matches no name, or a setting is invalid.
        """
        settings = {field.name: getattr(self, field.name) for field in fields(self)} | {"groups": None}
        groups: list[tuple[Rule, list[int]]] = [(self, [*range(len(names))])]
        for prefix, changes in (self.groups or {}).items():
            key = f"optimizer.groups.{prefix}"
            expect_names(key, [prefix], names)
            if "clip" in changes:
                raise InputError(f"{key}.clip: the gradient of all parameters is clipped; set optimizer.clip")
            members = [n for n, name in enumerate(names) if is_within(name, [prefix])]
            groups = [(rule, [n for n in indices if n not in members]) for rule, indices in groups]
            groups.append((construct(type(self), key, settings | changes), members))
        return groups

    @abstractmethod
    def update(self, theta: list[Tensor], grad_theta: list[Tensor], state: StateTensors, lr: float) -> None:
        """Take a step in theta with the learning rate ``lr``."""


class Optimizer:
    """The rule ``settings``, which may be replaced between steps, its parameters and their tensors."""

    def __init__(self, settings: Rule, theta: Mapping[str, Tensor]) -> None:
        self.settings, self.names, self.parameters = settings, [*theta], [*theta.values()]
        self.state: dict[str, list[Tensor]] = {}
        if theta:
            self.state = {name: [*map(like, self.parameters)] for name, like in settings.state.items()}
            settings.grouped(self.names)  # which raises an InputError

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], progress: float) -> None:
        """Clip the gradients like torch, and update the parameters, where ``progress`` is (t - 1) / T."""
        if clip := self.settings.clip:
            norm = torch.stack([*map(torch.linalg.vector_norm, gradients)]).norm()
            gradients = [gradient * (clip / (norm + 1e-6)).clamp(max=1) for gradient in gradients]
        laid_out = [  # with the strides of the parameters, as the fused functions require
            gradient if gradient.stride() == p.stride() else torch.empty_like(p).copy_(gradient)
            for p, gradient in zip(self.parameters, gradients, strict=True)
        ]
        for rule, members in self.settings.grouped(self.names):
            theta, grad_theta = ([tensors[n] for n in members] for tensors in (self.parameters, laid_out))
            state = {name: [tensors[n] for n in members] for name, tensors in self.state.items()}
            if members:
                rule.update(theta, grad_theta, state, rule.rate(progress))


def expect_names(key: str, prefixes: Sequence[str], names: Sequence[str]) -> None:
    """Raise an InputError if a prefix in a setting matches no name."""
    for prefix in prefixes:
        if not any(is_within(name, [prefix]) for name in names):
            modules = {".".join(name.split(".")[:2]) for name in names}
            raise InputError(
                f"{key}: no parameter or module has the name {prefix!r}; {did_you_mean(prefix, modules)}"
            )


@dataclass(frozen=True, config=STRICT)
class SGD(Rule):
    """Gradient descent with momentum and L2 regularisation, which the paper's experiments use."""

    state: ClassVar = {"momenta": torch.zeros_like}

    momentum: Fraction = 0.0
    weight_decay: NonNegative = 0.0

    def update(self, theta: list[Tensor], grad_theta: list[Tensor], state: StateTensors, lr: float) -> None:
        sgd(
            theta,
            grad_theta,
            state["momenta"],  # type: ignore[arg-type]  # a list of optional tensors
            fused=True,
            lr=lr,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )


@dataclass(frozen=True, config=STRICT)
class Adam(Rule):
    """Adam with L2 regularisation."""

    state: ClassVar = {
        "means": torch.zeros_like,
        "squares": torch.zeros_like,
        "steps": lambda p: torch.zeros((), device=p.device),
    }

    lr: NonNegative = 1e-3
    beta1: Fraction = 0.9
    beta2: Fraction = 0.999
    weight_decay: NonNegative = 0.0

    def update(self, theta: list[Tensor], grad_theta: list[Tensor], state: StateTensors, lr: float) -> None:
        adam(
            theta,
            grad_theta,
            state["means"],
            state["squares"],
            [],
            state["steps"],
            fused=True,
            lr=lr,
            beta1=self.beta1,
            beta2=self.beta2,
            weight_decay=self.weight_decay,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )


OPTIMIZERS: Registry[type[Rule]] = Registry("optimizer", Rule)
OPTIMIZERS |= {"sgd": SGD, "adam": Adam}
