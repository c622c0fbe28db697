"""The memory that data, networks and model files may take; larger requests fail before allocation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from nsvm_cli.errors import InputError

MEMORY_BUDGET = 1024
"""Default of ``memory_budget``, in MiB."""

BLOCK_BYTES = 2**25
"""Memory for a block of samples at each stage of prediction: reading, network, decision, writing."""

SAMPLE_BYTES = 2**27
"""The most memory that a single sample may take at a stage."""

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


def rows_at_a_time(row: int) -> int:
    """Return how many rows of so many bytes make a block, at least one; see ``BLOCK_BYTES``."""
    return max(1, BLOCK_BYTES // max(1, row))


def expect_room_for_sample(needed: int, what: str) -> None:
    """Raise an InputError if a single sample takes more bytes at a stage than ``SAMPLE_BYTES``."""
    if needed > SAMPLE_BYTES:
        raise InputError(
            f"{what} of a single sample would take about {needed / 2**20:,.0f} MiB of memory, expected at "
            f"most {SAMPLE_BYTES // 2**20}"
        )
