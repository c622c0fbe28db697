"""Suggestions for unknown names, and messages about a lack of memory."""

from __future__ import annotations

import pytest

from nsvm_cli.errors import did_you_mean, out_of_memory

KNOWN = ["kernel.gamma", "kernel.name", "seed", "polynomial"]
ELSEWHERE = ["optimizer.lr", "network.normalize", "dataset.normalize", "dataset.validation"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("sed", "seed"),
        ("SEED", "seed"),
        ("poly", "polynomial"),
        ("kernel.gama", "kernel.gamma"),
        ("lr", "optimizer.lr"),
        ("kernel.lr", "optimizer.lr"),
        ("normalise", "dataset.normalize or network.normalize"),
    ],
)
def test_the_nearest_name_is_suggested(name: str, meant: str) -> None:
    told = did_you_mean(name, KNOWN, ELSEWHERE)
    assert told == f"did you mean {meant}? (known: kernel.gamma, kernel.name, polynomial, seed)"


def test_a_name_that_is_not_near_any() -> None:
    for name in ("network.activation", "", "kernel.", 5, None):
        told = did_you_mean(name, KNOWN, ELSEWHERE)
        assert told == "expected one of: kernel.gamma, kernel.name, polynomial, seed"


@pytest.mark.parametrize(
    ("reason", "short"),
    [("failed to map segment from shared object", True), ("no such file or directory", False)],
)
def test_a_library_that_does_not_fit_into_memory(reason: str, short: bool) -> None:
    """llvmlite always reports that the file cannot be found; only the exception's context has the reason."""
    try:
        try:
            raise OSError(f"libllvmlite.so: {reason}")
        except OSError:
            raise OSError("Could not find/load shared object file 'libllvmlite.so'")  # noqa: B904  # as llvmlite does
    except OSError as error:
        shortage = out_of_memory(error)
    assert (shortage is not None) == short
    if short:
        assert str(shortage).startswith(f"out of memory: libllvmlite.so: {reason}; ")
