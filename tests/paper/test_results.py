"""RESULTS.md against the files that ``nsvm reproduce`` wrote, in outputs/."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsvm_cli.paper.reproduce import read_rows
from nsvm_cli.paper.statistics import markdown, summarise

ROOT = Path(__file__).parents[2]
WRITTEN = ROOT / "outputs"


@pytest.mark.parametrize("name", ["paper", "mnist10", "tables"])
def test_the_tables_come_from_the_runs(name: str) -> None:
    tables = markdown(summarise(read_rows(WRITTEN / name / "runs.csv")), full=True)
    written = (WRITTEN / name / "table.md").read_text()
    assert written.startswith(tables)
    text = (ROOT / "RESULTS.md").read_text()
    for block in tables.split("\n\n"):
        assert block.strip() in text
    assert written.strip().splitlines()[-1] in text, "command and versions"


@pytest.mark.parametrize(("name", "cells", "count"), [("paper", 9, 10), ("mnist10", 1, 5), ("tables", 8, 3)])
def test_each_cell_was_run_on_seeds_that_tuning_never_used(name: str, cells: int, count: int) -> None:
    seeds: dict[tuple[str, str], list[int]] = {}
    for row in read_rows(WRITTEN / name / "runs.csv"):
        seeds.setdefault((row.cell, row.method), []).append(row.seed)
    assert len([cell for cell, method in seeds if method == "nsvm"]) == cells
    assert set(map(tuple, seeds.values())) == {tuple(range(count))}
