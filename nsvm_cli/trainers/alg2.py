"""Algorithm 2: support vectors follow theta."""

from __future__ import annotations

from dataclasses import dataclass

import pydantic
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from nsvm_cli.features import Theta
from nsvm_cli.model import Expansion
from nsvm_cli.registry import STRICT, Positive
from nsvm_cli.trainers.base import Problem, SampleState, Steps, Trainer, coefficients, expansion


@dataclass(kw_only=True)
class Alg2State(SampleState):
    """``z`` holds F_theta(x_j) for the support, until theta moves; then it is None."""

    z: Float[Tensor, "s n"] | None = None


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Alg2(Trainer[Alg2State]):
    """Descent in f, then in theta, then an approximate projection of f (paper, Algorithm 2)."""

    steps: Steps
    lam: Positive = 1e-4

    @property
    def total(self) -> int:
        return self.steps

    def start(self, problem: Problem, F: Theta) -> Alg2State:
        sampler = problem.sampler()
        i_1 = sampler(1)
        return Alg2State(F=F, sampler=sampler, t=1, coefficients=coefficients(problem, i_1, 1.0))

    def step(self, problem: Problem, state: Alg2State) -> None:
        K, F, x, y, lam = problem.K, state.F, problem.x, problem.y, self.lam
        alpha, j = state.coefficients.alpha, state.coefficients.support
        t = state.t + 1
        i = state.sampler(t)
        ay = alpha[j] * y[j]
        if state.z is None:
            state.z = F(x[j])
        g = ay @ K(state.z, F(x[i])) / (lam * (t - 1))
        if y[i] * g < 1:
            rows, at_i = with_sample(j, i)

            def objective(F: nn.Module) -> Tensor:
                z = F(x[rows])
                return (-y[i] / (lam * (t - 1)) * (ay @ K(z[: len(j)], z[at_i]))).sum()

            state.objective = F.descend(objective)
            state.coefficients.add(i, 1.0)
            state.violations += 1
            state.z = None
        state.t, state.g = t, g

    def finish(self, problem: Problem, state: Alg2State) -> Expansion:
        return expansion(problem, state, self.lam)


def with_sample(
    j: Int64[Tensor, " s"], i: Int64[Tensor, " 1"]
) -> tuple[Int64[Tensor, " r"], Int64[Tensor, " 1"]]:
    """The indices j followed by i, and where i is: a sample that is already in j goes through F once.

    So F_theta(x_i) is one value, under dropout too.
    """
    at_i = (j == i).nonzero().squeeze(1)
    if len(at_i):
        return j, at_i
    return torch.cat([j, i]), torch.tensor([len(j)], device=j.device)
