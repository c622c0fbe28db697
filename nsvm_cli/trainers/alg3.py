"""Algorithm 3: mini-batches, with an alignment objective for theta."""

from __future__ import annotations

from typing import Literal

import pydantic
from torch import Tensor

from nsvm_cli.config.registry import STRICT, Count, Positive
from nsvm_cli.models.feature_map import Training
from nsvm_cli.models.kernels import Kernel
from nsvm_cli.models.objectives import alignment, mean_loss, norm_surrogate, squared_norm
from nsvm_cli.trainers.base import PairedBatchSize, Problem
from nsvm_cli.trainers.coefficients import SampleState, SampleTrainer


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Alg3(SampleTrainer):
    """Mini-batch Pegasos in f, alignment in theta (paper, Algorithm 3). K(a, a) must not be 0.

    ``centred`` sets whether the alignment is centred; None means the default of the task. The paper derives
    its objective for theta by replacing both terms of lambda/2 ||f||^2 + the mean loss of the batch. With
    ``objective=derived``, this sum is used instead, with f after the update of alpha and without ``mu``.
    """

    steps: Count
    lam: Positive = 1e-4
    mu: Positive = 1.0
    batch_size: PairedBatchSize = 16
    centred: bool | None = None
    epochs: Positive | None = None
    objective: Literal["replaced", "derived"] = "replaced"

    def step(self, problem: Problem, state: SampleState) -> None:
        F, lam, t = state.F, self.lam, state.t + 1
        j, alpha_j = state.terms(problem)
        x_j, _ = problem[j]
        A = state.sampler(t)  # choose A_t
        x_A, y_A = problem[A]
        z_A = F(x_A)
        g_A = problem.sums(z_A, F(x_j), alpha_j) / (lam * (t - 1))
        v, alpha_v = self.find_violations(problem, state, A, g_A, z_A)  # if y_i g_i < 1
        state.add(A[v], alpha_v)
        alpha_A, c_A, w_A = state.coefficients.at(A, problem.y), problem.task.code(y_A), problem.w(A)
        centred = problem.task.centred if self.centred is None else self.centred

        def objective(F: Training, K: Kernel) -> Tensor:
            z = F(x_A)
            K_A = K(z, z)
            return self.mu * norm_surrogate(K_A, alpha_A, w_A) - alignment(K_A, c_A, centred, w_A)

        def derived(F: Training, K: Kernel) -> Tensor:
            j, alpha_j = state.terms(problem)  # after the update
            z_A, z_j = F(x_A, problem[j][0])
            f_A, f_j = (K(z, z_j) @ alpha_j / (lam * t) for z in (z_A, z_j))
            norm = squared_norm(alpha_j / (lam * t), f_j)
            return lam / 2 * norm + mean_loss(problem.loss.of(y_A, f_A), w_A)

        self.descend(problem, state, derived if self.objective == "derived" else objective)
        state.t = t
