"""Cached values that a state can recompute, and that know what they were computed from."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Derived(Generic[T]):
    """A cached value, with the version of the state that it was computed from.

    ``get`` recomputes the value whenever the version has changed, so it never has to be invalidated. It is
    not part of a checkpoint, since recomputing it gives the same bits.
    """

    def __init__(self) -> None:
        self._version: Hashable = None
        self._value: T | None = None

    def get(self, version: Hashable, compute: Callable[[], T]) -> T:
        """Return the value for this version, calling ``compute`` if the cached one is of another version."""
        if self._value is None or self._version != version:
            self._value, self._version = compute(), version
        return self._value
