"""Coefficients with one entry per training sample, for Algorithms 0, 2 and 3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.parallel.distributed import SINGLE_PROCESS, Processes
from nsvm_cli.storage.state_dict import StateDict, expect_keys, loaded_like
from nsvm_cli.trainers.base import Problem, State


class Coefficients:
    """alpha in R^m, stored so that only its non-zero entries enter computations.

    ``support`` holds the indices j with alpha_j > 0, in the order in which they were added. Both stay in host
    memory, since each step changes single entries.
    """

    def __init__(self, m: int) -> None:
        self.alpha: Float64[np.ndarray, " m"] = np.zeros(m)
        self._order: Int64[np.ndarray, " m"] = np.empty(m, np.int64)
        self._joined = 0

    @property
    def support(self) -> Int64[np.ndarray, " s"]:
        return self._order[: self._joined]

    def add(self, i: Int64[np.ndarray, " k"], amount: float) -> None:
        """Add ``amount`` to alpha_j for every j in i, which has no repeats."""
        joining = i[self.alpha[i] == 0]
        self._order[self._joined : self._joined + len(joining)] = joining
        self._joined += len(joining)
        self.alpha[i] += amount

    def state_dict(self) -> StateDict:
        """Return the support in its order, and its coefficients."""
        j = self.support.copy()
        return {"support": torch.from_numpy(j), "alpha": torch.from_numpy(self.alpha[j])}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore saved coefficients; see ``State.load_state_dict``."""
        expect_keys(saved, ["support", "alpha"])
        s = len(saved["support"])
        j = loaded_like(torch.empty(s, dtype=torch.int64), saved["support"], "support").numpy()
        alpha = loaded_like(torch.empty(s, dtype=torch.float64), saved["alpha"], "alpha").numpy()
        m = len(self.alpha)
        if not (len(np.unique(j)) == s and (j >= 0).all() and (j < m).all() and (alpha > 0).all()):
            raise ValueError(f"the support is not a set of indices below {m} with positive alpha")
        self.alpha[:], self._joined = 0, s
        self._order[:s], self.alpha[j] = j, alpha

    def on(
        self, like: Float[Tensor, " m"], processes: Processes = SINGLE_PROCESS
    ) -> tuple[Int64[Tensor, " s"], Float[Tensor, " s"]]:
        """Return the support, or one process's shard of it, and its coefficients as tensors like y."""
        j = processes.shard(self.support).copy()  # a copy: later steps change this memory
        return torch.from_numpy(j).to(like.device), torch.from_numpy(self.alpha[j]).to(like)


def coefficients(problem: Problem, i: Int64[np.ndarray, " k"], amount: float) -> Coefficients:
    """Return alpha^(2): ``amount`` for the samples i of the first step, 0 elsewhere."""
    alpha = Coefficients(len(problem.y))
    alpha.add(i, amount)
    return alpha


@dataclass(kw_only=True)
class SampleState(State):
    """The state of an algorithm with one coefficient per training sample."""

    coefficients: Coefficients

    @property
    def support_vectors(self) -> int:
        return len(self.coefficients.support)

    def terms(self, problem: Problem) -> tuple[Int64[Tensor, " s"], Float[Tensor, " s"]]:
        """Return this process's shard of the support: the indices j, and alpha_j y_j."""
        j, alpha = self.coefficients.on(problem.y, problem.processes)
        return j, alpha * problem.y[j]


def expansion(problem: Problem, state: SampleState, lam: float) -> Expansion:
    """Return the non-zero terms of g(x) = 1/(lambda t) sum_j alpha_j y_j K(F_theta(x_j), F_theta(x))."""
    j, alpha = state.coefficients.on(problem.y)
    return Expansion(state.F(problem.at(j)), alpha, problem.y[j], lam * state.t)
