"""Runs in separate processes that are killed or interrupted, and resumed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

import nsvm_cli
from nsvm_cli.parallel.signals import ONE_REQUEST
from nsvm_cli.storage.files import locked
from nsvm_cli.storage.run_directory import checkpoints_in
from tests.cli.process import nsvm, refusal, start, wait_for
from tests.cli.test_tune import COST
from tests.patience import PATIENCE
from tests.runs.test_train import bits

SECRET = {"SECRET_TOKEN": "hush-hush"}


PLUGIN = """
import os
import time
from pydantic.dataclasses import dataclass
from nsvm_cli.trainers import TRAINERS
from nsvm_cli.trainers.alg3 import Alg3

@dataclass(frozen=True)
class Ends(Alg3):
    def step(self, problem, state):
        super().step(problem, state)
        ending = os.environ.get("ENDING") if state.t == 50 else None
        if ending == "sleep":
            open("asleep", "w").close()
            time.sleep(600)
        elif ending:
            raise RuntimeError(ending)

TRAINERS["ends"] = Ends
"""
WORDS = ["plugins=[ends]", "algorithm.name=ends", "algorithm=alg3", "algorithm.batch_size=8", "curves=false"]
WORDS += ["algorithm.steps=80", "dataset.samples=300", "log_every=10", "checkpoint.every=20"]
RUN = "hydra.run.dir=run"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with an algorithm that sleeps or fails in step 50 if ENDING is in the environment."""
    (tmp_path / "ends.py").write_text(PLUGIN)
    return tmp_path


def asleep(folder: Path) -> subprocess.Popen[str]:
    """Start a run, and wait until it sleeps in step 50."""
    run = start("train", *WORDS, RUN, cwd=folder, env={"ENDING": "sleep"})
    wait_for(lambda: (folder / "asleep").exists(), run)
    return run


def test_killed_and_resumed(folder: Path) -> None:
    run = asleep(folder)
    run.kill()
    run.communicate()
    text = (folder / "run" / "metrics.jsonl").read_text()
    assert [json.loads(line)["step"] for line in text.splitlines()] == [10, 20, 30, 40]
    again = nsvm("train", RUN, cwd=folder, code=2).stderr
    assert "already contains a run that is not finished" in again
    with locked(folder / "run"):
        assert "in use by another nsvm process: wait" in refusal("train", "resume=run", WORDS[0], cwd=folder)
    refused = nsvm("train", "resume=run", "threads=2", WORDS[0], cwd=folder, code=2)
    said = "threads was 1 and is 2; restore the earlier values or, to accept a different result, set allow"
    assert said in refused.stderr
    assert "interrupted at step 40; resume with" in nsvm("runs", "run", "--json", cwd=folder).stdout
    words = ["train", "resume=run", WORDS[0]]
    done = nsvm(*words, "algorithm.steps=80", cwd=folder, code=0)
    assert "resuming after step 40 of 80" in done.stderr
    nsvm("train", *WORDS, "hydra.run.dir=twin", cwd=folder, code=0)
    assert bits(folder / "run") == bits(folder / "twin")
    before = {file: file.stat().st_mtime_ns for file in (folder / "run").iterdir()}
    again = nsvm(*words, cwd=folder, code=0).stdout
    assert again == f"Finished already: {folder / 'run'}\n"
    assert {file: file.stat().st_mtime_ns for file in (folder / "run").iterdir()} == before


