"""Algorithm 0: kernelized Pegasos on fixed features, and its primal form for linear kernels."""

from __future__ import annotations

from dataclasses import dataclass, field

import pydantic
import torch
from jaxtyping import Float
from torch import Tensor

from nsvm_cli.config.registry import STRICT, Count, Positive
from nsvm_cli.errors import InputError
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import Biased, Kernel, is_linear
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.storage.state_dict import NOT_SAVED
from nsvm_cli.trainers.base import BatchSize, BatchTrainer, Problem, State
from nsvm_cli.trainers.coefficients import SampleState, SampleTrainer


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Pegasos(SampleTrainer):
    """Kernelized Pegasos (paper, Algorithm 0) on z_j = F_theta(x_j), with theta fixed.

    The paper's alpha_j y_j is alpha_j here. A mini-batch of k samples adds 1/k to alpha for each violation,
    as in Algorithm 3. With the network of Part 1 of Algorithm 4, this is Part 2 of Algorithm 4.
    """

    steps: Count
    lam: Positive = 1e-4
    batch_size: BatchSize | None = None
    moves_theta = False

    def step(self, problem: Problem, state: SampleState) -> None:
        K, lam, t = problem.K, self.lam, state.t + 1
        j, alpha_j = state.terms(problem)
        i_t = state.sampler(t)  # choose i_t
        z_t, z_j = state.features(problem, i_t), state.features(problem, j)
        g_t = K(z_t, z_j) @ alpha_j / (lam * (t - 1))
        v, alpha_v = self.find_violations(problem, state, i_t, g_t, z_t)  # if y_i_t g_t < 1
        state.add(i_t[v], alpha_v)
        state.t = t


@dataclass(kw_only=True)
class LinearState(State):
    w: Float[Tensor, " q *outputs"]  # the sum of all alpha_i z_i, with a 1 appended to z_i if f has a bias
    z: Float[Tensor, "m n"] = field(metadata=NOT_SAVED)  # the features of all samples

    @property
    def support_vectors(self) -> int:
        return self.w[0].numel()  # one vector replaces all support vectors


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class LinearPegasos(BatchTrainer[LinearState]):
    """Pegasos with a linear kernel and fixed theta, storing f as a vector (Shalev-Shwartz et al. 2011)."""

    steps: Count
    lam: Positive = 1e-4
    batch_size: BatchSize | None = None
    moves_theta = False

    def check(self, problem: Problem, F: FeatureMap) -> None:
        super().check(problem, F)
        if not is_linear(problem.K.unbiased):
            raise InputError(f"algorithm={self.name} requires kernel=linear; for other kernels, use pegasos")

    def start(self, problem: Problem, F: FeatureMap) -> LinearState:
        sampler, z = problem.sampler(self.k), F(problem.x)
        z_1 = z[torch.from_numpy(sampler(1)).to(z.device)]
        alpha_1 = problem.first_increments(sampler(1), z_1, self.lam).to(z)
        return LinearState(F=F, sampler=sampler, t=1, w=extended(problem.K, z_1).mT @ alpha_1, z=z)

    def step(self, problem: Problem, state: LinearState) -> None:
        w, lam, t = state.w, self.lam, state.t + 1
        i_t = state.sampler(t)  # choose i_t
        z_t = state.z[i_t]
        phi_t = extended(problem.K, z_t)
        g_t = phi_t @ w / (lam * (t - 1))
        v, alpha_v = self.find_violations(problem, state, i_t, g_t, z_t)  # if y_i_t g_t < 1
        state.w = w + phi_t[v].mT @ alpha_v.to(w)
        state.t = t

    def finish(self, problem: Problem, state: LinearState) -> Expansion:
        w = state.w.reshape(len(state.w), -1)
        alpha, z = torch.eye(w.shape[1]).to(w), w.mT
        if isinstance(problem.K, Biased):  # the kernel adds 1 to every term; a term at 0 corrects the sum
            z = torch.cat([z[:, :-1], z.new_zeros(1, z.shape[1] - 1)])
            alpha = torch.cat([alpha, w[-1:] - 1])
        return Expansion(z, alpha if problem.task.outputs else alpha[:, 0], self.lam * state.t)


def extended(K: Kernel, z: Float[Tensor, "p n"]) -> Float[Tensor, "p q"]:
    """Return phi(z), where K(a, b) = <phi(a), phi(b)>: z itself or, if f has a bias, z with a 1 appended."""
    return torch.cat([z, torch.ones_like(z[:, :1])], 1) if isinstance(K, Biased) else z
