"""Limits on the memory for tables and blocks of samples."""

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
    """Context manager: limit tables to ``budget`` MiB, or to MEMORY_BUDGET if that is more."""
    token = _limit.set(max(budget, MEMORY_BUDGET))
    try:
        yield
    finally:
        _limit.reset(token)


def expect_room(size: int, what: str) -> None:
    """Raise an InputError if a file of ``size`` bytes exceeds the limit."""
    if size > _limit.get() * 2**20:
        raise InputError(
            f"{what} has {size / 2**20:,.0f} MiB, more than memory_budget={_limit.get()}; "
            f"set memory_budget={-(-size // 2**20)} or use fewer samples"
        )


def rows_at_a_time(row: int) -> int:
    """Return the number of rows of ``row`` bytes in a block of 32 MiB, at least one."""
    return max(1, 2**25 // max(1, row))
