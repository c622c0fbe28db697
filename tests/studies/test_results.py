"""RESULTS.md against the files that ``nsvm reproduce`` wrote: outputs/paper/."""

from __future__ import annotations

from pathlib import Path

from nsvm_cli.studies.reproduce import read_rows
from nsvm_cli.studies.statistics import markdown, summarise

ROOT = Path(__file__).parents[2]
WRITTEN = ROOT / "outputs" / "paper"


def test_the_tables_come_from_the_runs() -> None:
    tables = markdown(summarise(read_rows(WRITTEN / "runs.csv")), full=True)
    assert (WRITTEN / "table.md").read_text().startswith(tables)
    text = (ROOT / "RESULTS.md").read_text()
    for block in tables.split("\n\n"):
        assert block.strip() in text
    assert (WRITTEN / "table.md").read_text().strip().splitlines()[-1] in text, "command and versions"


def test_each_cell_was_run_on_ten_seeds_that_tuning_never_used() -> None:
    seeds: dict[tuple[str, str], list[int]] = {}
    for row in read_rows(WRITTEN / "runs.csv"):
        seeds.setdefault((row.cell, row.method), []).append(row.seed)
    assert len([cell for cell, method in seeds if method == "nsvm"]) == 9
    assert set(map(tuple, seeds.values())) == {tuple(range(10))}