def test_a_signal_ends_a_run_in_order(tmp_path: Path) -> None:
    words = ["algorithm=alg1", "algorithm.steps=1000000", "log_every=50", "checkpoint.every=1h"]
    for name in ("bottleneck", "hydra_plugins"):  # pandas and Hydra import these if they exist
        (tmp_path / f"{name}.py").write_text("open('touched', 'w')")
    run = start("train", *words, "engine=torch", RUN, cwd=tmp_path)
    wait_for(lambda: (tmp_path / "run" / "metrics.jsonl").exists(), run)
    run.send_signal(signal.SIGUSR1)
    wait_for(lambda: bool(checkpoints_in(tmp_path / "run")), run)
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=PATIENCE)
    assert run.returncode == 130
    assert "\ncheckpoint after step " in errors
    last = errors.splitlines()[-1]
    assert re.match(r"nsvm: interrupted after step \d+ of 1000000; ", last)
    assert last.endswith(f"resume with nsvm train resume={tmp_path / 'run'}")
    assert "Traceback" not in errors
    assert checkpoints_in(tmp_path / "run")
    assert not (tmp_path / "run" / "result.json").exists()
    assert not (tmp_path / "touched").exists(), "a module in the current folder was imported"


@pytest.mark.thorough
def test_a_second_ctrl_c_stops_at_once(folder: Path) -> None:
    """The first Ctrl-C cannot stop the run, because step 50 does not end."""
    run = asleep(folder)
    run.send_signal(signal.SIGINT)
    time.sleep(2 * ONE_REQUEST)
    assert run.poll() is None
    while run.poll() is None:  # on a busy machine, the run may notice the first one late
        run.send_signal(signal.SIGINT)
        time.sleep(2 * ONE_REQUEST)
    _, errors = run.communicate()
    assert run.returncode == 130
    assert errors.splitlines()[-1] == "nsvm: interrupted at once"


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


SWEEPER = """
import optuna
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper

class Chooser(Sweeper):
    def __init__(self, **_):
        pass

    def setup(self, **given):
        self.launcher = Plugins.instance().instantiate_launcher(**given)

    def sweep(self, arguments):
        sampler = optuna.samplers.TPESampler(seed=0, n_startup_trials=2)
        study = optuna.create_study(direction="minimize", sampler=sampler)
        for number in range(5):
            trial = study.ask()
            word = f"algorithm.lam={trial.suggest_float('lam', 1e-5, 1, log=True)}"
            (job,) = self.launcher.launch([[*arguments, word]], initial_job_idx=number)
            study.tell(trial, job.return_value)
        with open("best", "w") as file:
            print(study.best_trial.number, study.best_value, study.best_params, file=file)
"""


@pytest.mark.thorough
def test_a_sweeper_that_chooses_by_a_metric_of_the_users_chooses_the_same(tmp_path: Path) -> None:
    """The sweeper stands in for Hydra's Optuna sweeper, which requires an older Optuna than ``nsvm tune``."""
    (tmp_path / "plugins" / "hydra_plugins").mkdir(parents=True)
    (tmp_path / "plugins" / "hydra_plugins" / "chooser.py").write_text(SWEEPER)
    path = os.pathsep.join([str(tmp_path / "plugins"), str(Path(nsvm_cli.__file__).parents[1])])
    words = ["train", "-m", "hydra.sweeper._target_=hydra_plugins.chooser.Chooser", "hydra.sweep.dir=sweep"]
    words += ["algorithm=alg1", "algorithm.steps=400", "engine=torch", "checkpoint.every=20", "curves=false"]
    words += ["dataset.samples=300", "dataset.validation=60", "plugins=[own]", "metric=cost"]
    for name in (names := ("whole", "killed")):
        (folder := tmp_path / name).mkdir()
        (folder / "own.py").write_text(COST)
        run = start(*words, cwd=folder, env={"PYTHONPATH": path})
        if name == "killed":
            wait_for(lambda: len({file.parent for file in tmp_path.glob("killed/sweep/*/step-*")}) > 3, run)
            run.kill()
            run.communicate()
            assert len([*folder.rglob("result.json")]) < 5
            run = start(*words, cwd=folder, env={"PYTHONPATH": path})
        assert "5 finished, 0 failed, 0 interrupted" in run.communicate()[0]
        assert run.returncode == 0
    whole, again = ({run.name: bits(run) for run in (tmp_path / name / "sweep").iterdir()} for name in names)
    assert whole == again
    assert (tmp_path / "whole" / "best").read_text() == (tmp_path / "killed" / "best").read_text()
    rows = re.findall(r"^\| lam=.*$", nsvm("compare", "sweep", cwd=folder, code=0).stdout, re.MULTILINE)
    scores = [float(row.split("|")[3]) for row in rows]
    assert len(scores) == 5
    assert len({*scores}) > 1
    assert scores == sorted(scores)


