"""Losses of the SVM, whose negative derivatives a step adds to alpha.

Algorithms 0 to 4 take stochastic subgradient steps with rate 1/(lambda t) on lambda/2 ||f||^2 + l(y, f(x))
(paper, Section 3). With f = 1/(lambda t) sum_j alpha_j K(z_j, .) and z_j = F_theta(x_j), a step is

    alpha_i += -dl/df(y_i, f(x_i))

The slopes of squared losses are unbounded, and explicit steps would overshoot while lambda t < K(z_i, z_i).
Squared losses therefore take implicit steps (Kulis and Bartlett 2010, "Implicit online learning"), with the
derivative at f(x_i) plus the value of the new term at x_i. With kappa = K(z_i, z_i)/(lambda t), a step is

    alpha_i += a,  a = -dl/df(y_i, f(x_i) + kappa a) = -dl/df(y_i, f(x_i)) / (1 + kappa l'')

This ignores that the step also multiplies f by 1 - 1/t. Sample weights w_i, with a mean of 1, multiply the
losses. Since all k samples of a batch A move f(x_i) together, the mean weight w_A of the batch enters:

    alpha_i += a/k,  a = -w_i dl/df(y_i, f(x_i)) / (1 + kappa w_A l'')

Steps in theta use the same derivative -a. With K(z_i, z_i) held fixed, they are gradient descent steps on the
Moreau envelope of the loss, min_a l(y_i, f(x_i) + kappa a) + kappa a^2 / 2.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import pydantic
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from nsvm_cli.config.registry import STRICT, NonNegative, Registry, build
from nsvm_cli.errors import InputError
from nsvm_cli.tasks import Task

Numbers: TypeAlias = Any
"""A number or an array. A formula returns the same shape."""

Labels: TypeAlias = Float[np.ndarray, " p"]
Decisions: TypeAlias = Float[np.ndarray, " p *outputs"]


class Formula(ABC):
    """A loss l of one number. To add a loss, register a ``MarginLoss`` or ``ResidualLoss`` in ``LOSSES``."""

    kind: ClassVar[Literal["classification", "regression"]]

    curvature: ClassVar[float] = 0.0
    """l'' for implicit steps, which losses with unbounded slopes require; 0 for all other losses."""

    @abstractmethod
    def slope(self, u: Numbers) -> Numbers:
        """Return the increment in a step: -l'(u) for a margin u, or l'(u) for a residual u."""

    @abstractmethod
    def value(self, u: Tensor) -> Tensor:
        """Return l(u) for margins or residuals."""


class MarginLoss(Formula):
    """A loss l(m) of the margin m = y f(x); see ``Binary``, ``CrammerSinger`` and ``OneVsRest``."""

    kind = "classification"


class ResidualLoss(Formula):
    """A loss l(r) of the residual r = y - f(x)."""

    kind = "regression"


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Hinge(MarginLoss):
    """l(m) = max(0, 1 - m)  (paper, Section 2), with -l'(m) = 1 where m < 1, and 0 where m >= 1."""

    @staticmethod
    def slope(u: Numbers) -> Numbers:  # compiled steps call this function with numbers
        return (u < 1) * 1.0

    def value(self, u: Tensor) -> Tensor:
        return (1 - u).clamp_min(0)


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class SquaredHinge(MarginLoss):
    """l(m) = max(0, 1 - m)^2, with -l'(m) = 2 max(0, 1 - m)."""

    curvature = 2.0

    def slope(self, u: Numbers) -> Numbers:
        return 2 * np.maximum(0, 1 - u)

    def value(self, u: Tensor) -> Tensor:
        return (1 - u).clamp_min(0).square()


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class SmoothedHinge(MarginLoss):
    """l(m) = 0 for m >= 1, (1 - m)^2 / 2 for 0 < m < 1, 1/2 - m for m <= 0  (Rennie and Srebro, 2005)."""

    def slope(self, u: Numbers) -> Numbers:
        return np.clip(1 - u, 0, 1)

    def value(self, u: Tensor) -> Tensor:
        return torch.where(u > 0, (1 - u).clamp_min(0).square() / 2, 0.5 - u)


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Logistic(MarginLoss):
    """l(m) = log(1 + exp(-m)), with -l'(m) = 1 / (1 + exp(m)), which is never 0."""

    def slope(self, u: Numbers) -> Numbers:
        return np.exp(-np.logaddexp(0, u))

    def value(self, u: Tensor) -> Tensor:
        return functional.softplus(-u)


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class EpsilonInsensitive(ResidualLoss):
    """``l(r) = max(0, |r| - epsilon)``, with epsilon in units of the standard deviation of the targets."""

    epsilon: NonNegative = 0.1

    def slope(self, u: Numbers) -> Numbers:
        return np.sign(u) * (np.abs(u) > self.epsilon)

    def value(self, u: Tensor) -> Tensor:
        return (u.abs() - self.epsilon).clamp_min(0)


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Squared(ResidualLoss):
    """l(r) = r^2 / 2, with l'(r) = r."""

    curvature = 1.0

    def slope(self, u: Numbers) -> Numbers:
        return u

    def value(self, u: Tensor) -> Tensor:
        return u.square() / 2


