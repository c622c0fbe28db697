"""The terms of Algorithm 1, which keep the features that they had when they were added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor

from nsvm_cli.models.kernels import Kernel
from nsvm_cli.storage.state_dict import StateDict, expect_keys, loaded_like
from nsvm_cli.trainers.base import Problem, State
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
