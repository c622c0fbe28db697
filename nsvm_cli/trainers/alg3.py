"""Algorithm 3: mini-batches, with an alignment objective for theta."""

from __future__ import annotations

import pydantic
import torch
from torch import Tensor

from nsvm_cli.config.registry import STRICT, Positive
from nsvm_cli.errors import NotFiniteError
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.models.objectives import alignment, norm_surrogate
from nsvm_cli.trainers.base import BatchTrainer, PairedBatchSize, Problem, Steps
from nsvm_cli.trainers.coefficients import SampleState, coefficients, expansion


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Alg3(BatchTrainer[SampleState]):
    """Mini-batch Pegasos in f, alignment in theta (paper, Algorithm 3). It requires K(a, a) != 0.

    ``centred`` says whether the alignment is; None leaves it to the task (see ``Task.centred``).
    ``epochs`` limits ``steps`` to so many passes over the training samples, and a batch to all of them.

    ``start`` and ``finish`` implement the lines before and after the loop, and ``step`` one iteration, in the
    paper's order.
    """

    steps: Steps
    lam: Positive = 1e-4
    mu: Positive = 1.0
    batch_size: PairedBatchSize = 16
    centred: bool | None = None
    epochs: Positive | None = None

    def start(self, problem: Problem, F: FeatureMap) -> SampleState:
        sampler = problem.sampler(self.k)
        i_1 = sampler(1)
        z_1 = F(problem.at(torch.from_numpy(i_1).to(problem.y.device)))
        alpha = coefficients(problem, i_1, z_1, self.lam)
        return SampleState(F=F, sampler=sampler, t=1, coefficients=alpha)

    def step(self, problem: Problem, state: SampleState) -> None:
        K, F, y, lam, mu, k = problem.K, state.F, problem.y, self.lam, self.mu, self.k
        alpha = state.coefficients
        t = state.t + 1
        A_t = state.sampler(t)
        A = torch.from_numpy(A_t).to(y.device)
        j, alpha_j = state.terms(problem)
        z = F(problem.at(torch.cat([A, j])))
        g_A = problem.sums(z[:k], z[k:], alpha_j) / (lam * (t - 1))
        if not g_A.isfinite().all():
            raise NotFiniteError("the decision value g", t)
        y_A, g = problem.host_y[A_t], g_A.double().cpu().numpy()
        violations = int(problem.loss.violated(y_A, g).sum())
        state.tally.add_decisions(k, problem.task.correct(y_A, g), violations)
        alpha.add(A_t, problem.implicit(problem.loss.step(y_A, g), z[:k], lam * t) / k)
        x_A, c_A, alpha_A = problem.at(A), problem.task.code(y[A]), torch.from_numpy(alpha.alpha[A_t]).to(y)
        centred = problem.task.centred if self.centred is None else self.centred

        def objective(z: Tensor) -> tuple[Tensor, list[Tensor]]:
            """mu * first fraction - alignment; the factor 2 is due to the symmetry of K_A."""
            K_A = K(z, z)
            norm, slope_norm = norm_surrogate(K_A, alpha_A)
            aligned, slope_aligned = alignment(K_A, c_A, centred)
            return mu * norm - aligned, [2 * K.gradient(z, z, K_A, mu * slope_norm - slope_aligned)]

        state.objective = F.descend([x_A], objective, t, self.last_theta_step)
        state.violations += violations
        state.t, state.g = t, float(g.flat[0])

    def finish(self, problem: Problem, state: SampleState) -> Expansion:
        return expansion(problem, state, self.lam)
