"""The memory that data, networks and model files may take: more is refused before it is allocated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from nsvm_cli.errors import InputError

MEMORY_BUDGET = 1024
"""Default of ``memory_budget``, in MiB."""

_limit: ContextVar[int] = ContextVar("limit", default=MEMORY_BUDGET)


@contextmanager
def memory_limit(budget: int) -> Iterator[None]:
    """Let ``expect_room`` allow this many MiB within the context, or MEMORY_BUDGET if that is more."""
    token = _limit.set(max(budget, MEMORY_BUDGET))
    try:
        yield
    finally:
        _limit.reset(token)


def fits(needed: int) -> bool:
    """Return whether so many bytes are within the limit."""
    return needed <= _limit.get() * 2**20


def expect_room(needed: int, what: str) -> None:
    """Raise an InputError unless so many bytes, an estimate of the peak, are within the limit."""
    if not fits(needed):
        raise InputError(
            f"{what} needs about {needed / 2**20:,.0f} MiB of memory, more than "
            f"memory_budget={_limit.get()}: if that is intended, raise memory_budget"
        )
