"""Runs that are killed or interrupted as real processes, and resumed."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest
import yaml

import nsvm_cli
from nsvm_cli.compose.composition import compose_settings
from nsvm_cli.parallel.signals import ONE_REQUEST
from nsvm_cli.storage.files import locked
from nsvm_cli.storage.run_directory import checkpoints_in
from tests.cli.process import nsvm, refusal, start, wait_for
from tests.patience import PATIENCE
from tests.runs.test_train import bits

STEPS = 3000
WORDS = ["algorithm=alg1", f"algorithm.steps={STEPS}", "log_every=50", "checkpoint.every=100", "curves=false"]
WORDS += ["engine=torch"]  # which takes long enough to be killed
SECRET = {"SECRET_TOKEN": "hush-hush"}

pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.fixture(scope="module")
def twin(unchecked: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that was never interrupted."""
    folder = tmp_path_factory.mktemp("twin")
    nsvm("train", *WORDS, "hydra.run.dir=run", cwd=folder, code=0)
    return folder / "run"


def test_killed_and_resumed(twin: Path, tmp_path: Path) -> None:
    run = start("train", *WORDS, "hydra.run.dir=run", cwd=tmp_path)
    wait_for(lambda: len(checkpoints_in(tmp_path / "run")) > 1, run)
    run.kill()
    run.communicate()
    text = (tmp_path / "run" / "metrics.jsonl").read_text()
    steps = [json.loads(line)["step"] for line in text.splitlines()]
    assert text.endswith("\n")
    assert steps == [50 * (n + 1) for n in range(len(steps))]
    assert (
        "already holds a run that is not finished" in nsvm("train", "hydra.run.dir=run", cwd=tmp_path).stderr
    )
    refused = nsvm("train", "resume=run", "threads=2", cwd=tmp_path, code=2)
    assert "threads was 1 and is 2; restore these, or accept a different result" in refused.stderr
    done = nsvm("train", "resume=run", f"algorithm.steps={STEPS}", cwd=tmp_path, code=0)
    assert "resuming after step " in done.stderr
    assert bits(tmp_path / "run") == bits(twin)
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "run").iterdir()}
    again = nsvm("train", "resume=run", cwd=tmp_path)
    assert (again.returncode, again.stdout) == (0, f"Finished already: {tmp_path / 'run'}\n")
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "run").iterdir()} == before
    assert {path.name for path in tmp_path.iterdir()} <= {"run", "cache"}


def test_a_signal_ends_a_run_in_order(twin: Path, tmp_path: Path) -> None:
    run = start("train", *WORDS, "hydra.run.dir=run", "checkpoint.every=1h", cwd=tmp_path)
    wait_for(lambda: (tmp_path / "run" / "metrics.jsonl").exists(), run)
    run.send_signal(signal.SIGUSR1)
    wait_for(lambda: bool(checkpoints_in(tmp_path / "run")), run)
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=PATIENCE)
    assert run.returncode == 130
    assert "\ncheckpoint after step " in errors
    last = errors.splitlines()[-1]
    assert re.match(rf"nsvm: interrupted after step \d+ of {STEPS}; ", last)
    assert last.endswith(f"resume with nsvm train resume={tmp_path / 'run'}")
    assert "Traceback" not in errors
    assert checkpoints_in(tmp_path / "run")
    assert not (tmp_path / "run" / "result.json").exists()
    nsvm("train", "resume=run", "checkpoint.every=100", cwd=tmp_path, code=0)
    ours, theirs = bits(tmp_path / "run"), bits(twin)
    assert ours["result"] == theirs["result"]
    assert ours["metrics.jsonl"] == theirs["metrics.jsonl"]


PLUGIN = """
import time
from pydantic.dataclasses import dataclass
from nsvm_cli.trainers import TRAINERS
from nsvm_cli.trainers.alg3 import Alg3

@dataclass(frozen=True)
class Ends(Alg3):
    def step(self, problem, state):
        super().step(problem, state)
        if state.t == 50:
            {ending}

TRAINERS["ends"] = Ends
"""
OF_PLUGIN = ["plugins=[ends]", "algorithm.name=ends", "algorithm=alg3", "algorithm.batch_size=8"]


