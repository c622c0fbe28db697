"""RESULTS.md against the published runs."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WRITTEN = ROOT / "outputs"


@pytest.mark.parametrize("name", ["paper", "mnist10", "tables"])
def test_the_page_has_the_published_tables(name: str) -> None:
    text = (ROOT / "RESULTS.md").read_text()
    *tables, made_with = (WRITTEN / name / "table.md").read_text().strip().split("\n\n")
    assert len(tables) > 2
    for block in tables:
        assert block in text
    assert made_with.partition(" with ")[2] in text, "versions"


@pytest.mark.parametrize(("name", "cells", "count"), [("paper", 9, 10), ("mnist10", 1, 5), ("tables", 8, 3)])
def test_each_cell_was_run_on_seeds_that_tuning_never_used(name: str, cells: int, count: int) -> None:
    seeds: dict[tuple[str, str], list[int]] = {}
    with (WRITTEN / name / "runs.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            seeds.setdefault((row["cell"], row["method"]), []).append(int(row["seed"]))
    assert len([cell for cell, method in seeds if method == "nsvm"]) == cells
    assert set(map(tuple, seeds.values())) == {tuple(range(count))}
