"""The commands ``nsvm train`` and ``nsvm evaluate``."""

from __future__ import annotations

import json
import re
import resource
import shutil
import sys
from pathlib import Path

import pytest

from tests.cli.process import evaluated, nsvm, refusal, trained
from tests.conftest import real

QUICK = ["algorithm.steps=60", "threads=1", "curves=false"]


@pytest.mark.parametrize(("algorithm", "dataset"), [("alg1", "csv"), ("alg4", "ringnorm_openml")])
def test_evaluate_gives_what_the_run_recorded(algorithm: str, dataset: str, tmp_path: Path) -> None:
    overrides = [f"algorithm={algorithm}", f"dataset={dataset}", *QUICK]
    if dataset == "ringnorm_openml":
        overrides += [f"dataset.path='{real('ringnorm/ringnorm.csv')}'", "algorithm.solver_steps=60"]
    if dataset == "csv":
        table = tmp_path / "my table.csv"
        rows = [f"{i % 7 + 5 * (i % 2)},{i % 5},{'yes' if i % 2 else 'no'}" for i in range(200)]
        table.write_text("\n".join(["a,b,answer", *rows]))
        overrides += [f"dataset.path='{table}'", "dataset.label=answer"]
    run, result = trained(*overrides, cwd=tmp_path)
    before = sorted(tmp_path.rglob("*"))
    figures = evaluated(run, cwd=tmp_path)
    assert figures["accuracy"] == result["test_accuracy"]
    assert figures["errors"] == result["test_errors"]
    assert figures["samples"] == result["data"]["samples"]["test"]
    assert figures["same_data"] is True
    figures = evaluated(run, "--split", "train", cwd=tmp_path)
    assert (figures["accuracy"], figures["errors"]) == (result["train_accuracy"], result["train_errors"])
    assert sorted(tmp_path.rglob("*")) == before, "evaluate must not write files"


def test_evaluate_elsewhere_on_other_data(tmp_path: Path) -> None:
    """A model file works without its run directory, in another folder, under an odd name and on new data."""
    run, result = trained(*QUICK, "algorithm.solver_steps=200", "dataset.samples=2000", cwd=tmp_path)
    there = tmp_path / "a folder = b"
    there.mkdir()
    file = there / "final model=1.safetensors"
    shutil.copy(run / "final.safetensors", file)
    shutil.rmtree(run)
    assert evaluated(file, cwd=there)["errors"] == result["test_errors"]
    assert f"{result['test_errors']} of 200" in nsvm("evaluate", file, cwd=there, code=0).stdout
    assert evaluated(file, "--split", "all", "dataset.samples=500", cwd=there)["samples"] == 500

    names = [f"x{i}" for i in range(20)]
    rows = [",".join([*(f"{2 * ((i * j) % 7 - 3)}" for j in range(20)), "AB"[i % 2]]) for i in range(50)]
    (there / "own.csv").write_text("\n".join([",".join([*names, "label"]), *rows]))
    figures = evaluated(file, "dataset=csv", "dataset.path=own.csv", "--split", "all", cwd=there)
    assert figures["samples"] == 50
    assert figures["same_data"] is False
    done = nsvm("evaluate", file, "dataset=csv", "dataset.path=own.csv", cwd=there)
    assert "evaluating on 5 of 50 samples, the test set of new data; to evaluate on all" in done.stderr
    for words, said in [
        (["dataset=csv"], "dataset.path requires a value for dataset=csv"),
        (["dataset=digits"], "expects samples of shape (20,)"),
    ]:
        assert said in refusal("evaluate", file, *words, cwd=there)


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on the size of files simulates a full disk."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    limit, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, most))
    try:
        done = nsvm("train", "algorithm.steps=5", "log_every=1", "hydra.run.dir=run", cwd=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
    assert done.returncode == 1
    assert "File too large" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run" / "result.json").exists()


def test_a_picture_never_decides_whether_a_run_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error while drawing is only a warning, and resuming the finished run draws the curves."""
    run, digits = tmp_path / "run", ["dataset=digits", "dataset.classes=null"]
    words = ["train", "algorithm=pegasos", *digits, "algorithm.steps=20", "hydra.run.dir=run"]
    with monkeypatch.context() as broken:
        broken.setattr("matplotlib.figure.Figure.draw", lambda *_, **__: 1 / 0)
        done = nsvm(*words, cwd=tmp_path, code=0)
        said = "nsvm: warning: the curves could not be drawn: ZeroDivisionError: division by zero"
        assert done.stderr.splitlines()[-1] == said
        assert json.loads((run / "status.json").read_text())["status"] == "finished"
    done = nsvm("train", f"resume={run.name}", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (run / "curves.png").exists()


def test_an_estimate_leaves_no_file(tmp_path: Path) -> None:
    words = ["algorithm=alg4", "dataset.samples=300", "algorithm.split=[20,100]", "engine=torch"]
    done = nsvm("train", *words, "--estimate", "hydra.run.dir=runs/one", cwd=tmp_path, code=0)
    shown = {
        name: cells
        for name, *cells in (re.split(r" {2,}", line.strip()) for line in done.stdout.splitlines())
    }
    assert shown["samples"] == ["300", "270 train, 30 test"]
    assert shown["time of Part 1"][1] == "measured on 20 of 20 steps"
    assert shown.keys() >= {"epochs", "engine", "time of Part 2", "training time", "support vectors"}
    assert list(tmp_path.iterdir()) == []
