"""Algorithm 2: support vectors follow theta."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pydantic
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from nsvm_cli.features import Evaluation, Share, Theta
from nsvm_cli.model import Expansion
from nsvm_cli.registry import STRICT, Positive
from nsvm_cli.trainers.base import Coefficients, Problem, SampleState, Steps, expansion
from nsvm_cli.trainers.stretches import StretchState, StretchTrainer


@dataclass(kw_only=True)
class Alg2State(SampleState, StretchState):
    """``seen`` holds F_theta(x_j) for the support, until theta moves; then it is None."""

    seen: Evaluation | None = None


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Alg2(StretchTrainer[Alg2State]):
    """Descent in f, then in theta, then an approximate projection of f (paper, Algorithm 2)."""

    steps: Steps
    lam: Positive = 1e-4

    def start(self, problem: Problem, F: Theta) -> Alg2State:
        sampler = problem.sampler()
        alpha = Coefficients(len(problem.y))
        alpha.add(sampler(1), 1.0)
        return Alg2State(F=F, sampler=sampler, t=1, coefficients=alpha)

    def s(self, problem: Problem, state: Alg2State, z: Float[Tensor, "p n"]) -> Float[Tensor, " p"]:
        j, ay = state.terms(problem)
        return problem.sums(z, self._support(problem, state, j).z, ay)

    def violation(self, problem: Problem, state: Alg2State, t: int, i: int, seen: Evaluation) -> float:
        K, F, y, lam = problem.K, state.F, problem.y, self.lam
        j, ay = state.terms(problem)
        c = -y[i] / (lam * (t - 1)) * ay

        def objective(z_j: Tensor, z_i: Tensor) -> tuple[Tensor, list[Tensor]]:
            """-y_i / (lambda (t-1)) sum_j alpha_j y_j K(F_theta(x_j), F_theta(x_i))"""
            K_ji = K(z_j, z_i)
            by_z_j, by_z_i = (
                K.gradient(z_j, z_i, K_ji, c.unsqueeze(1)),
                K.gradient(z_i, z_j, K_ji.T, c.unsqueeze(0)),
            )
            return c @ K_ji[:, 0], [by_z_j, by_z_i]

        def within(z_j: Tensor) -> tuple[Tensor, list[Tensor]]:
            """The same where x_i is one of the x_j, and so goes through F once, under dropout too."""
            value, (by_z_j, by_z_i) = objective(z_j, z_j[at])
            by_z_j[at] += by_z_i
            return value, [by_z_j]

        support, at = self._support(problem, state, j), (j == i).nonzero()[:, 0]
        if len(at):
            state.objective = F.descend([support], within, self._share(problem, state, i, len(j)))
        else:
            state.objective = F.descend(
                [support, seen], objective, self._share(problem, state, i, len(j) + 1)
            )
        state.coefficients.add(np.array([i]), 1.0)
        state.seen = None
        return 1.0

    def _support(self, problem: Problem, state: Alg2State, j: Int64[Tensor, " s"]) -> Evaluation:
        if state.seen is None:
            state.seen = state.F.evaluate(problem.at(j))
        return state.seen

    def _share(self, problem: Problem, state: Alg2State, i: int, rows: int) -> Share | None:
        """The whole batch is the whole support, and i behind it if it is not part of it."""
        support, processes = state.coefficients.support, problem.processes
        if processes.size == 1:
            return None
        position = np.append((support == i).nonzero()[0], len(support))[0]
        mine = np.append(processes.share(np.arange(len(support))), position)[:rows]
        return problem.share((max(len(support), position + 1), torch.from_numpy(mine)))

    def finish(self, problem: Problem, state: Alg2State) -> Expansion:
        return expansion(problem, state, self.lam)
