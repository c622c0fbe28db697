"""Names that are suggested for one that is not known."""

from __future__ import annotations

import pytest

from nsvm_cli.errors import did_you_mean

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


@pytest.mark.parametrize("name", ["network.activation", "", "kernel.", 5, None])
def test_a_name_that_is_not_near_any(name: object) -> None:
    told = did_you_mean(name, KNOWN, ELSEWHERE)
    assert told == "expected one of: kernel.gamma, kernel.name, polynomial, seed"
