"""``nsvm runs``: a line for each run of a sweep."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.cli.process import nsvm, refusal

TINY = ["algorithm=alg4", "algorithm.steps=15", "algorithm.batch_size=4", "algorithm.solver_steps=5"]
TINY += ["dataset=ringnorm", "dataset.samples=300", "curves=false"]

LAMS = ("0.001", "0.01", "0.1", "1e-99")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four jobs, of which the last fails."""
    folder = tmp_path_factory.mktemp("sweep")
    done = nsvm(
        "train", "-m", f"hydra.sweep.dir='{folder}'", *TINY, "algorithm.lam=1e-3,1e-2,1e-1,1e-99", cwd=folder
    )
    assert done.returncode == 1, done.stderr
    return folder


def test_json(sweep: Path) -> None:
    done = nsvm("runs", sweep, "--json", cwd=sweep)
    assert done.returncode == 0
    runs = json.loads(done.stdout)
    assert [Path(run["path"]).name for run in runs] == ["0", "1", "2", "3"]
    assert [run["status"] for run in runs] == ["finished"] * 3 + ["failed"]
    assert [run["settings"]["algorithm"]["lam"] for run in runs[:3]] == [1e-3, 1e-2, 1e-1]
    assert [run["overrides"][-1] for run in runs] == [
        f"algorithm.lam={lam}" for lam in ("0.001", "0.01", "0.1", "1e-99")
    ]
    assert runs[0]["test_accuracy"] == json.loads((sweep / "0/result.json").read_text())["test_accuracy"]
    assert runs[3]["test_accuracy"] is None


def test_csv(sweep: Path) -> None:
    done = nsvm("runs", sweep, "--csv", "--filter", "status=finished", cwd=sweep)
    rows = [*csv.DictReader(io.StringIO(done.stdout))]
    assert [float(row["algorithm.lam"]) for row in rows] == [1e-3, 1e-2, 1e-1]
    assert all(float(row["test_accuracy"]) > 0.4 for row in rows)


def test_table(sweep: Path) -> None:
    done = nsvm("runs", "--sort", "algorithm.lam", "--descending", sweep, cwd=sweep, env={"COLUMNS": "200"})
    first, *lines = done.stdout.splitlines()
    assert first == f"{sweep}: 3 finished, 1 failed"
    assert [line.split("│")[1].strip() for line in lines if line.startswith("│")] == ["2", "1", "0", "3"]
    assert "algorithm.lam" in lines[1]
    assert "the decision function is not finite" in lines[-2]


def test_bad_input(sweep: Path, tmp_path: Path) -> None:
    assert "there is no such folder" in refusal("runs", "missing", cwd=tmp_path)
    assert "there is no run in or below it" in refusal("runs", tmp_path, cwd=tmp_path)
    assert "did you mean train_accuracy" in refusal("runs", sweep, "--sort", "train_acc", cwd=tmp_path)
    assert "not allowed with" in refusal("runs", sweep, "--csv", "--json", cwd=tmp_path)
    assert nsvm("runs", sweep, "--filter", "seed=7", cwd=tmp_path).stdout == "no run is like that\n"
