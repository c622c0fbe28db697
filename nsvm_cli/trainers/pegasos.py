"""Algorithm 0: kernelized Pegasos, on features that stay fixed."""

from __future__ import annotations

from dataclasses import dataclass

import pydantic
from jaxtyping import Float
from torch import Tensor

from nsvm_cli.features import Theta
from nsvm_cli.model import Expansion
from nsvm_cli.registry import STRICT, Positive
from nsvm_cli.trainers.base import Problem, SampleState, Steps, Trainer, coefficients


@dataclass(kw_only=True)
class PegasosState(SampleState):
    """``z`` holds F_theta(x_j) for every j: theta never moves."""

    z: Float[Tensor, "m n"]


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Pegasos(Trainer[PegasosState]):
    """Kernelized Pegasos (paper, Algorithm 0) on z_j = F_theta(x_j), theta fixed.

    With the identity for F this is the kernel SVM on the raw data; with the network that Part 1 of
    Algorithm 4 has trained it is that algorithm's Part 2.
    """

    steps: Steps
    lam: Positive = 1e-4

    @property
    def total(self) -> int:
        return self.steps

    def start(self, problem: Problem, F: Theta) -> PegasosState:
        sampler = problem.sampler()
        i_1 = sampler(1)
        alpha = coefficients(problem, i_1, 1.0)
        return PegasosState(F=F, sampler=sampler, t=1, coefficients=alpha, z=F(problem.x))

    def step(self, problem: Problem, state: PegasosState) -> None:
        K, y, z, lam = problem.K, problem.y, state.z, self.lam
        alpha, j = state.coefficients.alpha, state.coefficients.support
        t = state.t + 1
        i = state.sampler(t)
        g = K(z[i], z[j]) @ (alpha[j] * y[j]) / (lam * (t - 1))
        if y[i] * g < 1:
            state.coefficients.add(i, 1.0)
            state.violations += 1
        state.t, state.g = t, g

    def finish(self, problem: Problem, state: PegasosState) -> Expansion:
        j = state.coefficients.support
        return Expansion(state.z[j], state.coefficients.alpha[j], problem.y[j], self.lam * state.t)