def test_a_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    """Though the first one cannot be heeded: the step never ends."""
    asleep = 'open("asleep", "w").close(), time.sleep(600)'
    (tmp_path / "ends.py").write_text(PLUGIN.format(ending=asleep))
    run = start("train", *OF_PLUGIN, "hydra.run.dir=run", cwd=tmp_path)
    wait_for(lambda: (tmp_path / "asleep").exists(), run)
    run.send_signal(signal.SIGINT)
    time.sleep(2 * ONE_REQUEST)
    assert run.poll() is None
    while run.poll() is None:  # on a loaded machine it may note the first one late
        run.send_signal(signal.SIGINT)
        time.sleep(2 * ONE_REQUEST)
    _, errors = run.communicate()
    assert run.returncode == 130
    assert errors.splitlines()[-1] == "nsvm: interrupted at once"
    nsvm("evaluate", "run", cwd=tmp_path, code=2)


INTERRUPTING = """
import os, signal, sys

def interrupt(event, arguments):
    if event == "import" and arguments[0] == "argparse":
        os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(interrupt)
"""


def test_ctrl_c_while_the_command_is_imported_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTING)
    path = f"{tmp_path}{os.pathsep}{Path(nsvm_cli.__file__).parents[1]}"
    process = start("runs", tmp_path, cwd=tmp_path, env={"PYTHONPATH": path})
    assert process.communicate() == ("", "nsvm: interrupted\n")
    assert process.returncode == 130


@pytest.mark.thorough
def test_a_sweep_goes_on_where_it_was(tmp_path: Path) -> None:
    words = ["-m", "algorithm=alg1", "algorithm.steps=2500", "seed=0,1,2"]
    words += ["curves=false", "checkpoint.every=100", "engine=torch", "hydra.sweep.subdir='${hydra.job.num}'"]
    run = start("train", *words, cwd=tmp_path, env=SECRET)
    sweeps = tmp_path / "outputs" / "sweep"
    wait_for(lambda: bool(list(sweeps.glob("*/1/step-*.safetensors"))), run)
    run.kill()
    run.communicate()
    (sweep,) = sweeps.iterdir()
    kept = [file for file in (sweep / "0").iterdir() if file.name != "status.json"]
    before = [file.stat().st_mtime_ns for file in kept]
    done = nsvm("train", *words, cwd=tmp_path, env=SECRET, code=0)
    assert list(sweeps.iterdir()) == [sweep]
    assert "3 finished, 0 failed, 0 interrupted\n" in done.stdout
    assert "resuming after step" in done.stderr
    assert [file.stat().st_mtime_ns for file in kept] == before
    resumed = [json.loads((sweep / str(job) / "result.json").read_text())["resumed"] for job in range(3)]
    assert resumed == [0, 1, 0]
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"hush-hush" in file.read_bytes()]


def test_a_directory_that_another_command_has_open(tmp_path: Path) -> None:
    with locked(tmp_path / "run"):
        said = refusal("train", "algorithm.steps=5", "hydra.run.dir=run", cwd=tmp_path)
    assert "in use by another nsvm" in said


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("experiment=ringnorm_alg4_wide", "resume=RUN: name what changes, as in optimizer.lr=0.1"),
        ("-m", "the same sweep, started again, resumes by itself"),
        ("overwrite=true", "overwrite=true does not go with resume=RUN"),
        ("allow_mismatch=maybe", "allow_mismatch: expected true or false, got 'maybe'"),
        ("algorithm=alg1", "algorithm=alg1 does not go with resume=RUN: name what changes"),
        ("sed=1", "sed: there is no such setting; did you mean seed?"),
        ("~seed", "~seed does not go with resume=RUN"),
    ],
)
def test_words_that_do_not_go_with_a_run(word: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    settings = compose_settings(["algorithm=alg2"])
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump(settings))
    assert said in refusal("train", "resume=run", word, cwd=tmp_path)


LONGER = ["algorithm.steps=120", "allow_mismatch=true"]


