"""Algorithm 1: support vectors keep the features that they had when they joined."""

from __future__ import annotations

from dataclasses import dataclass

import pydantic
import torch
from jaxtyping import Float
from torch import Tensor

from nsvm_cli.features import Theta
from nsvm_cli.model import Expansion
from nsvm_cli.registry import STRICT, Positive
from nsvm_cli.trainers.base import Problem, State, Steps, Trainer


@dataclass(kw_only=True)
class Alg1State(State):
    """The terms s with alpha_s = 1: evaluations z_s = F_theta_s(x_i_s) and labels y_i_s."""

    z: Float[Tensor, "s n"]
    y: Float[Tensor, " s"]

    @property
    def support_vectors(self) -> int:
        return len(self.y)


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Alg1(Trainer[Alg1State]):
    """Gradient descent in f and theta at once (paper, Algorithm 1)."""

    steps: Steps
    lam: Positive = 1e-4

    @property
    def total(self) -> int:
        return self.steps

    def start(self, problem: Problem, F: Theta) -> Alg1State:
        sampler = problem.sampler()
        i_1 = sampler(1)
        return Alg1State(F=F, sampler=sampler, t=1, z=F(problem.x[i_1]), y=problem.y[i_1])

    def step(self, problem: Problem, state: Alg1State) -> None:
        K, F, lam = problem.K, state.F, self.lam
        t = state.t + 1
        i = state.sampler(t)
        x_t, y_t = problem.x[i], problem.y[i]
        z_t = F(x_t)
        g = state.y @ K(state.z, z_t) / (lam * (t - 1))
        if y_t * g < 1:
            state.objective = F.descend(
                lambda F: (-y_t / (lam * (t - 1)) * (state.y @ K(state.z, F(x_t)))).sum()
            )
            state.z, state.y = torch.cat([state.z, z_t]), torch.cat([state.y, y_t])
            state.violations += 1
        state.t, state.g = t, g

    def finish(self, problem: Problem, state: Alg1State) -> Expansion:
        return Expansion(state.z, torch.ones_like(state.y), state.y, self.lam * state.t)
