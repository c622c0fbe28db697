"""Algorithm 2: the features of support vectors change with theta."""

from __future__ import annotations

from typing import Literal

import pydantic
from torch import Tensor

from nsvm_cli.config.registry import STRICT, Count, Positive
from nsvm_cli.models.feature_map import Training
from nsvm_cli.models.kernels import Kernel
from nsvm_cli.trainers.base import BatchSize, Problem
from nsvm_cli.trainers.coefficients import SampleState, SampleTrainer


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Alg2(SampleTrainer):
    """Descent in f, then in theta, then an approximate projection of f (paper, Algorithm 2).

    The paper's alpha_j y_j is alpha_j here. Features of support vectors are computed with the current
    theta. The gradient with respect to theta includes these features and the features of x_i_t or, with
    ``objective=alg1``, only the features of x_i_t.
    A mini-batch of k samples adds 1/k to alpha for each violation, and the objective of the step in theta is
    the mean of the samples' objectives. With ``projection=exact``, f is projected onto the span of the new
    features. By default, the coefficients are kept, as in the paper.
    """

    steps: Count
    lam: Positive = 1e-4
    batch_size: BatchSize | None = None
    objective: Literal["alg1", "alg2"] = "alg2"
    projection: Literal["approximate", "exact"] = "approximate"

    def step(self, problem: Problem, state: SampleState) -> None:
        K, F, lam, t = problem.K, state.F, self.lam, state.t + 1
        j, alpha_j = state.terms(problem)
        x_j, _ = problem[j]
        i_t = state.sampler(t)  # choose i_t
        x_t, _ = problem[i_t]
        z_t, z_j = F(x_t), F(x_j)
        g_t = K(z_t, z_j) @ alpha_j / (lam * (t - 1))
        v, alpha_v = self.find_violations(problem, state, i_t, g_t, z_t)  # if y_i_t g_t < 1
        if len(v):
            x_v = x_t[v]

            def objective(F: Training, K: Kernel) -> Tensor:
                z = (F(x_v), z_j) if self.objective == "alg1" else F(x_v, x_j)
                return -(alpha_v * (K(*z) @ alpha_j)).sum() / (lam * (t - 1))

            state.add(i_t[v], alpha_v)
            before = F(problem[state.coefficients.support][0]) if self.projection == "exact" else None
            self.descend(problem, state, objective)
            if before is not None:
                state.project(problem, before)
        state.t = t
