"""RESULTS.md against the files that ``nsvm reproduce`` wrote: outputs/paper/."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from nsvm_cli.studies.reproduce import Row
from nsvm_cli.studies.statistics import markdown, summarise

ROOT = Path(__file__).parents[2]
WRITTEN = ROOT / "outputs" / "paper"


def rows() -> list[Row]:
    text = {"cell", "dataset", "method"}
    found = []
    with (WRITTEN / "runs.csv").open() as file:
        for line in csv.DictReader(file):
            values: dict[str, Any] = {k: v if k in text else float(v) if v else None for k, v in line.items()}
            whole = {k: int(v) for k, v in values.items() if isinstance(v, float) and v.is_integer()}
            floats = {k: values[k] for k in ("accuracy", "overlap", "seconds")}
            found.append(Row(**{**values, **whole, **floats}))
    return found


def test_the_tables_come_from_the_runs() -> None:
    tables = markdown(summarise(rows()), full=True)
    assert (WRITTEN / "table.md").read_text().startswith(tables)
    text = (ROOT / "RESULTS.md").read_text()
    for block in tables.split("\n\n"):
        assert block.strip() in text
    assert (WRITTEN / "table.md").read_text().strip().splitlines()[-1] in text, "command and versions"


def test_each_cell_was_run_on_ten_seeds_that_tuning_never_used() -> None:
    seeds: dict[tuple[str, str], list[int]] = {}
    for row in rows():
        seeds.setdefault((row.cell, row.method), []).append(row.seed)
    assert len([cell for cell, method in seeds if method == "nsvm"]) == 9
    assert set(map(tuple, seeds.values())) == {tuple(range(10))}
