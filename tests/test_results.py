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
    blocks = (WRITTEN / name / "table.md").read_text().strip().split("\n\n")
    tables = [block for block in blocks if block.startswith("|")]
    assert tables
    for table in tables:
        assert table in text


CHOSEN = ("dataset", "dataset.table", "algorithm", "network.name", "network.widths", "kernel.gamma", "steps")


@pytest.mark.parametrize(("name", "count"), [("paper", 10), ("mnist10", 3), ("tables", 3)])
def test_each_candidate_was_run_on_seeds_that_tuning_never_used(name: str, count: int) -> None:
    seeds: dict[tuple[str | None, ...], list[int]] = {}
    with (WRITTEN / name / "runs.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            seeds.setdefault(tuple(map(row.get, CHOSEN)), []).append(int(row["seed"]))
    assert {tuple(sorted(some)) for some in seeds.values()} == {tuple(range(count))}
