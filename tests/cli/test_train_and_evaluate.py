"""Training and evaluating as a user does: real processes, one after the other."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from tests.cli.process import NSVM, evaluated, nsvm, trained
from tests.conftest import real

QUICK = ["algorithm.steps=60", "threads=1"]


@pytest.mark.parametrize(
    ("algorithm", "dataset"),
    [
        ("pegasos", "ringnorm"),
        ("alg1", "digits"),
        ("alg2", "csv"),
        ("alg3", "mnist"),
        ("alg4", "ringnorm_openml"),
    ],
)
def test_evaluate_gives_what_the_run_recorded(algorithm: str, dataset: str, tmp_path: Path) -> None:
    overrides = [f"algorithm={algorithm}", f"dataset={dataset}", *QUICK]
    if dataset == "mnist":
        overrides += [f"dataset.root='{real('mnist')}'"]
    if dataset == "ringnorm_openml":
        overrides += [f"dataset.path='{real('ringnorm/ringnorm.csv')}'", "algorithm.solver_steps=60"]
    if dataset == "csv":
        table = tmp_path / "my table.csv"
        rows = [f"{i % 7 + 5 * (i % 2)},{i % 5},{'yes' if i % 2 else 'no'}" for i in range(200)]
        table.write_text("\n".join(["a,b,answer", *rows]))
        overrides += [f"dataset.path='{table}'", "dataset.label=answer"]
    run, result = trained(*overrides, cwd=tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for path in (run, run / "final.safetensors"):
        figures = evaluated(path, cwd=tmp_path)
        assert figures["accuracy"] == result["test_accuracy"]
        assert figures["errors"] == result["test_errors"]
        assert figures["samples"] == result["data"]["samples"]["test"]
        assert figures["same_data"] is True
    figures = evaluated(run, "split=train", cwd=tmp_path)
    assert (figures["accuracy"], figures["errors"]) == (result["train_accuracy"], result["train_errors"])
    assert sorted(tmp_path.rglob("*")) == before, "evaluate writes nothing"


def test_the_same_seed_gives_the_same_run(tmp_path: Path) -> None:
    results = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        run, _ = trained("algorithm=alg2", "dataset=digits", "seed=3", *QUICK, cwd=tmp_path / folder)
        results.append([(run / name).read_bytes() for name in ("final.safetensors", "metrics.jsonl")])
    assert results[0] == results[1]


def test_evaluate_elsewhere_on_other_data(tmp_path: Path) -> None:
    """A checkpoint alone, under an odd name, from another folder, on a table of its user's own."""
    run, result = trained(*QUICK, "algorithm.solver_steps=200", cwd=tmp_path)
    there = tmp_path / "a folder = b"
    there.mkdir()
    file = there / "final model=1.safetensors"
    shutil.copy(run / "final.safetensors", file)
    shutil.rmtree(run)
    assert evaluated(file, cwd=there)["errors"] == result["test_errors"]
    done = nsvm("evaluate", file, cwd=there)
    assert done.returncode == 0
    assert f"{result['test_errors']} of 740" in done.stdout
    assert evaluated(file, "split=all", "dataset.samples=5000", cwd=there)["samples"] == 5000

    names = [f"x{i}" for i in range(20)]
    rows = [",".join([*(f"{2 * ((i * j) % 7 - 3)}" for j in range(20)), "AB"[i % 2]]) for i in range(50)]
    (there / "own.csv").write_text("\n".join([",".join([*names, "label"]), *rows]))
    figures = evaluated(file, "dataset=csv", "dataset.path=own.csv", "split=all", cwd=there)
    assert figures["samples"] == 50
    assert figures["same_data"] is False
    (there / "own.csv").write_text((there / "own.csv").read_text().replace(",A\n", ",C\n"))
    refused = nsvm("evaluate", file, "dataset=csv", "dataset.path=own.csv", "split=all", cwd=there)
    assert refused.returncode == 2
    assert "the model tells A from B, own.csv has B, C" in refused.stderr
    for words, said in [
        (["dataset=csv"], "dataset.path: csv needs a value"),
        (["dataset=csv", "dataset.path=${"], "dataset.path=${ does not exist"),
        (["dataset=cvs"], "dataset=cvs: there is no such dataset; did you mean csv?"),
        (["dataset.samples=few"], "dataset.samples should be a valid integer"),
        (["threads=0"], "threads should be greater than 0"),
    ]:
        refused = nsvm("evaluate", file, *words, cwd=there)
        assert refused.returncode == 2
        assert refused.stderr.count("\n") == 1
        assert said in refused.stderr
    refused = nsvm("evaluate", file, "dataset=digits", cwd=there)
    assert refused.returncode == 2
    assert "expects samples of shape (20,)" in refused.stderr


def test_a_sweep_with_flags_after_overrides(tmp_path: Path) -> None:
    words = [
        "algorithm=alg3",
        "dataset=digits",
        "algorithm.steps=5",
        "seed=1,2",
        "-m",
        "hydra.sweep.dir=sweep",
    ]
    done = nsvm("train", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    seeds = [json.loads((tmp_path / "sweep" / str(i) / "result.json").read_text())["seed"] for i in (0, 1)]
    assert seeds == [1, 2]


def test_default_run_directories_are_never_shared(tmp_path: Path) -> None:
    command = [*NSVM, "train", "algorithm=pegasos", "algorithm.steps=5"]
    runs = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [run.wait(timeout=120) for run in runs] == [0, 0, 0]
    assert len(list((tmp_path / "outputs" / "ringnorm_pegasos").glob("*/result.json"))) == 3


def test_the_recorded_configuration_composes_the_same_run(tmp_path: Path) -> None:
    run, _ = trained("algorithm=alg3", "dataset=digits", "algorithm.mu=0.5", "seed=4", *QUICK, cwd=tmp_path)
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["algorithm"] == {"name": "alg3", "steps": 60, "lam": 1e-4, "mu": 0.5, "batch_size": 4}
    assert config["seed"] == 4


def test_ctrl_c_stops_without_a_traceback(tmp_path: Path) -> None:
    command = [
        *NSVM,
        "train",
        "algorithm=alg1",
        "algorithm.steps=100000000",
        "log_every=1",
        "hydra.run.dir=run",
    ]
    run = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    metrics = tmp_path / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    _, stderr = run.communicate(timeout=60)
    assert run.returncode == 130
    assert re.match(r"nsvm: interrupted after step \d+ of 100000000; go on with", stderr.splitlines()[-1])
    assert "Traceback" not in stderr
    assert not (tmp_path / "run" / "result.json").exists()
    for line in metrics.read_text().splitlines()[:-1]:
        json.loads(line)


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    """A limit on the size of files stands in for the disk: the first write that hits it fails."""
    words = [*NSVM, "train", "algorithm.steps=5", "log_every=1", "hydra.run.dir=run"]
    limited = f"ulimit -f 4; trap '' XFSZ; exec {' '.join(words)}"
    done = subprocess.run(["bash", "-c", limited], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "File too large" in done.stderr.splitlines()[-1]
    assert [line for line in done.stderr.splitlines() if not line.startswith(("step", "alg4"))] == [
        done.stderr.splitlines()[-1]
    ]
    assert not (tmp_path / "run" / "result.json").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_output_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o555)
    done = nsvm("train", "algorithm.steps=5", "hydra.run.dir=closed/run", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "Permission denied" in done.stderr
