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
from nsvm_cli.models.feature_map import Evaluation, FeatureMap
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.storage.state_dict import StateDict
from nsvm_cli.trainers.base import Problem, Steps
from nsvm_cli.trainers.look_ahead import LookAheadState, LookAheadTrainer
from nsvm_cli.trainers.rows import Rows


@dataclass(kw_only=True)
class Alg1State(LookAheadState):
    """The terms s with alpha_s = 1: evaluations z_s = F_theta_s(x_i_s) and labels y_i_s."""

    z: Rows
    y: Rows

    @property
    def support_vectors(self) -> int:
        return self.violations + 1


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Alg1(LookAheadTrainer[Alg1State]):
    """Gradient descent in f and theta at once (paper, Algorithm 1).

    The paper's lines, and where they are implemented::

        choose i_1;  alpha_1 = 1;  z_1 = F_theta(x_i_1)               start
        for t = 2, ..., T:                                            advance
            choose i_t                                                _next_window: state.sampler
            z_t = F_theta(x_i_t)                                      evaluate
            g_t = 1/(lambda (t-1)) sum_s alpha_s y_i_s K(z_s, z_t)    s, g
            if y_i_t g_t < 1:                                         violates: _find_violation
                alpha_t = 1                                           on_violation: state.z, state.y
                descend in theta on -y_i_t/(lambda (t-1)) sum_s
                    alpha_s y_i_s K(z_s, F_theta(x_i_t))              on_violation: objective, F.descend
            else: alpha_t = 0                                         advance: the term is not stored
        return alpha, y, z, theta                                     finish
    """

    steps: Steps
    lam: Positive = 1e-4

    def start(self, problem: Problem, F: FeatureMap) -> Alg1State:
        sampler = problem.sampler()
        i_1 = problem.processes.shard(torch.from_numpy(sampler(1)).to(problem.y.device))
        return Alg1State(F=F, sampler=sampler, t=1, z=Rows(F(problem.x[i_1])), y=Rows(problem.y[i_1]))

    def s(self, problem: Problem, state: Alg1State, z: Float[Tensor, "p n"]) -> Float[Tensor, " p"]:
        return problem.sums(z, state.z.tensor, state.y.tensor)

    def on_violation(self, problem: Problem, state: Alg1State, t: int, i: int, at_i: Evaluation) -> float:
        K, F, lam = problem.K, state.F, self.lam
        y_t, z_s, y_s = problem.y[i : i + 1], state.z.tensor, state.y.tensor

        def objective(z: Tensor) -> tuple[Tensor, list[Tensor]]:
            """-y_t / (lambda (t-1)) sum_s alpha_s y_s K(z_s, F_theta(x_t))"""
            K_ts, c = K(z, z_s), -y_t / (lam * (t - 1)) * y_s
            return (K_ts @ c).sum(), [K.gradient(z, z_s, K_ts, c.unsqueeze(0))]

        state.objective = F.descend([at_i], objective, t, self.last_theta_step, problem.shard())
        if problem.processes.owns(state.support_vectors):
            state.z.append(at_i.z)
            state.y.append(y_t)
        return 1.0

    def save(self, problem: Problem, state: Alg1State) -> StateDict:
        z, y = self._terms(problem, state)
        return {**super().save(problem, state), "z": {"rows": z}, "y": {"rows": y}}

    def load(self, problem: Problem, state: Alg1State, saved: Mapping[str, Any]) -> None:
        super().load(problem, state, saved)
        if not len(state.z.tensor) == len(state.y.tensor) == state.support_vectors:
            raise ValueError(f"expected {state.support_vectors} rows of z and y")
        shard = problem.processes.shard
        state.z, state.y = Rows(shard(state.z.tensor)), Rows(shard(state.y.tensor))

    def finish(self, problem: Problem, state: Alg1State) -> Expansion:
        z, y = self._terms(problem, state)
        return Expansion(z, torch.ones_like(y), y, self.lam * state.t)

    def _terms(self, problem: Problem, state: Alg1State) -> tuple[Float[Tensor, "s n"], Float[Tensor, " s"]]:
        """Return the terms z and y of all processes."""
        processes, s = problem.processes, state.support_vectors
        return processes.gather(state.z.tensor, s), processes.gather(state.y.tensor, s)
