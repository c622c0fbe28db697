"""The paper's table as a user makes it, shortened."""

from __future__ import annotations

import csv
import time
from pathlib import Path

import pytest

from nsvm_cli.engines.numba.code import code_folder
from tests.cli.process import nsvm, start

SHORT = ["reproduce", "quick=true", "cells=digits_alg4", "seeds=1", "jobs=1", "directory=out"]

pytestmark = pytest.mark.usefixtures("unchecked")


def figures(folder: Path) -> list[dict[str, str]]:
    """The rows, without the times."""
    with (folder / "out" / "runs.csv").open() as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


@pytest.mark.thorough
@pytest.mark.usefixtures("inline_workers")
def test_killed_it_repeats_nothing_and_ends_with_the_same_table(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir(), cut.mkdir()
    # where what is compiled is kept: whether it is there decides which engine a run has
    process = start(*SHORT, cwd=cut, env={"XDG_CACHE_HOME": str(code_folder().parents[2])})
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and not [*cut.rglob("result.json")]:
        time.sleep(0.02)
    process.kill()
    process.communicate()
    files = {file: file.stat().st_mtime_ns for file in cut.rglob("*")}
    finished = {file: file.stat().st_mtime_ns for name in ("result.json", "svc*") for file in cut.rglob(name)}
    assert finished
    assert not (cut / "out" / "runs.csv").exists(), "it was cut off"

    nsvm(*SHORT, cwd=whole, code=0)
    methods = {"nsvm", "svc_on_features", "frozen", "network", "svc"}
    assert {row["method"] for row in figures(whole)} == methods
    assert len(figures(whole)) == 4 + 1
    networks = [float(row["accuracy"]) for row in figures(whole) if row["method"] == "network"]
    assert min(networks) > 0.9, "a baseline at chance is none"
    assert (whole / "out" / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "| `digits_alg4` |" in (whole / "out" / "table.md").read_text()
    # meanwhile
    assert files == {file: file.stat().st_mtime_ns for file in cut.rglob("*")}, "no orphan writes on"

    nsvm(*SHORT, cwd=cut, code=0)
    assert figures(cut) == figures(whole)
    assert finished == {file: file.stat().st_mtime_ns for file in finished}
