"""The mutants of scripts/mutants are made of what the source says today."""

from __future__ import annotations

import ast
from pathlib import Path

from scripts.mutation.mutants import FIRST, MUTANTS, REST

ROOT = Path(__file__).parents[1]


def test_every_pattern_stands_in_the_source() -> None:
    lost = [
        f"nsvm_cli/{file}: {old!r}"
        for file, mutants in MUTANTS.items()
        for old, _ in mutants
        if not (ROOT / "nsvm_cli" / file).is_file() or old not in (ROOT / "nsvm_cli" / file).read_text()
    ]
    assert not lost, "\n".join(["no longer in the source:", *lost])


def test_every_mutant_is_python() -> None:
    """One that is not would be caught by any test that imports it."""
    for file, mutants in MUTANTS.items():
        text = (ROOT / "nsvm_cli" / file).read_text()
        for old, new in mutants:
            ast.parse(text.replace(old, new, 1))


def test_every_file_has_tests_that_are_there() -> None:
    assert FIRST.keys() == MUTANTS.keys()
    named = {*REST, *(test for tests in FIRST.values() for test in tests)}
    assert not [test for test in named if not (ROOT / test).exists()]
