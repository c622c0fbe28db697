"""Algorithm 1: support vectors keep the features that they had when they were added."""

from __future__ import annotations

from typing import Annotated

import pydantic
import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from nsvm_cli.config.registry import STRICT, Count, Positive, entry_of
from nsvm_cli.models.feature_map import FeatureMap, Training
from nsvm_cli.models.kernels import Kernel
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.trainers.base import BatchSize, BatchTrainer, Problem
from nsvm_cli.trainers.budget import MAINTENANCE, NO_SAMPLE
from nsvm_cli.trainers.terms import Alg1State, Rows


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Alg1(BatchTrainer[Alg1State]):
    """Gradient descent in f and theta at once (paper, Algorithm 1).

    The paper's alpha_s y_i_s is alpha_s here. A mini-batch of k samples adds a term of 1/k for each
    violation, and theta descends on their mean.

    After every ``refresh_every`` moves of theta, the stored evaluations are those of the new theta: with 1, f
    is that of Algorithm 2. At most ``budget`` terms are kept, by ``maintenance``.
    """

    steps: Count
    lam: Positive = 1e-4
    batch_size: BatchSize | None = None
    refresh_every: PositiveInt | None = None
    budget: Annotated[int, Field(ge=2)] | None = None
    maintenance: Annotated[str, entry_of(MAINTENANCE)] = "merging"

    def start(self, problem: Problem, F: FeatureMap) -> Alg1State:
        sampler = problem.sampler(self.k)
        x_1, _ = problem[sampler(1)]
        z_1 = F(x_1)
        alpha_1 = problem.first(x_1.i, z_1, self.lam).to(problem.y)
        i_1 = torch.tensor(x_1.i, device=z_1.device)
        state = Alg1State(F=F, sampler=sampler, t=1, i=Rows(i_1), z=Rows(z_1), alpha=Rows(alpha_1))
        state.reduce(problem.K, self.budget, self.maintenance)
        return state

    def step(self, problem: Problem, state: Alg1State) -> None:
        K, F, lam, t = problem.K, state.F, self.lam, state.t + 1
        z_s, alpha_s = state.z.tensor, state.alpha.tensor
        x_t, _ = problem[state.sampler(t)]  # choose i_t
        z_t = F(x_t)
        g_t = K(z_t, z_s) @ alpha_s / (lam * (t - 1))
        v, alpha_v = self.compare(problem, state, x_t.i, g_t, z_t)  # if y_i_t g_t < 1
        if len(v):
            x_v = x_t[v]

            def objective(F: Training, K: Kernel) -> Tensor:
                return -(alpha_v * (K(F(x_v), z_s) @ alpha_s)).sum() / (lam * (t - 1))

            self.descend(problem, state, objective)
            state.add(x_v.i, z_t[v], alpha_v)
            if self.refresh_every and F.theta_steps % self.refresh_every == 0:
                state.refresh(problem)
            state.reduce(K, self.budget, self.maintenance)
        state.t = t

    def finish(self, problem: Problem, state: Alg1State) -> Expansion:
        i, z, alpha = state.i.tensor, state.z.tensor, state.alpha.tensor
        of_samples = None if (i == NO_SAMPLE).any() else i
        return Expansion(z, alpha, self.lam * state.t, i=of_samples).without_zeros()
