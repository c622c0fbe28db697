"""A tensor that grows by rows, for the support vectors of Algorithm 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor

from nsvm_cli.storage.state_dict import StateDict, expect_keys, loaded_like


class Rows:
    """A tensor to which rows can be appended in amortised constant time."""

    def __init__(self, first: Float[Tensor, "s ..."]) -> None:
        self._room, self._filled = first, len(first)

    @property
    def tensor(self) -> Float[Tensor, "s ..."]:
        return self._room[: self._filled]

    def append(self, rows: Float[Tensor, "k ..."]) -> None:
        filled = self._filled + len(rows)
        if filled > len(self._room):
            room = self._room.new_empty(2 * filled, *rows.shape[1:])
            room[: self._filled] = self.tensor
            self._room = room
        self._room[self._filled : filled] = rows
        self._filled = filled

    def state_dict(self) -> StateDict:
        """Return the rows."""
        return {"rows": self.tensor}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore saved rows; see ``State.load_state_dict``."""
        expect_keys(saved, ["rows"])
        like = self._room.new_empty(len(saved["rows"]), *self._room.shape[1:])
        self._room = loaded_like(like, saved["rows"], "rows")
        self._filled = len(self._room)
