"""Algorithm 1: support vectors keep the features that they had when they were added."""

from __future__ import annotations

from dataclasses import dataclass

import pydantic
from jaxtyping import Float
from torch import Tensor

from nsvm_cli.config.registry import STRICT, Positive
from nsvm_cli.models.feature_map import FeatureMap, Training
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.trainers.base import BatchSize, BatchTrainer, Problem, State, Steps
from nsvm_cli.trainers.rows import Rows


@dataclass(kw_only=True)
class Alg1State(State):
    """The terms s: evaluations z_s = F_theta_s(x_i_s) and alpha_s, the paper's alpha_s y_i_s."""

    z: Rows
    alpha: Rows

    @property
    def support_vectors(self) -> int:
        return self.violations + self.sampler.k

    def add(self, z: Float[Tensor, "v n"], alpha: Float[Tensor, " v *outputs"]) -> None:
        """Add terms."""
        self.z.append(z)
        self.alpha.append(alpha)


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Alg1(BatchTrainer[Alg1State]):
    """Gradient descent in f and theta at once (paper, Algorithm 1).

    The paper's alpha_s y_i_s is alpha_s here. A mini-batch of k samples adds a term of 1/k for each
    violation, and theta descends on their mean.
    """

    steps: Steps
    lam: Positive = 1e-4
    batch_size: BatchSize | None = None

    def start(self, problem: Problem, F: FeatureMap) -> Alg1State:
        sampler = problem.sampler(self.k)
        x_1, y_1 = problem[sampler(1)]
        z_1 = F(x_1)
        alpha_1 = problem.first(z_1, y_1, self.lam).to(problem.y)
        return Alg1State(F=F, sampler=sampler, t=1, z=Rows(z_1), alpha=Rows(alpha_1))

    def step(self, problem: Problem, state: Alg1State) -> None:
        K, F, lam, t = problem.K, state.F, self.lam, state.t + 1
        z_s, alpha_s = state.z.tensor, state.alpha.tensor
        x_t, y_t = problem[state.sampler(t)]  # choose i_t
        z_t = F(x_t)
        g_t = K(z_t, z_s) @ alpha_s / (lam * (t - 1))
        v, alpha_v = self.compare(problem, state, y_t, g_t, z_t)  # if y_i_t g_t < 1
        if len(v):
            x_v = x_t[v]

            def objective(F: Training) -> Tensor:
                return -(alpha_v * (K(F(x_v), z_s) @ alpha_s)).sum() / (lam * (t - 1))

            self.descend(state, objective)
            state.add(z_t[v], alpha_v)
        state.t = t

    def finish(self, problem: Problem, state: Alg1State) -> Expansion:
        return Expansion(state.z.tensor, state.alpha.tensor, self.lam * state.t).without_zeros()
