"""Algorithm 2: the features of support vectors change with theta."""

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
from nsvm_cli.trainers.base import Problem, Steps
from nsvm_cli.trainers.coefficients import SampleState, coefficients, expansion
from nsvm_cli.trainers.derived import Derived
from nsvm_cli.trainers.look_ahead import LookAheadState, LookAheadTrainer


class Support(NamedTuple):
    """The indices j of this process's support vectors, alpha_j y_j, and F_theta(x_j)."""

    j: Int64[Tensor, " s"]
    ay: Float[Tensor, " s"]
    at_j: Evaluation


@dataclass(kw_only=True)
class Alg2State(SampleState, LookAheadState):
    """``support`` is valid until theta or alpha changes."""

    support: Derived[Support] = field(default_factory=Derived, metadata=DERIVED)


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Alg2(LookAheadTrainer[Alg2State]):
    """Descent in f, then in theta, then an approximate projection of f (paper, Algorithm 2).

    The paper's lines, and where they are implemented::

        choose i_1;  alpha_i_1 = 1, all other alpha_j = 0             start
        for t = 2, ..., T:                                            advance
            choose i_t                                                _next_window: state.sampler
            g_t = 1/(lambda (t-1)) sum_j alpha_j y_j
                      K(F_theta(x_j), F_theta(x_i_t))                 evaluate, _support, s, g
            if y_i_t g_t < 1:                                         violates: _find_violation
                alpha_i_t = alpha_i_t + 1                             on_violation: coefficients.add
                descend in theta on -y_i_t/(lambda (t-1)) sum_j
                    alpha_j y_j K(F_theta(x_j), F_theta(x_i_t))       on_violation: objective, F.descend
        z_j = F_theta(x_j);  return alpha, z, theta                   finish

    Unlike in Algorithm 1, the features of the support vectors are those of the current theta, and theta steps
    differentiate through them as well.
    """

    steps: Steps
    lam: Positive = 1e-4

    def start(self, problem: Problem, F: FeatureMap) -> Alg2State:
        sampler = problem.sampler()
        alpha = coefficients(problem, sampler(1), 1.0)
        return Alg2State(F=F, sampler=sampler, t=1, coefficients=alpha)

    def s(self, problem: Problem, state: Alg2State, z: Float[Tensor, "p n"]) -> Float[Tensor, " p"]:
        _, ay, at_j = self._support(problem, state)
        return problem.sums(z, at_j.z, ay)

    def on_violation(self, problem: Problem, state: Alg2State, t: int, i: int, at_i: Evaluation) -> float:
        K, F, y, lam = problem.K, state.F, problem.y, self.lam
        j, ay, at_j = self._support(problem, state)
        c = -y[i] / (lam * (t - 1)) * ay

        def objective(z_j: Tensor, z_i: Tensor) -> tuple[Tensor, list[Tensor]]:
            """-y_i / (lambda (t-1)) sum_j alpha_j y_j K(F_theta(x_j), F_theta(x_i))"""
            K_ji = K(z_j, z_i)
            by_z_j = K.gradient(z_j, z_i, K_ji, c.unsqueeze(1))
            by_z_i = K.gradient(z_i, z_j, K_ji.T, c.unsqueeze(0))
            return c @ K_ji[:, 0], [by_z_j, by_z_i]

        def within(z_j: Tensor) -> tuple[Tensor, list[Tensor]]:
            """The same if x_i is one of the x_j, so that it passes through F only once, also with dropout."""
            value, (by_z_j, by_z_i) = objective(z_j, z_j[at])
            by_z_j[at] += by_z_i
            return value, [by_z_j]

        at, T, shard = (j == i).nonzero()[:, 0], self.last_theta_step, self._shard(problem, state, i)
        if len(at):
            state.objective = F.descend([at_j], within, t, T, shard)
        else:
            state.objective = F.descend([at_j, at_i], objective, t, T, shard)
        state.coefficients.add(np.array([i]), 1.0)
        return 1.0

    def _support(self, problem: Problem, state: Alg2State) -> Support:
        def compute() -> Support:
            j, ay = state.terms(problem)
            return Support(j, ay, state.F.evaluate(problem.at(j)))

        return state.support.get(state.version, compute)

    def _shard(self, problem: Problem, state: Alg2State, i: int) -> Shard | None:
        """Return this process's rows of the full batch, or None for a single process.

        The full batch consists of the whole support, followed by i unless it belongs to the support. Each
        process holds its shard of the support, and i.
        """
        support, processes = state.coefficients.support, problem.processes
        if processes.size == 1:
            return None
        whole = support if i in support else np.append(support, i)
        mine, at = processes.shard(np.arange(len(support))), int((whole == i).nonzero()[0][0])
        return problem.shard((len(whole), torch.from_numpy(mine if at in mine else np.append(mine, at))))

    def finish(self, problem: Problem, state: Alg2State) -> Expansion:
        return expansion(problem, state, self.lam)