LOSSES: Registry[type[Formula]] = Registry("loss", Formula)
LOSSES |= {
    "hinge": Hinge,
    "squared_hinge": SquaredHinge,
    "smoothed_hinge": SmoothedHinge,
    "logistic": Logistic,
    "epsilon_insensitive": EpsilonInsensitive,
    "squared": Squared,
}

DEFAULTS = {"classification": "hinge", "regression": "epsilon_insensitive"}
"""The default loss of each kind of task."""


@dataclass(frozen=True)
class Loss(ABC):
    """A loss of decision values, with a number for each sample, or for each sample and class."""

    l: Formula  # noqa: E741  # the letter of the formulas

    @property
    def curvature(self) -> float:
        """The curvature of the loss along the direction of a step in f(x_i)."""
        return self.l.curvature

    @abstractmethod
    def increments(self, y: Labels, g: Decisions) -> Decisions:
        """Return the increments of alpha in explicit steps: minus the derivative of l with respect to g."""

    @abstractmethod
    def of(self, y: Tensor, g: Tensor) -> Tensor:
        """Return the loss of each sample, which is differentiable with respect to g."""


def any_output(mask: np.ndarray) -> np.ndarray:
    """Return for each sample whether a mask of shape (p,) or (p, C) is true at any output."""
    return mask if mask.ndim == 1 else np.asarray(mask.any(-1))


class Binary(Loss):
    """The loss l(m) of the margin m = y g, for two classes y = -1, +1. A step adds -l'(m) y_i to alpha_i."""

    def increments(self, y: Labels, g: Decisions) -> Decisions:
        return self.l.slope(y * g) * y

    def of(self, y: Tensor, g: Tensor) -> Tensor:
        return self.l.value(y * g)


class Residual(Loss):
    """The loss l(r) of the residual r = y - g, for real targets y. A step adds l'(r) to alpha_i."""

    def increments(self, y: Labels, g: Decisions) -> Decisions:
        return self.l.slope(y - g)

    def of(self, y: Tensor, g: Tensor) -> Tensor:
        return self.l.value(y - g)


class CrammerSinger(Loss):
    """The loss l(m) of the margin m = g_y - g_q of class y over q, the class with the largest other value.

    A step adds -l'(m) to alpha_i at y and subtracts -l'(m) at q (Shalev-Shwartz et al. 2011, "Pegasos";
    Crammer and Singer 2001). With two classes, the steps equal steps of ``Binary`` with lambda / 2.
    """

    @property
    def curvature(self) -> float:
        return 2 * self.l.curvature  # a step moves both g_y and g_q

    def increments(self, y: Labels, g: Decisions) -> Decisions:
        p, label = np.arange(len(y)), y.astype(np.int64)
        rivals = g.astype(np.float64)
        rivals[p, label] = -np.inf
        rival = rivals.argmax(-1)
        step, slope = np.zeros(g.shape), self.l.slope(g[p, label] - g[p, rival])
        step[p, label], step[p, rival] = slope, -slope
        return step

    def of(self, y: Tensor, g: Tensor) -> Tensor:
        label = functional.one_hot(y.long(), g.shape[-1]).bool()
        rival = g.masked_fill(label, -torch.inf).amax(-1)
        return self.l.value(g[label] - rival)


class OneVsRest(Loss):
    """The sum of l(m_r) over all classes r, with the margin m_r = g_r for r = y, and m_r = -g_r otherwise."""

    def increments(self, y: Labels, g: Decisions) -> Decisions:
        signs = np.where(np.arange(g.shape[-1]) == y[:, None], 1.0, -1.0)
        return self.l.slope(signs * g) * signs

    def of(self, y: Tensor, g: Tensor) -> Tensor:
        signs = 2 * functional.one_hot(y.long(), g.shape[-1]).to(g) - 1
        return self.l.value(signs * g).sum(-1)


MULTICLASS: dict[str, type[Loss]] = {"crammer_singer": CrammerSinger, "one_vs_rest": OneVsRest}


def build_loss(settings: Mapping[str, Any] | None, multiclass: str, task: Task) -> Loss:
    """Return the loss selected in a ``loss:`` section, or the default loss of the task for None.

    An InputError is raised for an invalid setting, or a loss for another kind of task.
    """
    settings = settings or {"name": DEFAULTS[task.kind]}
    formula: Formula = build(LOSSES, "loss", settings)
    if formula.kind != task.kind:
        fitting = ", ".join(name for name, loss in LOSSES.items() if loss.kind == task.kind)
        raise InputError(
            f"loss={settings['name']} requires task={formula.kind}, got task={task.kind}; use one of "
            f"{fitting}"
        )
    if task.kind == "regression":
        return Residual(formula)
    return MULTICLASS[multiclass](formula) if task.outputs else Binary(formula)
