"""``nsvm runs``: a line for each run of a sweep."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from nsvm_cli.storage.run_directory import write_status
from tests.cli.process import nsvm, refusal

TINY = ["algorithm=alg4", "algorithm.steps=15", "algorithm.batch_size=4", "algorithm.solver_steps=5"]
TINY += ["dataset=ringnorm", "dataset.samples=300", "curves=false"]

LAMS = ("0.001", "0.01", "0.1", "1e-99")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a sweep whose fourth and last job fails."""
    folder = tmp_path_factory.mktemp("sweep")
    words = [*TINY, "hydra.sweep.dir=.", "hydra.sweep.subdir='${hydra.job.num}'"]
    nsvm("train", "-m", *words, "algorithm.lam=1e-3,1e-2,1e-1,1e-99", cwd=folder, code=1)
    return folder


def test_json(sweep: Path) -> None:
    done = nsvm("runs", sweep, "--json", cwd=sweep, code=0)
    runs = json.loads(done.stdout)
    assert [Path(run["path"]).name for run in runs] == ["0", "1", "2", "3"]
    assert [run["status"] for run in runs] == ["finished"] * 3 + ["failed"]
    assert [run["settings"]["algorithm"]["lam"] for run in runs[:3]] == [1e-3, 1e-2, 1e-1]
    assert [run["overrides"][-1] for run in runs] == [f"algorithm.lam={lam}" for lam in LAMS]
    assert runs[0]["test_accuracy"] == json.loads((sweep / "0/result.json").read_text())["test_accuracy"]
    assert runs[3]["test_accuracy"] is None


def test_formulas_are_escaped_if_asked(tmp_path: Path) -> None:
    write_status(tmp_path / "run", "failed", "=1+1")
    (tmp_path / "run" / "config.yaml").write_text('seed: 1\n"@x": -1\n')
    for flags, cells in (([], ("@x", "=1+1")), (["--escape-formulas"], ("'@x", "'=1+1"))):
        done = nsvm("runs", "run", "--csv", *flags, cwd=tmp_path, code=0)
        [row] = csv.DictReader(io.StringIO(done.stdout))
        assert (row[cells[0]], row["message"]) == ("-1", cells[1])


def test_table(sweep: Path) -> None:
    done = nsvm("runs", "--sort", "algorithm.lam", "--descending", sweep, cwd=sweep, env={"COLUMNS": "200"})
    first, *lines = done.stdout.splitlines()
    assert first == f"{sweep}: 3 finished, 1 failed"
    assert [line.split()[0] for line in lines[2:]] == ["2", "1", "0", "3"]
    assert lines[0].split() == [
        *("run", "algorithm.lam", "status", "test_accuracy", "train_accuracy", "support_vectors"),
        *("train_seconds", "message"),
    ]
    assert "the decision function is not finite" in lines[-1]


@pytest.mark.parametrize("width", [70, 120])
def test_the_runs_of_several_sweeps_on_terminals_of_any_width(width: int, tmp_path: Path) -> None:
    """Long names are folded and columns may be left out, but never the status and the scores."""
    expected = []
    for n in range(4):
        score, split = n / 9, "validation" if n % 2 else "test"
        settings = {"seed": n, "curves": bool(n % 2), "optimizer": {"lr": n / 7, "momentum": n / 3}}
        settings |= {part: {"name": f"{part[:3]}{n}"} for part in ("dataset", "algorithm")}
        settings |= {"kernel": {"name": f"long_kernel_{n}", "gamma": n / 7}}
        result = {f"{split}_accuracy": score, "train_accuracy": 0.5, "train_seconds": 1.0}
        result["settings"] = settings  # type: ignore[assignment]
        (folder := tmp_path / f"{'long_' * 12}{n // 2}" / str(n)).mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps(result))
        expected.append({f"dat{n}", str(n), f"alg{n}", "finished", f"{100 * score:.2f}", "%"})
    done = nsvm("runs", ".", cwd=tmp_path, env={"COLUMNS": str(width)})
    _, *table = done.stdout.splitlines()
    rows = [{*line.split()} for line in table if "finished" in line]
    assert all(cells <= row for cells, row in zip(expected, rows, strict=True)), rows
    assert max(map(len, table)) <= width
    said = done.stderr.removeprefix("columns that do not fit the terminal: ").partition(";")[0]
    left_out = {*said.split(", ")}
    assert "curves" in left_out or width == 120
    assert not {"dataset", "algorithm", "seed", "test_accuracy", "validation_accuracy"} & left_out


def test_bad_input(sweep: Path, tmp_path: Path) -> None:
    assert "there is no such folder" in refusal("runs", "missing", cwd=tmp_path)
    assert "did you mean train_accuracy" in refusal("runs", sweep, "--sort", "train_acc", cwd=tmp_path)
    assert "not allowed with" in refusal("runs", sweep, "--csv", "--json", cwd=tmp_path)
    assert "--escape-formulas requires --csv" in refusal("runs", sweep, "--escape-formulas", cwd=tmp_path)
    assert nsvm("runs", sweep, sweep / "multirun.yaml", cwd=tmp_path, code=0)
    assert "is a file; expected run" in refusal("runs", sweep / "multirun.yaml", cwd=tmp_path)
    assert "--descending requires --sort" in refusal("runs", sweep, "--descending", cwd=tmp_path)
    for words in ([], ["--filter", "kernel=rbf"], ["--sort", "seed"]):
        done = nsvm("runs", sweep, "--filter", "seed=7", *words, cwd=tmp_path)
        assert done.stdout == "no run matches the filter\n"
