"""A network with a linear head trained end to end: a baseline for neural SVMs."""

from __future__ import annotations

import pydantic
import torch
from torch import Tensor
from torch.nn import functional

from nsvm_cli.config.registry import STRICT
from nsvm_cli.errors import InputError
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import Linear
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.trainers.base import BatchTrainer, Problem, State, Steps


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class CrossEntropy(BatchTrainer[State]):
    """Mini-batch gradient descent on the cross-entropy of two classes, log(1 + exp(-y F_theta(x))).

    The network ends in its head, so that F_theta(x) in R^1 is the log-odds of class +1. With the linear
    kernel and the one term z_1 = 1, that is g(x) = K(1, F_theta(x)).
    """

    steps: Steps
    batch_size: Steps = 16

    def check(self, problem: Problem, F: FeatureMap) -> None:
        super().check(problem, F)
        n = F(problem.x[:1]).shape[1]
        if n != 1 or type(problem.K) is not Linear:
            raise InputError(
                f"algorithm=cross_entropy expects network.head=true and kernel=linear, got a network with "
                f"{n} outputs and kernel {type(problem.K).__name__.lower()}"
            )

    def start(self, problem: Problem, F: FeatureMap) -> State:
        return State(F=F, sampler=problem.sampler(self.k), t=0)

    def step(self, problem: Problem, state: State) -> None:
        t = state.t + 1
        A = torch.from_numpy(state.sampler(t)).to(problem.y.device)
        x_A, y_A = problem.at(A), problem.y[A].unsqueeze(1)

        def objective(z: Tensor) -> tuple[Tensor, list[Tensor]]:
            """1/k sum_A log(1 + exp(-y z)) and its derivative by each z"""
            margin = y_A * z
            state.tally.add_decisions(self.k, correct=int((margin > 0).sum()), violations=0)
            return functional.softplus(-margin).mean(), [-y_A * torch.sigmoid(-margin) / self.k]

        state.objective = state.F.descend([x_A], objective, t, self.last_theta_step)
        state.t = t

    def finish(self, problem: Problem, state: State) -> Expansion:
        return Expansion(problem.y.new_ones(1, 1), problem.y.new_ones(1), problem.y.new_ones(1), 1.0)
