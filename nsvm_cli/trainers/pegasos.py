"""Algorithm 0: kernelized Pegasos on fixed features."""

from __future__ import annotations

from dataclasses import dataclass, field

import pydantic
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from nsvm_cli.config.registry import STRICT, Positive
from nsvm_cli.models.feature_map import Evaluation, FeatureMap
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.storage.state_dict import DERIVED
from nsvm_cli.trainers.base import BatchSize, Problem, Steps
from nsvm_cli.trainers.coefficients import SampleState, coefficients
from nsvm_cli.trainers.look_ahead import LookAheadState, LookAheadTrainer, Violations


@dataclass(kw_only=True)
class PegasosState(SampleState, LookAheadState):
    """``z`` holds F_theta(x_j) for every j, since theta is fixed."""

    z: Float[Tensor, "m n"] = field(metadata=DERIVED)


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Pegasos(LookAheadTrainer[PegasosState]):
    """Kernelized Pegasos (paper, Algorithm 0) on z_j = F_theta(x_j), with theta fixed.

    If F is the identity, this is a kernel SVM on the raw data; with the network of Part 1 of Algorithm 4 it
    is that algorithm's Part 2. The paper's lines, and where they are implemented::

        choose i_1;  alpha_i_1 = 1, all other alpha_j = 0             start
        for t = 2, ..., T:                                            advance
            choose i_t                                                _next_window: state.sampler
            if y_i_t / (lambda (t-1)) sum_j alpha_j y_j K(z_j, z_i_t) < 1:
                                                                      s, g, increments: _find_violation
                alpha_i_t = alpha_i_t + 1                             on_violation
        return alpha                                                  finish

    A mini-batch of k samples adds 1/k for each violation, as in Algorithm 3.
    """

    steps: Steps
    lam: Positive = 1e-4
    batch_size: BatchSize | None = None
    moves_theta = False
    starts_with_features = True

    def start(self, problem: Problem, F: FeatureMap) -> PegasosState:
        sampler, z = problem.sampler(self.k), F(problem.x)
        i_1 = sampler(1)
        alpha = coefficients(problem, i_1, z[torch.from_numpy(i_1).to(z.device)], self.lam)
        return PegasosState(F=F, sampler=sampler, t=1, coefficients=alpha, z=z)

    def fixed(self, state: PegasosState) -> bool:
        return True

    def evaluate(self, problem: Problem, state: PegasosState, i: Int64[Tensor, " p"]) -> Evaluation:
        z = state.z.index_select(0, i)
        return Evaluation(z, z)  # Algorithm 0 uses only the features of a sample

    def s(
        self, problem: Problem, state: PegasosState, z: Float[Tensor, "p n"]
    ) -> Float[Tensor, " p *outputs"]:
        j, alpha = state.terms(problem)
        return problem.sums(z, state.z.index_select(0, j), alpha)

    def on_violation(self, problem: Problem, state: PegasosState, t: int, at: Violations) -> None:
        state.coefficients.add(at.i, at.increments)

    def finish(self, problem: Problem, state: PegasosState) -> Expansion:
        j, alpha = state.coefficients.on(problem.y)
        return Expansion(state.z[j], alpha, self.lam * state.t).without_zeros()