def test_a_finished_run_is_trained_for_longer(tmp_path: Path) -> None:
    words = ["train", "algorithm=alg2", "dataset.samples=300", "curves=false", "log_every=20"]
    words += ["optimizer.schedule=constant", "optimizer.warmup=0"]
    nsvm(*words, "algorithm.steps=60", "hydra.run.dir=run", cwd=tmp_path, code=0)
    refused = nsvm("train", "resume=run", LONGER[0], cwd=tmp_path, code=2).stderr
    assert "algorithm.steps was 60 and is 120; restore these, or accept a different result" in refused
    refused = nsvm("train", "resume=run", "algorithm.name=alg1", *LONGER, cwd=tmp_path, code=2).stderr
    assert "has finished with another algorithm: start a new run" in refused
    done = nsvm("train", "resume=run", *LONGER, cwd=tmp_path, code=0)
    assert "resuming after step 60 of 120" in done.stderr
    nsvm(*words, "algorithm.steps=120", "hydra.run.dir=whole", cwd=tmp_path, code=0)
    ours, theirs = (bits(tmp_path / name) for name in ("run", "whole"))
    assert (ours["result"].pop("exact"), theirs["result"].pop("exact")) == (False, True)
    for result in (ours["result"], theirs["result"]):
        del result["overrides"]
    assert ours == theirs


def test_a_finished_run_that_cannot_go_on(tmp_path: Path) -> None:
    words = ["algorithm=alg4", "algorithm.solver_steps=40", "algorithm.steps=60", "dataset.samples=300"]
    nsvm("train", *words, "curves=false", "hydra.run.dir=run", cwd=tmp_path, code=0)
    names = ("result.json", "final.safetensors", "config.yaml", "metrics.jsonl", "status.json")
    before = [(tmp_path / "run" / name).read_bytes() for name in names]

    def refused(*changes: str) -> str:
        done = nsvm("train", "resume=run", *changes, "allow_mismatch=true", cwd=tmp_path, code=2)
        assert before == [(tmp_path / "run" / name).read_bytes() for name in names]
        return done.stderr.splitlines()[-1]

    assert "steps of Part 1, which now has 120" in refused(LONGER[0])
    assert "has taken all 100 steps: expected more of them" in refused("seed=1")
    (tmp_path / "run" / "step-00000100.safetensors").unlink()  # as with checkpoint.keep=none
    assert "and has no checkpoint (checkpoint.keep): start a new run" in refused(LONGER[0])


def test_a_learning_curve_leaves_out_checkpoints_without_an_svm(tmp_path: Path) -> None:
    words = ["algorithm=alg4", "algorithm.solver_steps=40", "algorithm.steps=40", "dataset.samples=300"]
    words += ["checkpoint.every=20", "checkpoint.keep=all", "curves=false", "hydra.run.dir=run"]
    nsvm("train", *words, cwd=tmp_path, code=0)
    files = [f"run/step-{step:08}.safetensors" for step in (20, 40, 60, 80)]
    done = nsvm("evaluate", *files, "--json", cwd=tmp_path, code=0)
    assert [json.loads(line)["steps"] for line in done.stdout.splitlines()] == [60, 80]
    early = "{} is of step {} of 80: expected one of Part 2, as there is no SVM before"
    assert done.stderr.splitlines()[:2] == [early.format(files[n], 20 * n + 20) for n in range(2)]
    done = nsvm("evaluate", *files[:2], cwd=tmp_path, code=2)
    assert done.stderr.splitlines()[-1] == f"nsvm: {early.format(files[1], 40)}"


def test_every_command_takes_the_model_of_a_run_that_was_killed(tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text(PLUGIN.format(ending='raise RuntimeError("killed")'))
    words = ["dataset.samples=300", "checkpoint.every=20", "curves=false", "hydra.run.dir=run"]
    nsvm("train", *OF_PLUGIN, *words, cwd=tmp_path, code=1)
    head, row = ",".join(f"x{i}" for i in range(20)), ",".join("1" * 20)
    (tmp_path / "new.csv").write_text(f"{head}\n{row}\n")
    mine = "--plugins=ends"
    both = ["run/step-00000040.safetensors", "run/step-00000020.safetensors"]
    said = "step-00000040.safetensors: the model after step 40 of "
    for command in (
        ["evaluate", "run"],
        ["evaluate", *both],
        ["predict", "run", "new.csv"],
        ["diagnose", both[0]],
        ["export", "run", "--onnx"],
    ):
        assert said in nsvm(*command, mine, cwd=tmp_path, code=0).stderr, command
    assert (tmp_path / "run" / "step-00000040.onnx").is_file()
    nsvm("report", "run", mine, cwd=tmp_path, code=0)
    report = (tmp_path / "run" / "report.html").read_text()
    assert said in report
    assert "Kernel matrix" in report
    lines = nsvm("evaluate", *both, "--json", mine, cwd=tmp_path, code=0).stdout.splitlines()
    assert [json.loads(line)["steps"] for line in lines] == [40, 20]
