"""Algorithm 1: support vectors keep the features that they had when they were added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pydantic
import torch
from jaxtyping import Float, Int64, Shaped
from pydantic import Field, PositiveInt
from torch import Tensor

from nsvm_cli.config.registry import STRICT, Count, Positive, entry_of
from nsvm_cli.models.feature_map import FeatureMap, Training
from nsvm_cli.models.kernels import Kernel
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.storage.state_dict import StateDict, expect_keys, loaded_like
from nsvm_cli.trainers.base import BatchSize, BatchTrainer, Problem, State
from nsvm_cli.trainers.budget import MAINTENANCE, NO_SAMPLE, Terms


class Rows:
    """A tensor to which rows can be appended in amortised constant time; ``filled`` of them are in use."""

    def __init__(self, first: Shaped[Tensor, "s ..."]) -> None:
        self._room, self.filled = first, len(first)

    @property
    def tensor(self) -> Shaped[Tensor, "s ..."]:
        """The rows in use, as a view."""
        return self._room[: self.filled]

    def append(self, rows: Shaped[Tensor, "k ..."]) -> None:
        self.reserve(len(rows))[self.filled : self.filled + len(rows)] = rows
        self.filled += len(rows)

    def reserve(self, more: int) -> Shaped[Tensor, "room ..."]:
        """Return the rows in use, with room for at least so many more behind them."""
        if self.filled + more > len(self._room):
            room = self._room.new_empty(2 * (self.filled + more), *self._room.shape[1:])
            room[: self.filled] = self.tensor
            self._room = room
        return self._room

    def state_dict(self) -> StateDict:
        """Return the rows."""
        return {"rows": self.tensor}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore saved rows; see ``Saved.load_state_dict``."""
        expect_keys(saved, ["rows"])
        like = self._room.new_empty(len(saved["rows"]), *self._room.shape[1:])
        self._room = loaded_like(like, saved["rows"], "rows")
        self.filled = len(self._room)


@dataclass(kw_only=True)
class Alg1State(State):
    """The state of Algorithm 1, with a row for each term s of f.

    ``i.tensor``, of shape (s,), holds the indices i_s, or -1 for a merged term; ``z.tensor``, (s, n), the
    evaluations z_s = F_theta_s(x_i_s); ``alpha.tensor``, (s,) or for C classes (s, C), the paper's
    alpha_s y_i_s. Steps with alpha_s = 0 have no row. ``removed`` counts the terms that a budget has cost.
    """

    i: Rows
    z: Rows
    alpha: Rows
    removed: int = 0

    @property
    def support_vectors(self) -> int:
        return self.violations + self.sampler.k - self.removed

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        super().load_state_dict(saved)
        i, s = self.i.tensor, self.support_vectors
        if not len(i) == len(self.z.tensor) == len(self.alpha.tensor) == s:
            raise ValueError(f"expected {s} terms")
        if not ((i >= NO_SAMPLE) & (i < self.sampler.m)).all():
            raise ValueError(f"i holds values that are not indices below {self.sampler.m}")

    def add(
        self, i: Int64[np.ndarray, " v"], z: Float[Tensor, "v n"], alpha: Float[Tensor, " v *outputs"]
    ) -> None:
        """Add terms."""
        self.i.append(torch.from_numpy(i))
        self.z.append(z)
        self.alpha.append(alpha)

    def refresh(self, problem: Problem) -> None:
        """Evaluate the features of all terms anew, with the current theta."""
        s = (self.i.tensor != NO_SAMPLE).nonzero().flatten()
        self.z.tensor[s] = self.F(problem[self.i.tensor[s].cpu().numpy()][0])

    def reduce(self, K: Kernel, budget: int | None, how: str) -> None:
        """Keep at most ``budget`` terms; see ``nsvm_cli.trainers.budget``."""
        if budget is None or self.i.filled <= budget:
            return
        terms, before = Terms(self.i.tensor, self.z.tensor, self.alpha.tensor), self.i.filled
        while len(terms.i) > budget:
            terms = MAINTENANCE[how](K, terms)
        self.i, self.z, self.alpha = map(Rows, terms)
        self.removed += before - budget


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Alg1(BatchTrainer[Alg1State]):
    """Gradient descent in f and theta at once (paper, Algorithm 1).

    The paper's alpha_s y_i_s is alpha_s here. A mini-batch of k samples adds a term of 1/k for each
    violation, and theta descends on their mean.

    After every ``refresh_every`` moves of theta, the stored evaluations are those of the new theta: with 1, f
    is that of Algorithm 2. At most ``budget`` terms are kept, by ``maintenance``.
    """

    steps: Count
    lam: Positive = 1e-4
    batch_size: BatchSize | None = None
    refresh_every: PositiveInt | None = None
    budget: Annotated[int, Field(ge=2)] | None = None
    maintenance: Annotated[str, entry_of(MAINTENANCE)] = "merging"

    def start(self, problem: Problem, F: FeatureMap) -> Alg1State:
        sampler = problem.sampler(self.k)
        x_1, _ = problem[sampler(1)]
        z_1 = F(x_1)
        alpha_1 = problem.first(x_1.i, z_1, self.lam).to(problem.y)
        i_1 = torch.tensor(x_1.i, device=z_1.device)
        state = Alg1State(F=F, sampler=sampler, t=1, i=Rows(i_1), z=Rows(z_1), alpha=Rows(alpha_1))
        state.reduce(problem.K, self.budget, self.maintenance)
        return state

    def step(self, problem: Problem, state: Alg1State) -> None:
        K, F, lam, t = problem.K, state.F, self.lam, state.t + 1
        z_s, alpha_s = state.z.tensor, state.alpha.tensor
        x_t, _ = problem[state.sampler(t)]  # choose i_t
        z_t = F(x_t)
        g_t = K(z_t, z_s) @ alpha_s / (lam * (t - 1))
        v, alpha_v = self.compare(problem, state, x_t.i, g_t, z_t)  # if y_i_t g_t < 1
        if len(v):
            x_v = x_t[v]

            def objective(F: Training, K: Kernel) -> Tensor:
                return -(alpha_v * (K(F(x_v), z_s) @ alpha_s)).sum() / (lam * (t - 1))

            self.descend(problem, state, objective)
            state.add(x_v.i, z_t[v], alpha_v)
            if self.refresh_every and F.theta_steps % self.refresh_every == 0:
                state.refresh(problem)
            state.reduce(K, self.budget, self.maintenance)
        state.t = t

    def finish(self, problem: Problem, state: Alg1State) -> Expansion:
        i, z, alpha = state.i.tensor, state.z.tensor, state.alpha.tensor
        of_samples = None if (i == NO_SAMPLE).any() else i
        return Expansion(z, alpha, self.lam * state.t, i=of_samples).without_zeros()
