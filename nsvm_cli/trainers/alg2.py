"""Algorithm 2: support vectors follow theta."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pydantic
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from nsvm_cli.config.registry import STRICT, Positive
from nsvm_cli.models.feature_map import Evaluation, FeatureMap, Shard
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.storage.state_dict import DERIVED
from nsvm_cli.trainers.base import Problem, SampleState, Steps, coefficients, expansion
from nsvm_cli.trainers.look_ahead import LookAheadState, LookAheadTrainer


class Support(NamedTuple):
    """The indices j of this process's support vectors, alpha_j y_j, and F_theta(x_j)."""

    j: Int64[Tensor, " s"]
    ay: Float[Tensor, " s"]
    seen: Evaluation


@dataclass(kw_only=True)
class Alg2State(SampleState, LookAheadState):
    """``support`` stays what it is until theta and alpha move; then it is None."""

    support: Support | None = field(default=None, metadata=DERIVED)


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Alg2(LookAheadTrainer[Alg2State]):
    """Optimizer in f, then in theta, then an approximate projection of f (paper, Algorithm 2)."""

    steps: Steps
    lam: Positive = 1e-4

    def start(self, problem: Problem, F: FeatureMap) -> Alg2State:
        sampler = problem.sampler()
        alpha = coefficients(problem, sampler(1), 1.0)
        return Alg2State(F=F, sampler=sampler, t=1, coefficients=alpha)

    def s(self, problem: Problem, state: Alg2State, z: Float[Tensor, "p n"]) -> Float[Tensor, " p"]:
        _, ay, seen = self._support(problem, state)
        return problem.sums(z, seen.z, ay)

    def violation(self, problem: Problem, state: Alg2State, t: int, i: int, seen: Evaluation) -> float:
        K, F, y, lam = problem.K, state.F, problem.y, self.lam
        j, ay, support = self._support(problem, state)
        c = -y[i] / (lam * (t - 1)) * ay

        def objective(z_j: Tensor, z_i: Tensor) -> tuple[Tensor, list[Tensor]]:
            """-y_i / (lambda (t-1)) sum_j alpha_j y_j K(F_theta(x_j), F_theta(x_i))"""
            K_ji = K(z_j, z_i)
            by_z_j = K.gradient(z_j, z_i, K_ji, c.unsqueeze(1))
            by_z_i = K.gradient(z_i, z_j, K_ji.T, c.unsqueeze(0))
            return c @ K_ji[:, 0], [by_z_j, by_z_i]

        def within(z_j: Tensor) -> tuple[Tensor, list[Tensor]]:
            """The same where x_i is one of the x_j, and so goes through F once, under dropout too."""
            value, (by_z_j, by_z_i) = objective(z_j, z_j[at])
            by_z_j[at] += by_z_i
            return value, [by_z_j]

        at, share = (j == i).nonzero()[:, 0], self._share(problem, state, i)
        if len(at):
            state.objective = F.descend([support], within, self.progress(t), share)
        else:
            state.objective = F.descend([support, seen], objective, self.progress(t), share)
        state.coefficients.add(np.array([i]), 1.0)
        state.support = None
        return 1.0

    def _support(self, problem: Problem, state: Alg2State) -> Support:
        if state.support is None:
            j, ay = state.terms(problem)
            state.support = Support(j, ay, state.F.evaluate(problem.at(j)))
        return state.support

    def _share(self, problem: Problem, state: Alg2State, i: int) -> Shard | None:
        """The whole batch is the whole support, and i behind it if it is not part of it; a process has its
        share of that, and i."""
        support, processes = state.coefficients.support, problem.processes
        if processes.size == 1:
            return None
        whole = support if i in support else np.append(support, i)
        mine, at = processes.shard(np.arange(len(support))), int((whole == i).nonzero()[0][0])
        return problem.shard((len(whole), torch.from_numpy(mine if at in mine else np.append(mine, at))))

    def finish(self, problem: Problem, state: Alg2State) -> Expansion:
        return expansion(problem, state, self.lam)
