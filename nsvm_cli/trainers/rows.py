"""A tensor that grows by rows, for the support vectors of Algorithm 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxtyping import Shaped
from torch import Tensor

from nsvm_cli.storage.state_dict import StateDict, expect_keys, loaded_like


class Rows:
    """A tensor to which rows can be appended in amortised constant time; ``filled`` of them are in use."""

    def __init__(self, first: Shaped[Tensor, "s ..."]) -> None:
        self._room, self.filled = first, len(first)

    @property
    def tensor(self) -> Shaped[Tensor, "s ..."]:
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
        """Restore saved rows; see ``State.load_state_dict``."""
        expect_keys(saved, ["rows"])
        like = self._room.new_empty(len(saved["rows"]), *self._room.shape[1:])
        self._room = loaded_like(like, saved["rows"], "rows")
        self.filled = len(self._room)