LONGER = "algorithm.steps=120"


def test_a_finished_run_of_two_parts_has_a_curve_but_cannot_go_on(tmp_path: Path) -> None:
    words = ["algorithm=alg4", "algorithm.solver_steps=40", "algorithm.steps=40", "dataset.samples=300"]
    words += ["checkpoint.every=20", "checkpoint.keep=all", "curves=false", "engine=literal", RUN]
    nsvm("train", *words, cwd=tmp_path, code=0)
    files = [f"run/step-{step:08}.safetensors" for step in (20, 40, 60, 80)]
    done = nsvm("evaluate", *files, "--json", cwd=tmp_path, code=0)
    assert [json.loads(line)["steps"] for line in done.stdout.splitlines()] == [60, 80]
    early = "{} has no SVM yet, at step {} of 80: expected a checkpoint of Part 2"
    assert done.stderr.splitlines()[:2] == [early.format(files[n], 20 * n + 20) for n in range(2)]
    done = nsvm("evaluate", *files[:2], cwd=tmp_path, code=2)
    assert done.stderr.splitlines()[-1] == f"nsvm: {early.format(files[1], 40)}"

    names = ("result.json", "final.safetensors", "config.yaml", "metrics.jsonl", "status.json")
    before = [(tmp_path / "run" / name).read_bytes() for name in names]

    def refused(*changes: str) -> str:
        done = nsvm("train", "resume=run", *changes, "allow_mismatch=true", cwd=tmp_path, code=2)
        assert before == [(tmp_path / "run" / name).read_bytes() for name in names]
        return done.stderr.splitlines()[-1]

    assert "steps of Part 1, as in the checkpoint, got 120" in refused(LONGER)
    other = refused("algorithm.name=alg1", LONGER)
    assert "contains a finished run with a different algorithm: start a new run" in other
    assert "has taken all 80 steps: to resume, set more steps" in refused("seed=1")
    for file in files:  # as with checkpoint.keep=none
        (tmp_path / file).unlink()
    assert "and has no checkpoint to resume from (see checkpoint.keep): start a new run" in refused(LONGER)


def test_every_command_takes_the_model_of_a_run_that_was_killed(folder: Path) -> None:
    nsvm("train", *WORDS, RUN, cwd=folder, env={"ENDING": "killed"}, code=1)
    head, row = ",".join(f"x{i}" for i in range(20)), ",".join("1" * 20)
    (folder / "new.csv").write_text(f"{head}\n{row}\n")
    mine = "--plugins=ends"
    both = ["run/step-00000040.safetensors", "run/step-00000020.safetensors"]
    said = "step-00000040.safetensors: using the model after step 40 of "
    for command in (
        ["evaluate", "run"],
        ["predict", "run", "new.csv"],
        ["diagnose", both[0]],
        ["export", "run", "--onnx"],
    ):
        assert said in nsvm(*command, mine, cwd=folder, code=0).stderr, command
    done = nsvm("evaluate", *both, "--json", mine, cwd=folder, code=0)
    assert said in done.stderr
    assert [json.loads(line)["steps"] for line in done.stdout.splitlines()] == [40, 20]
    assert (folder / "run" / "step-00000040.onnx").is_file()
    nsvm("report", "run", mine, cwd=folder, code=0)
    report = (folder / "run" / "report.html").read_text()
    assert said in report
    assert "Kernel matrix" in report
