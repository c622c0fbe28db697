"""Methods without steps in sweeps and in every command that takes a run."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.cli.process import evaluated, nsvm, refusal, run_files, trained
from tests.small_tables import small_table

METHODS = ("svc", "nystroem", "linear_svm", "logistic", "trees", "majority")
SWEEP = ["train", "-m", "dataset=digits", f"algorithm={','.join(METHODS)}", "hydra.sweep.dir=sweep"]
SWEEP += ["hydra.sweep.subdir='${hydra.job.num}'"]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("methods")
    done = nsvm(*SWEEP, cwd=folder, code=0)
    assert "6 finished, 0 failed" in done.stdout
    assert "curves" not in done.stderr, "expected no warning about curves, since these methods have none"
    return folder


def test_a_method_without_steps_has_none_to_resume(sweep: Path) -> None:
    done = nsvm("train", "resume=sweep/1", "algorithm.lam=1", cwd=sweep, code=2)
    assert done.stderr.splitlines()[-1].endswith("sweep/1 has no steps to resume: start a new run")


def test_a_sweep_over_methods_is_resumed_and_compared(sweep: Path) -> None:
    before = run_files(sweep)
    nsvm(*SWEEP, cwd=sweep, code=0)
    assert run_files(sweep) == before
    done = nsvm("compare", "sweep", "--format", "csv", cwd=sweep, code=0)
    accuracy = {row["settings"]: float(row["mean"]) for row in csv.DictReader(done.stdout.splitlines())}
    assert accuracy.keys() == {*METHODS}
    assert accuracy.pop("majority") == pytest.approx(50, abs=1)
    assert min(accuracy.values()) > 95


def test_every_command_takes_such_a_run_or_says_why_not(sweep: Path) -> None:
    for job, name in enumerate(METHODS):
        run = f"sweep/{job}"
        result = json.loads((sweep / run / "result.json").read_text())
        steps = 100 if name == "svc" else 0
        assert (result["algorithm"], result["steps"], result["theta_steps"]) == (name, steps, 0)
        others = ("diagnose", run), ("export", run, "--onnx")
        if name == "trees":
            assert not (sweep / run / "final.safetensors").exists()
            for words in (("evaluate", run, "--json"), *others):
                assert "a model of algorithm=trees cannot be saved" in refusal(*words, cwd=sweep)
        else:
            assert evaluated(Path(run), cwd=sweep)["errors"] == result["test_errors"]
            for words, code in zip(others, [2 if name == "majority" else 0, 0], strict=True):
                nsvm(*words, cwd=sweep, code=code)
        if name in ("trees", "majority"):  # test_report.py checks the sections of other models
            nsvm("report", run, cwd=sweep, code=0)


def test_a_model_predicts_with_the_values_that_the_search_chose(tmp_path: Path) -> None:
    table = small_table("three classes", tmp_path)["dataset"]["path"]
    words = ["dataset=csv", f"dataset.path={table}", "dataset.validation=20"]
    words += ["algorithm=svc", "algorithm.grid={C: [0.01, 10], gamma: [0.2, 20]}"]
    _, result = trained(*words, cwd=tmp_path)
    assert (result["candidates"], result["chosen"]) == (4, {"C": 10, "gamma": 0.2})
    assert result["settings"]["algorithm"]["grid"] == {"C": [0.01, 10], "gamma": [0.2, 20]}
    assert evaluated(tmp_path / "run", cwd=tmp_path)["errors"] == result["validation_errors"]
    predicted = nsvm("predict", "run", table, cwd=tmp_path, code=0).stdout.splitlines()
    assert len(predicted) == 241
