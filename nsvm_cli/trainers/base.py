"""What a trainer is: frozen hyperparameters, and an explicit state that its steps read and write."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Generic, TypeVar

import torch
from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor

from nsvm_cli.errors import InputError
from nsvm_cli.features import Theta
from nsvm_cli.kernels import Kernel
from nsvm_cli.model import Expansion
from nsvm_cli.randomness import Sampler

Steps = Annotated[int, Field(ge=1)]
BatchSize = Annotated[int, Field(ge=2)]


@dataclass(frozen=True)
class Problem:
    """What every algorithm is given (paper, Section 4): the data set D, the kernel K; and the seed."""

    x: Float[Tensor, "m ..."]
    y: Float[Tensor, " m"]
    K: Kernel
    seed: int

    def sampler(self, k: int = 1) -> Sampler:
        """Draws i_t, or A_t of size k.

        Raises:
            InputError: k > m.
        """
        m = len(self.y)
        if k > m:
            raise InputError(f"algorithm.batch_size={k}: expected at most the {m} training samples")
        return Sampler(self.seed, m, k, self.y.device)


@dataclass(kw_only=True)
class State:
    """Everything that a step reads or writes beside the problem.

    ``t`` counts the steps done, as the paper does: the initialisation of Algorithms 0 to 3 is step 1.
    ``g`` is the latest decision value, ``objective`` the value before the latest move of theta,
    ``violations`` the number of samples that were found with a margin below 1.
    """

    F: Theta
    sampler: Sampler
    t: int
    violations: int = 0
    g: Tensor | None = None
    objective: Tensor | None = None

    @property
    def support_vectors(self) -> int:
        """The number of non-zero coefficients so far."""
        raise NotImplementedError


@dataclass
class Coefficients:
    """alpha in R^m, of which only the non-zero part is ever computed with.

    ``support`` holds the indices j with alpha_j > 0, in the order in which they joined.
    """

    alpha: Float[Tensor, " m"]
    support: Int64[Tensor, " s"] = field(init=False)

    def __post_init__(self) -> None:
        self.support = self.alpha.nonzero().squeeze(1)

    def add(self, i: Int64[Tensor, " k"], amount: float) -> None:
        """alpha_j += amount for every j in i (no repeats)."""
        joining = i[self.alpha[i] == 0]
        self.alpha[i] += amount
        if len(joining):
            self.support = torch.cat([self.support, joining])


def coefficients(problem: Problem, i: Int64[Tensor, " k"], amount: float) -> Coefficients:
    """alpha^(2): ``amount`` on the first samples drawn, 0 elsewhere."""
    alpha = torch.zeros_like(problem.y)
    alpha[i] = amount
    return Coefficients(alpha)


S = TypeVar("S", bound=State)


class Trainer(Generic[S]):
    """An algorithm. One of your own derives from this and is listed in ``TRAINERS``.

    Its constructor takes what its YAML file holds. ``nsvm_cli.loop.run`` is the only thing that calls
    ``start``, then ``step`` until ``total`` steps are done, then ``finish``.
    """

    @property
    def total(self) -> int:
        """The value of ``state.t`` at which training ends."""
        raise NotImplementedError

    def start(self, problem: Problem, F: Theta) -> S:
        """The state before the first pass of the loop."""
        raise NotImplementedError

    def step(self, problem: Problem, state: S) -> None:
        """One pass of the loop: step ``state.t + 1``."""
        raise NotImplementedError

    def finish(self, problem: Problem, state: S) -> Expansion:
        """What g is made of after ``state.t`` steps; leaves the state as it was."""
        raise NotImplementedError


@dataclass(kw_only=True)
class SampleState(State):
    """The state of an algorithm whose alpha has one entry for each training sample."""

    coefficients: Coefficients

    @property
    def support_vectors(self) -> int:
        return len(self.coefficients.support)


def expansion(problem: Problem, state: SampleState, lam: float) -> Expansion:
    """g(x) = 1/(lambda t) sum_j alpha_j y_j K(F_theta(x_j), F_theta(x)), its non-zero terms."""
    alpha, j = state.coefficients.alpha, state.coefficients.support
    return Expansion(state.F(problem.x[j]), alpha[j], problem.y[j], lam * state.t)
