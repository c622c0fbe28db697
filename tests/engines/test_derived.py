"""Derived values are recomputed when their version changes."""

from __future__ import annotations

from nsvm_cli.engines.look_ahead.derived import Derived


def test_a_value_is_computed_once_for_each_version() -> None:
    calls: list[int] = []

    def compute() -> int:
        calls.append(len(calls))
        return len(calls)

    value: Derived[int] = Derived()
    assert [value.get((0, 0), compute), value.get((0, 0), compute), value.get((1, 0), compute)] == [1, 1, 2]
    assert value.get((0, 0), compute) == 3, "an earlier version is another one too"
