"""Values that a state can always compute again, and that know what they were computed from."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Derived(Generic[T]):
    """A value together with the version of the state that it was computed from.

    ``get`` computes it again when the version has changed; nothing has to invalidate it. It is not part of a
    checkpoint: computed again, it has the same bits.
    """

    def __init__(self) -> None:
        self._version: Hashable = None
        self._value: T | None = None

    def get(self, version: Hashable, compute: Callable[[], T]) -> T:
        """Return the value for this version, calling ``compute`` if the one at hand is of another."""
        if self._value is None or self._version != version:
            self._value, self._version = compute(), version
        return self._value
