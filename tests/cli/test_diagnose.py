"""``nsvm diagnose``: figures of a model, and a verdict."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.process import nsvm, trained

pytestmark = pytest.mark.usefixtures("unchecked")

TINY = ["algorithm=alg1", "algorithm.steps=40", "curves=false", "engine=torch"]
CONTRACT = {
    *("alignment_train", "alignment_test", "entropy", "distance_identity", "distance_ones", "duality_gap"),
    *("test_accuracy", "refit_accuracy", "frozen_accuracy", "refreshed_accuracy", "verdict"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a table with a column of text."""
    folder = tmp_path_factory.mktemp("diagnose")
    rows = [f"{n % 7 - 3},{'red' if n % 5 else 'blue'},{'yes' if n % 7 > 3 else 'no'}" for n in range(60)]
    (folder / "table.csv").write_text("\n".join(["a,b,label", *rows]))
    trained(*TINY, "dataset=csv", "dataset.path=table.csv", cwd=folder)
    return folder


def test_a_table_that_fits_a_terminal(folder: Path) -> None:
    done = nsvm("diagnose", "run", cwd=folder, code=0)
    *table, verdict = done.stdout.splitlines()
    assert all(len(line) <= 80 for line in table)
    assert all(line.strip() and not line.startswith(" ") for line in table), "one line each"
    assert ": " in verdict


def test_json(folder: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in (folder / "run").iterdir()}
    figures = json.loads(nsvm("diagnose", "run", "--json", cwd=folder, code=0).stdout)
    assert {*figures} >= CONTRACT
    result = json.loads((folder / "run" / "result.json").read_text())
    assert figures["test_accuracy"] == result["test_accuracy"]
    assert figures["alignment_train"] == pytest.approx(result["alignment"], rel=1e-5)
    assert {file: file.stat().st_mtime_ns for file in (folder / "run").iterdir()} == before
    file = json.loads(nsvm("diagnose", "run/final.safetensors", "--json", cwd=folder, code=0).stdout)
    assert file == figures


def test_data_that_have_changed_are_one_line(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "run", tmp_path / "run")
    (tmp_path / "table.csv").write_text((folder / "table.csv").read_text().replace("red", "green"))
    done = nsvm("diagnose", "run", cwd=tmp_path, code=2)
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
