"""Coefficients of all training samples, for Algorithms 0, 2 and 3."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import Kernel
from nsvm_cli.models.losses import any_output
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.storage.state_dict import NOT_SAVED, StateDict, expect_keys, loaded_like
from nsvm_cli.trainers.base import BatchTrainer, Problem, State


def projected(
    K: Kernel, z: Float[Tensor, "s n"], alpha: Float[Tensor, " s *outputs"], onto: Float[Tensor, "q n"]
) -> Float[Tensor, " q *outputs"]:
    """Return the coefficients a of sum_s alpha_s K(z_s, .), projected onto the span of all K(onto_q, .).

    The system K(onto, onto) a = K(onto, z) alpha is solved in float64, after adding a small multiple of the
    identity to K(onto, onto).
    """
    K_qq = K(onto, onto).double()
    mean = K_qq.diagonal().mean()
    K_qq.diagonal().add_(math.sqrt(torch.finfo(z.dtype).eps) * torch.where(mean == 0, 1.0, mean))
    return torch.linalg.solve(K_qq, K(onto, z).double() @ alpha.double()).to(alpha)


class Coefficients:
    """The coefficients alpha, (m,) or (m, C) for C > 2 classes. The paper's alpha_j y_j is alpha_j here."""

    def __init__(self, problem: Problem) -> None:
        m = len(problem.y)
        self.alpha: Float64[np.ndarray, " m *outputs"] = np.zeros((m, *problem.task.outputs))
        # the indices of the samples whose coefficients were changed, in the order of the first change
        self.support: Int64[np.ndarray, " s"] = np.empty(0, np.int64)
        self.in_support = np.zeros(m, bool)

    def add(self, i: Int64[np.ndarray, " k"], amount: Float64[np.ndarray, " k *outputs"]) -> None:
        """Add ``amount`` to alpha_i for the samples i, which must be distinct."""
        joining = i[any_output(amount != 0) & ~self.in_support[i]]
        self.support = np.append(self.support, joining)
        self.in_support[joining] = True
        self.alpha[i] += amount

    def at(self, i: Int64[np.ndarray, " k"], like: Float[Tensor, " m"]) -> Float[Tensor, " k *outputs"]:
        """Return alpha_i for the samples i, as a tensor like y."""
        return torch.from_numpy(self.alpha[i]).to(like)

    def state_dict(self) -> StateDict:
        j = self.support
        return {"support": torch.from_numpy(j), "alpha": torch.from_numpy(self.alpha[j])}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        expect_keys(saved, ["support", "alpha"])
        s, (m, *outputs) = len(saved["support"]), self.alpha.shape
        j = loaded_like(torch.empty(s, dtype=torch.int64), saved["support"], "support").numpy()
        like = torch.empty(s, *outputs, dtype=torch.float64)
        alpha = loaded_like(like, saved["alpha"], "alpha").numpy()
        if not (len(np.unique(j)) == s and (j >= 0).all() and (j < m).all()):
            raise ValueError(f"support: expected different indices from 0 to {m - 1}")
        self.support, self.alpha[:], self.in_support[:] = j, 0, False
        self.alpha[j], self.in_support[j] = alpha, True


@dataclass(kw_only=True)
class SampleState(State):
    """The state of Algorithms 0, 2 and 3, with the coefficients of all training samples."""

    coefficients: Coefficients
    z: Float[Tensor, "m n"] | None = field(metadata=NOT_SAVED)  # F_theta(x_j) if theta is fixed

    @property
    def support_vectors(self) -> int:
        nonzero = any_output(self.coefficients.alpha[self.coefficients.support] != 0)  # increments may cancel
        return int(np.count_nonzero(nonzero))

    def features(self, problem: Problem, j: Int64[np.ndarray, " s"]) -> Float[Tensor, "s n"]:
        """Return F_theta(x_j) for the samples j."""
        if self.z is None:
            return self.F(problem[j][0])
        return self.z.index_select(0, torch.from_numpy(j).to(self.z.device))

    def add(self, i: Int64[np.ndarray, " v"], amount: Float64[Tensor, " v *outputs"]) -> None:
        """Add ``amount`` to alpha_i for the samples i."""
        self.coefficients.add(i, amount.cpu().numpy())

    def project(self, problem: Problem, before: Float[Tensor, "s n"]) -> None:
        """Project f, whose support had the features ``before``, onto the span of the current features."""
        j, alpha = self.terms(problem)
        alpha = projected(problem.K, before, alpha, onto=self.features(problem, j))
        self.coefficients.alpha[j] = alpha.cpu().numpy()

    def terms(self, problem: Problem) -> tuple[Int64[np.ndarray, " s"], Float[Tensor, " s *outputs"]]:
        """Return the indices j of the support, and alpha_j."""
        j = self.coefficients.support
        return j, self.coefficients.at(j, problem.y)


class SampleTrainer(BatchTrainer[SampleState]):
    """Algorithms 0, 2 and 3, which keep a coefficient alpha_j for each x_j, and use the current features."""

    def start(self, problem: Problem, F: FeatureMap) -> SampleState:
        sampler, coefficients = problem.sampler(self.k), Coefficients(problem)
        z = None if self.moves_theta else F(problem.x)
        state = SampleState(F=F, sampler=sampler, t=1, coefficients=coefficients, z=z)
        i_1 = sampler(1)
        state.add(i_1, problem.first_increments(i_1, state.features(problem, i_1), self.lam))
        return state

    def finish(self, problem: Problem, state: SampleState) -> Expansion:
        """Return the non-zero terms of g(x) = 1/(lambda t) sum_j alpha_j K(F_theta(x_j), F_theta(x))."""
        j, alpha = state.terms(problem)
        i = torch.from_numpy(j).to(alpha.device)
        return Expansion(state.features(problem, j), alpha, self.lam * state.t, i=i).without_zeros()
