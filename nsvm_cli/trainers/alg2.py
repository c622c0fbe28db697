"""Algorithm 2: support vectors follow theta."""

from __future__ import annotations

import pydantic
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from nsvm_cli.features import Theta
from nsvm_cli.model import Expansion
from nsvm_cli.registry import STRICT, Positive
from nsvm_cli.trainers.base import Problem, SampleState, Steps, Trainer, coefficients, expansion


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Alg2(Trainer[SampleState]):
    """Descent in f, then in theta, then an approximate projection of f (paper, Algorithm 2)."""

    steps: Steps
    lam: Positive = 1e-4

    @property
    def total(self) -> int:
        return self.steps

    def start(self, problem: Problem, F: Theta) -> SampleState:
        sampler = problem.sampler()
        i_1 = sampler(1)
        return SampleState(F=F, sampler=sampler, t=1, coefficients=coefficients(problem, i_1, 1.0))

    def step(self, problem: Problem, state: SampleState) -> None:
        K, F, x, y, lam = problem.K, state.F, problem.x, problem.y, self.lam
        alpha, j = state.coefficients.alpha, state.coefficients.support
        t = state.t + 1
        i = state.sampler(t)
        ay = alpha[j] * y[j]
        rows, at_i = with_sample(j, i)

        def weighted_kernel(z: Float[Tensor, "r n"]) -> Float[Tensor, " 1"]:
            """sum_j alpha_j y_j K(z_j, z_i)"""
            return ay @ K(z[: len(j)], z[at_i])

        g = weighted_kernel(F(x[rows])) / (lam * (t - 1))
        if y[i] * g < 1:
            state.objective = F.descend(
                lambda F: (-y[i] / (lam * (t - 1)) * weighted_kernel(F(x[rows]))).sum()
            )
            state.coefficients.add(i, 1.0)
            state.violations += 1
        state.t, state.g = t, g

    def finish(self, problem: Problem, state: SampleState) -> Expansion:
        return expansion(problem, state, self.lam)


def with_sample(
    j: Int64[Tensor, " s"], i: Int64[Tensor, " 1"]
) -> tuple[Int64[Tensor, " r"], Int64[Tensor, " 1"]]:
    """The indices j followed by i, and where i is: a sample that is already in j goes through F once."""
    at_i = (j == i).nonzero().squeeze(1)
    if len(at_i):
        return j, at_i
    return torch.cat([j, i]), torch.tensor([len(j)], device=j.device)
