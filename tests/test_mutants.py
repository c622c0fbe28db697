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


def test_every_mutant_is_python_that_does_something_else() -> None:
    """One with a syntax error is caught by any test, and one in a docstring by none."""
    same = [
        f"nsvm_cli/{file}: {old!r} -> {new!r}"
        for file, mutants in MUTANTS.items()
        for text in [(ROOT / "nsvm_cli" / file).read_text()]
        for old, new in mutants
        if old in text and code(text.replace(old, new, 1)) == code(text)
    ]
    assert not same, "\n".join(["changes nothing:", *same])


def code(text: str) -> str:
    """Return a module's syntax tree without its docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant("")
    return ast.dump(tree)


def test_every_file_has_tests_that_are_there() -> None:
    assert FIRST.keys() == MUTANTS.keys()
    named = {*REST, *(test for tests in FIRST.values() for test in tests)}
    assert not [test for test in named if not (ROOT / test).exists()]
