"""Algorithm 0: kernelized Pegasos on fixed features."""

from __future__ import annotations

import pydantic

from nsvm_cli.config.registry import STRICT, Count, Positive
from nsvm_cli.trainers.base import BatchSize, Problem
from nsvm_cli.trainers.coefficients import SampleState, SampleTrainer


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Pegasos(SampleTrainer):
    """Kernelized Pegasos (paper, Algorithm 0) on z_j = F_theta(x_j), with theta fixed.

    If F is the identity, this is a kernel SVM on the raw data; with the network of Part 1 of Algorithm 4, it
    is Part 2 of that algorithm. The paper's alpha_j y_j is alpha_j here. A mini-batch of k samples adds 1/k
    for each violation, as in Algorithm 3.
    """

    steps: Count
    lam: Positive = 1e-4
    batch_size: BatchSize | None = None
    moves_theta = False

    def step(self, problem: Problem, state: SampleState) -> None:
        K, lam, t = problem.K, self.lam, state.t + 1
        j, alpha_j = state.terms(problem)
        i_t = state.sampler(t)  # choose i_t
        z_t, z_j = state.features(problem, i_t), state.features(problem, j)
        g_t = K(z_t, z_j) @ alpha_j / (lam * (t - 1))
        v, alpha_v = self.compare(problem, state, i_t, g_t, z_t)  # if y_i_t g_t < 1
        state.add(i_t[v], alpha_v)
        state.t = t
