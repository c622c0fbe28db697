"""Algorithm 3: mini-batches, and an objective made of kernel alignments."""

from __future__ import annotations

import pydantic
import torch
from torch import Tensor, nn

from nsvm_cli.features import Theta
from nsvm_cli.model import Expansion
from nsvm_cli.objectives import alignment, norm_surrogate
from nsvm_cli.registry import STRICT, Positive
from nsvm_cli.trainers.base import (
    BatchSize,
    Problem,
    SampleState,
    Steps,
    Trainer,
    coefficients,
    expansion,
)


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Alg3(Trainer[SampleState]):
    """Batched Pegasos in f, alignment in theta (paper, Algorithm 3). Needs K(a, a) != 0."""

    steps: Steps
    lam: Positive = 1e-4
    mu: Positive = 1.0
    batch_size: BatchSize = 16

    @property
    def total(self) -> int:
        return self.steps

    def start(self, problem: Problem, F: Theta) -> SampleState:
        k = self.batch_size
        sampler = problem.sampler(k)
        A_1 = sampler(1)
        return SampleState(F=F, sampler=sampler, t=1, coefficients=coefficients(problem, A_1, 1 / k))

    def step(self, problem: Problem, state: SampleState) -> None:
        K, F, x, y, lam, mu, k = problem.K, state.F, problem.x, problem.y, self.lam, self.mu, self.batch_size
        alpha, j = state.coefficients.alpha, state.coefficients.support
        t = state.t + 1
        A = state.sampler(t)
        z = F(x[torch.cat([A, j])])
        g = K(z[:k], z[k:]) @ (alpha[j] * y[j]) / (lam * (t - 1))
        violating = A[y[A] * g < 1]
        state.coefficients.add(violating, 1 / k)
        alpha_A, y_A = alpha[A], y[A]

        def objective(F: nn.Module) -> Tensor:
            z = F(x[A])
            K_A = K(z, z)
            return mu * norm_surrogate(K_A, alpha_A, y_A) - alignment(K_A, y_A)

        state.objective = F.descend(objective)
        state.violations += len(violating)
        state.t, state.g = t, g

    def finish(self, problem: Problem, state: SampleState) -> Expansion:
        return expansion(problem, state, self.lam)
