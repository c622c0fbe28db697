"""Algorithm 0: kernelized Pegasos on fixed features."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pydantic
from jaxtyping import Float, Int64
from torch import Tensor

from nsvm_cli.config.registry import STRICT, Count, Positive
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.storage.state_dict import NOT_SAVED
from nsvm_cli.trainers.base import BatchSize, Problem
from nsvm_cli.trainers.coefficients import Coefficients, SampleState, SampleTrainer


@dataclass(kw_only=True)
class PegasosState(SampleState):
    """``z`` holds F_theta(x_j) for every j, since theta is fixed."""

    z: Float[Tensor, "m n"] = field(metadata=NOT_SAVED)

    def features(self, problem: Problem, j: Int64[np.ndarray, " s"]) -> Float[Tensor, "s n"]:
        return self.z[j]


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Pegasos(SampleTrainer[PegasosState]):
    """Kernelized Pegasos (paper, Algorithm 0) on z_j = F_theta(x_j), with theta fixed.

    If F is the identity, this is a kernel SVM on the raw data; with the network of Part 1 of Algorithm 4 it
    is that algorithm's Part 2. The paper's alpha_j y_j is alpha_j here. A mini-batch of k samples adds 1/k
    for each violation, as in Algorithm 3.
    """

    steps: Count
    lam: Positive = 1e-4
    batch_size: BatchSize | None = None
    moves_theta = False

    def initial(self, problem: Problem, F: FeatureMap) -> PegasosState:
        sampler, coefficients = problem.sampler(self.k), Coefficients(problem)
        return PegasosState(F=F, sampler=sampler, t=1, coefficients=coefficients, z=F(problem.x))

    def step(self, problem: Problem, state: PegasosState) -> None:
        K, z, lam, t = problem.K, state.z, self.lam, state.t + 1
        j, alpha_j = state.terms(problem)
        i_t = state.sampler(t)  # choose i_t
        z_t = z[i_t]
        g_t = K(z_t, z[j]) @ alpha_j / (lam * (t - 1))
        v, alpha_v = self.compare(problem, state, i_t, g_t, z_t)  # if y_i_t g_t < 1
        state.add(i_t[v], alpha_v)
        state.t = t
