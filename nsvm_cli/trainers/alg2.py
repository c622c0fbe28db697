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
from nsvm_cli.models.objectives import products
from nsvm_cli.storage.state_dict import DERIVED
from nsvm_cli.trainers.base import BatchSize, Problem, Steps
from nsvm_cli.trainers.coefficients import SampleState, coefficients, expansion
from nsvm_cli.trainers.derived import Derived
from nsvm_cli.trainers.look_ahead import LookAheadState, LookAheadTrainer, Violations


class Support(NamedTuple):
    """The indices j of this process's support vectors, alpha_j, and F_theta(x_j)."""

    j: Int64[Tensor, " s"]
    alpha: Float[Tensor, " s *outputs"]
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
            if y_i_t g_t < 1:                                         increments: _find_violation
                alpha_i_t = alpha_i_t + 1                             on_violation: coefficients.add
                descend in theta on -y_i_t/(lambda (t-1)) sum_j
                    alpha_j y_j K(F_theta(x_j), F_theta(x_i_t))       on_violation: objective, F.descend
        z_j = F_theta(x_j);  return alpha, z, theta                   finish

    Unlike in Algorithm 1, the features of the support vectors are those of the current theta, and theta steps
    differentiate through them as well. A mini-batch of k samples adds 1/k for each violation, and theta
    descends on their mean.
    """

    steps: Steps
    lam: Positive = 1e-4
    batch_size: BatchSize | None = None

    def start(self, problem: Problem, F: FeatureMap) -> Alg2State:
        sampler = problem.sampler(self.k)
        i_1 = sampler(1)
        z_1 = F(problem.at(torch.from_numpy(i_1).to(problem.y.device)))
        alpha = coefficients(problem, i_1, z_1, self.lam)
        return Alg2State(F=F, sampler=sampler, t=1, coefficients=alpha)

    def s(self, problem: Problem, state: Alg2State, z: Float[Tensor, "p n"]) -> Float[Tensor, " p *outputs"]:
        _, alpha, at_j = self._support(problem, state)
        return problem.sums(z, at_j.z, alpha)

    def on_violation(self, problem: Problem, state: Alg2State, t: int, at: Violations) -> None:
        K, F, lam = problem.K, state.F, self.lam
        j, alpha_j, at_j = self._support(problem, state)
        alpha_i = torch.from_numpy(at.increments).to(problem.y)
        c = products(alpha_j, -alpha_i / (lam * (t - 1)))
        # a violating x_i that is one of the x_j passes through F only once, also with dropout
        shared = (j == torch.from_numpy(at.i).to(j).unsqueeze(1)).nonzero()
        i_shared, j_shared = shared[:, 0], shared[:, 1]
        new = torch.from_numpy(np.setdiff1d(np.arange(len(at.i)), i_shared.cpu().numpy())).to(j)

        def objective(z_j: Tensor, *z_new: Tensor) -> tuple[Tensor, list[Tensor]]:
            """-alpha_i / (lambda (t-1)) sum_j alpha_j K(F_theta(x_j), F_theta(x_i)), summed over i"""
            z_i = z_j.new_empty(len(at.i), z_j.shape[1])
            z_i[i_shared] = z_j[j_shared]
            z_i[new] = torch.cat([*z_new, z_i[:0]])
            K_ji = K(z_j, z_i)
            by_z_j, by_z_i = K.gradient(z_j, z_i, K_ji, c), K.gradient(z_i, z_j, K_ji.T, c.T)
            by_z_j[j_shared] += by_z_i[i_shared]
            return c.flatten() @ K_ji.flatten(), [by_z_j, *(by_z_i[new] for _ in z_new)]

        batch = [at_j, at.evaluation.rows(new.cpu().numpy())] if len(new) else [at_j]
        shard = self._shard(problem, state, at.i)
        state.objective = F.descend(batch, objective, t, self.last_theta_step, shard)
        state.coefficients.add(at.i, at.increments)

    def _support(self, problem: Problem, state: Alg2State) -> Support:
        def compute() -> Support:
            j, alpha = state.terms(problem)
            return Support(j, alpha, state.F.evaluate(problem.at(j), whole=True))

        return state.support.get(state.version, compute)

    def _shard(self, problem: Problem, state: Alg2State, i: Int64[np.ndarray, " v"]) -> Shard | None:
        """Return this process's rows of the full batch, or None for a single process.

        The full batch consists of the whole support, followed by those i that do not belong to it. Each
        process holds its shard of the support, and every i.
        """
        support, processes = state.coefficients.support, problem.processes
        if processes.size == 1:
            return None
        whole = np.append(support, i[~np.isin(i, support)])
        mine = processes.shard(np.arange(len(support)))
        others = [at for at in (int((whole == one).nonzero()[0][0]) for one in i) if at not in mine]
        return problem.shard((len(whole), torch.from_numpy(np.append(mine, others).astype(np.int64))))

    def finish(self, problem: Problem, state: Alg2State) -> Expansion:
        return expansion(problem, state, self.lam)
