"""Algorithm 1: support vectors keep the features that they had when they were added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pydantic
import torch
from jaxtyping import Float
from torch import Tensor

from nsvm_cli.config.registry import STRICT, Positive
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.models.objectives import products
from nsvm_cli.storage.state_dict import StateDict
from nsvm_cli.trainers.base import BatchSize, Problem, Steps
from nsvm_cli.trainers.look_ahead import LookAheadState, LookAheadTrainer, Violations
from nsvm_cli.trainers.rows import Rows


@dataclass(kw_only=True)
class Alg1State(LookAheadState):
    """The terms s: evaluations z_s = F_theta_s(x_i_s) and alpha_s, the paper's alpha_s y_i_s."""

    z: Rows
    alpha: Rows

    @property
    def support_vectors(self) -> int:
        return self.violations + self.sampler.k


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Alg1(LookAheadTrainer[Alg1State]):
    """Gradient descent in f and theta at once (paper, Algorithm 1).

    The paper's lines, and where they are implemented::

        choose i_1;  alpha_1 = 1;  z_1 = F_theta(x_i_1)               start
        for t = 2, ..., T:                                            advance
            choose i_t                                                _next_window: state.sampler
            z_t = F_theta(x_i_t)                                      evaluate
            g_t = 1/(lambda (t-1)) sum_s alpha_s y_i_s K(z_s, z_t)    s, g
            if y_i_t g_t < 1:                                         increments: _find_violation
                alpha_t = 1                                           on_violation: state.z, state.alpha
                descend in theta on -y_i_t/(lambda (t-1)) sum_s
                    alpha_s y_i_s K(z_s, F_theta(x_i_t))              on_violation: objective, F.descend
            else: alpha_t = 0                                         advance: the term is not stored
        return alpha, y, z, theta                                     finish

    A mini-batch of k samples adds a term of 1/k for each violation, and theta descends on their mean.
    """

    steps: Steps
    lam: Positive = 1e-4
    batch_size: BatchSize | None = None

    def start(self, problem: Problem, F: FeatureMap) -> Alg1State:
        sampler = problem.sampler(self.k)
        i_1, own = sampler(1), problem.processes.shard
        z_1 = F(problem.at(torch.from_numpy(i_1).to(problem.y.device)))
        alpha_1 = torch.from_numpy(problem.first_step(i_1, z_1, self.lam) / self.k).to(problem.y)
        return Alg1State(F=F, sampler=sampler, t=1, z=Rows(own(z_1)), alpha=Rows(own(alpha_1)))

    def s(self, problem: Problem, state: Alg1State, z: Float[Tensor, "p n"]) -> Float[Tensor, " p *outputs"]:
        return problem.sums(z, state.z.tensor, state.alpha.tensor)

    def on_violation(self, problem: Problem, state: Alg1State, t: int, at: Violations) -> None:
        K, F, lam = problem.K, state.F, self.lam
        alpha_t = torch.from_numpy(at.increments).to(problem.y)
        z_s, alpha_s = state.z.tensor, state.alpha.tensor
        c = products(-alpha_t / (lam * (t - 1)), alpha_s)

        def objective(z: Tensor) -> tuple[Tensor, list[Tensor]]:
            """-alpha_t / (lambda (t-1)) sum_s alpha_s K(z_s, F_theta(x_t)), summed over violations"""
            K_ts = K(z, z_s)
            return (K_ts.reshape(1, -1) @ c.flatten()).sum(), [K.gradient(z, z_s, K_ts, c)]

        state.objective = F.descend([at.evaluation], objective, t, self.last_theta_step, problem.shard())
        own = [v for v in range(len(at.i)) if problem.processes.owns(state.support_vectors + v)]
        state.z.append(at.evaluation.z[own])
        state.alpha.append(alpha_t[own])

    def save(self, problem: Problem, state: Alg1State) -> StateDict:
        z, alpha = self._terms(problem, state)
        return {**super().save(problem, state), "z": {"rows": z}, "alpha": {"rows": alpha}}

    def load(self, problem: Problem, state: Alg1State, saved: Mapping[str, Any]) -> None:
        if "y" in saved:  # as it was called when every alpha_s was 1
            saved = {"alpha" if key == "y" else key: value for key, value in saved.items()}
        super().load(problem, state, saved)
        if not len(state.z.tensor) == len(state.alpha.tensor) == state.support_vectors:
            raise ValueError(f"expected {state.support_vectors} rows of z and alpha")
        shard = problem.processes.shard
        state.z, state.alpha = Rows(shard(state.z.tensor)), Rows(shard(state.alpha.tensor))

    def finish(self, problem: Problem, state: Alg1State) -> Expansion:
        z, alpha = self._terms(problem, state)
        return Expansion(z, alpha, self.lam * state.t).without_zeros()

    def _terms(
        self, problem: Problem, state: Alg1State
    ) -> tuple[Float[Tensor, "s n"], Float[Tensor, " s *outputs"]]:
        """Return the terms z and alpha of all processes."""
        processes, s = problem.processes, state.support_vectors
        return processes.gather(state.z.tensor, s), processes.gather(state.alpha.tensor, s)
