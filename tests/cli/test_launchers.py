"""Sweeps with Hydra's launchers: each job writes its status, and the command reports all jobs."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hydra.experimental.callback import Callback
from joblib.externals.loky import get_reusable_executor
from omegaconf import DictConfig

from nsvm_cli.cli.train import Job
from tests.cli.process import nsvm, refusal, run_files, signalled, start, wait_for

TINY = ["algorithm=alg3", "algorithm.steps=15", "algorithm.batch_size=4"]
TINY += ["dataset.samples=300", "curves=false", "log_every=5", "engine=literal"]
WIDE = {"COLUMNS": "500"}


@pytest.fixture
def no_idle_workers() -> Iterator[None]:
    """Shut down joblib's workers after the test. Idle workers would stay in the folder of the test."""
    yield
    get_reusable_executor().shutdown()


def status_of(run: Path) -> dict[str, Any]:
    status: dict[str, Any] = json.loads((run / "status.json").read_text())
    return status


def jobs_of(sweep: Path) -> list[Path]:
    """Return the directories of the jobs, sorted by job number."""
    return sorted(
        (file.parent for file in sweep.glob("*/status.json")), key=lambda run: status_of(run)["job"]
    )


def statuses(sweep: Path) -> list[dict[str, Any]]:
    return [*map(status_of, jobs_of(sweep))]


POLYNOMIAL = """
from nsvm_cli.models.kernels import KERNELS, Polynomial
KERNELS["mine"] = Polynomial
"""


@pytest.mark.usefixtures("no_idle_workers")
def test_two_of_four_jobs_diverge(tmp_path: Path) -> None:
    """The jobs run in worker processes, which must import the plugin, too."""
    sweep = tmp_path / "sweep"
    (tmp_path / "mine.py").write_text(POLYNOMIAL)
    words = ["hydra/launcher=joblib", f"hydra.sweep.dir='{sweep}'", *TINY, "plugins=[mine]", "kernel=mine"]
    words += ["optimizer.lr=1e-3,1e25", "seed=0,1"]  # the rate 1e25 makes this kernel overflow
    done = nsvm("train", "-m", *words, cwd=tmp_path, env=WIDE, code=1)
    assert f"{sweep}: 2 finished, 2 failed, 0 interrupted" in done.stdout
    for job, seed in ((2, 0), (3, 1)):
        label = f"job {job} (optimizer.lr=1e+25 seed={seed}): failed: training diverged at step "
        (line,) = [line for line in done.stderr.splitlines() if line.startswith(label)]
        assert "is not finite; lower optimizer.lr" in line
    last = done.stderr.splitlines()[-1]
    assert last.startswith("nsvm: job 2 (algorithm=alg3 algorithm.steps=15 ")
    assert last.endswith("; failed jobs in total: 2")
    assert "Traceback" not in done.stderr
    assert [s["status"] for s in statuses(sweep)] == ["finished"] * 2 + ["failed"] * 2
    assert [s["job"] for s in statuses(sweep)] == [*range(4)]
    for number, run in enumerate(jobs_of(sweep)[:2]):
        assert json.loads((run / "result.json").read_text())["seed"] == number % 2


def test_what_a_job_has_to_say_is_left_to_the_process_that_shows_the_sweep(tmp_path: Path) -> None:
    """linear_svm ignores validation.every, and does not converge with such a small lambda."""
    words = ["algorithm=linear_svm", "algorithm.lam=1e-12", "dataset.samples=300", "curves=false"]
    words += ["dataset.validation=20", "validation.every=5"]
    single = nsvm("train", *words, "hydra.run.dir=run", cwd=tmp_path, code=0)
    done = nsvm("train", "-m", *words, "seed=3", "hydra.sweep.dir=sweep", cwd=tmp_path, code=0)
    (status,) = statuses(tmp_path / "sweep")
    for said in ("validation.every has no effect: algorithm=linear_svm", "linear_svm stopped after"):
        (notice,) = (line for line in status["notices"] if line.startswith(said))
        assert [line for line in done.stderr.splitlines() if said in line] == [f"job 0: {notice}"]
        assert said in single.stderr


def test_a_finished_sweep_is_left_alone_by_its_statuses_and_grows(tmp_path: Path) -> None:
    """Finished jobs are skipped, whatever config.yaml and result.json contain."""
    words = ["train", "-m", *TINY]
    nsvm(*words, "seed=range(1)", "algorithm=alg3", cwd=tmp_path, code=0)
    sweep = tmp_path / "outputs" / "sweep" / "ringnorm"
    (first,), before = jobs_of(sweep), statuses(sweep)
    (first / "config.yaml").write_text("curves: false")
    (first / "result.json").write_text("")
    done = nsvm(*words, "seed=range(1)", "algorithm=alg3", cwd=tmp_path, code=0)
    assert "1 finished, 0 failed" in done.stdout
    assert statuses(sweep) == before
    more = ["algorithm=pegasos,alg3", "seed=range(1)", "hydra/launcher=basic"]
    done = nsvm(*words, *more, cwd=tmp_path, code=0)
    assert f"{Path('outputs/sweep/ringnorm')}: 2 finished, 0 failed" in done.stdout
    assert len([line for line in done.stderr.splitlines() if " finished, test accuracy " in line]) == 1
    assert len(jobs_of(sweep)) == 2
    assert [status_of(first)] == before
    assert (first / "result.json").read_text() == ""


class Elsewhere(Callback):
    """A Hydra callback that starts each job in another folder, as Ray does."""

    def on_job_start(self, config: DictConfig, **_: Any) -> None:
        os.chdir(os.path.join(config.hydra.runtime.cwd, "elsewhere"))


def test_a_job_works_in_the_folder_of_the_command_wherever_it_starts(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "beside.py").touch()
    started = f"+hydra.callbacks.elsewhere._target_={__name__}.Elsewhere"
    done = nsvm("train", "-m", *TINY, started, "plugins=[beside]", "seed=0", cwd=tmp_path, code=0)
    assert done.stdout.startswith("outputs/sweep/ringnorm: 1 finished, 0 failed")
    assert len(jobs_of(tmp_path / "outputs" / "sweep" / "ringnorm")) == 1


def test_bad_input_of_all_jobs_that_failed_is_2_and_can_be_mended(tmp_path: Path) -> None:
    words = ["train", *TINY, "hydra.sweep.dir=sweep"]
    done = nsvm(*words, "-m", "seed=-1,0", cwd=tmp_path, env=WIDE, code=2)
    assert "1 finished, 1 failed" in done.stdout
    said = "seed should be greater than or equal to 0, got -1"
    assert f"job 0 (seed=-1): failed: {said}; " in done.stderr
    assert f"To run the remaining jobs: nsvm train {' '.join(words[1:])} -m seed=-1,0\n" in done.stdout
    (failed, _) = statuses(tmp_path / "sweep")
    assert {"status": "failed", "message": said, "exit_code": 2}.items() <= failed.items()
    mended = nsvm(*words, "-m", "seed=5,0", cwd=tmp_path, code=0)
    assert "2 finished, 0 failed, 0 interrupted" in mended.stdout


def test_a_directory_of_another_run_stays_as_it_is(tmp_path: Path) -> None:
    words = ["train", *TINY, "hydra.sweep.dir=sweep", "hydra.sweep.subdir='${hydra.job.num}'", "-m"]
    assert nsvm(*words, "seed=3", cwd=tmp_path).returncode == 0
    before = (tmp_path / "sweep" / "0" / "status.json").read_bytes()
    other = nsvm(*words, "seed=4,5", cwd=tmp_path, env=WIDE, code=2)
    assert "1 finished, 0 failed, 0 interrupted, 1 without a result\n" in other.stdout
    assert sorted(path.name for path in (tmp_path / "sweep").iterdir()) == ["0", "1", "multirun.yaml"]
    assert "Error executing job" not in other.stderr
    said = "sweep/0 already contains a run with different settings: choose another hydra.sweep.dir, or set "
    assert other.stderr.splitlines()[-1].endswith(f"{said}overwrite=true")
    assert (tmp_path / "sweep" / "0" / "status.json").read_bytes() == before
    assert (tmp_path / "sweep" / "1" / "result.json").exists(), "the other job must run"
    nsvm(*words, "seed=4", "overwrite=true", cwd=tmp_path, code=0)
    assert [status["overrides"][-1] for status in statuses(tmp_path / "sweep")] == ["seed=4", "seed=5"]


def test_a_finished_job_is_looked_up_only_where_the_same_words_are_the_same_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf" / "kernel").mkdir(parents=True)
    file = tmp_path / "conf" / "kernel" / "mine.yaml"
    words = ["--config-dir=conf", *TINY, "kernel=mine", "seed=0", "hydra.sweep.dir=sweep"]
    times: dict[Path, int] = {}
    for jobs, gamma, variable, more in (
        *((1, "'${oc.env:GAMMA}'", "1", []), (2, "'${oc.env:GAMMA}'", "2", []), (3, "3", "2", [])),
        (3, "3", "2", ["overwrite=true"]),
    ):
        file.write_text(f"{{name: rbf, gamma: {gamma}}}")
        monkeypatch.setenv("GAMMA", variable)
        done = nsvm("train", "-m", *words, *more, cwd=tmp_path, code=0)
        assert "1 finished, 0 failed" in done.stdout
        before, times = times, run_files(tmp_path)
        assert len(jobs_of(tmp_path / "sweep")) == jobs
        assert len([path for path in before if times[path] > before[path]]) == 2 * len(more)


def test_jobs_with_the_same_result_are_trained_once_and_drawn_at_the_end(tmp_path: Path) -> None:
    """Repeating the sweep draws missing curves of finished jobs."""
    words = ["train", "-m", *TINY, "curves=true", "hydra.sweep.dir=sweep"]
    done = nsvm(*words, "seed=0,0", "checkpoint.every=5,10", cwd=tmp_path, code=0)
    assert "1 finished, 0 failed, 0 interrupted\n" in done.stdout
    (run,) = jobs_of(tmp_path / "sweep")
    (run / "curves.png").unlink()
    done = nsvm(*words, "seed=0,0", "checkpoint.every=5,10", cwd=tmp_path, code=0)
    assert "1 finished, 0 failed, 0 interrupted\n" in done.stdout
    assert (run / "curves.png").exists()


@pytest.mark.thorough
def test_two_equal_sweeps_at_once_share_the_work(tmp_path: Path) -> None:
    words = ["-m", *TINY, "algorithm.steps=100", "seed=0,1", "hydra.sweep.dir=sweep"]
    other = start("train", *words, cwd=tmp_path)
    wait_for(lambda: bool(jobs_of(tmp_path / "sweep")), other)
    done = nsvm("train", *words, cwd=tmp_path, code=0)
    for out, errors in ((done.stdout, done.stderr), other.communicate()):
        assert "2 finished, 0 failed, 0 interrupted\n" in out
        assert "Error" not in errors
    assert other.returncode == 0


PLUGIN = """
from pathlib import Path
from nsvm_cli.models.kernels import KERNELS, RBF

class Odd(RBF):
    def __call__(self, a, b):
        {what}
        return super().__call__(a, b)

KERNELS["odd"] = Odd
"""


def test_a_bug_in_a_plugin_is_a_failure_of_its_job(tmp_path: Path) -> None:
    in_training = "if [*Path('sweep').glob('*/status.json')]: "
    (tmp_path / "odd.py").write_text(PLUGIN.format(what=f"{in_training}raise KeyError('no such thing')"))
    words = ["train", "-m", *TINY, "plugins=[odd]", "kernel.name=odd,rbf", "hydra.sweep.dir=sweep"]
    done = nsvm(*words, cwd=tmp_path, env={**WIDE, "HYDRA_FULL_ERROR": "1"}, code=1)
    assert "1 finished, 1 failed, 0 interrupted" in done.stdout
    assert "nsvm_cli" in done.stderr.partition("odd.py")[0], "expected the whole traceback"
    done = nsvm(*words, cwd=tmp_path, env=WIDE, code=1)
    said = "plugin odd failed: KeyError: 'no such thing' (odd.py, line 7); set HYDRA_FULL_ERROR=1 to show the"
    assert f"): failed: {said}" in done.stderr
    assert said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert statuses(tmp_path / "sweep")[0]["message"].startswith(said)


def test_a_signal_ends_the_sweep_and_the_job_says_so(tmp_path: Path) -> None:
    words = ["train", "-m", *TINY, "seed=0,1", "hydra.sweep.dir=sweep"]
    with signalled(signal.SIGTERM):
        done = nsvm(*words, cwd=tmp_path, env=WIDE, code=128 + signal.SIGTERM)
    assert "0 finished, 0 failed, 1 interrupted, 1 without a result" in done.stdout
    said = "nsvm: interrupted: to resume the sweep, run the same command again, without overwrite=true"
    assert done.stderr.splitlines()[-1] == said
    (status,) = statuses(tmp_path / "sweep")
    assert (status["status"], status["job"]) == ("interrupted", 0)
    assert status["message"].startswith("interrupted after step ")


def test_a_single_run_writes_its_status_too(tmp_path: Path) -> None:
    words = ["train", *TINY, "hydra.run.dir=run", "kernel=polynomial", "optimizer.lr=1e25"]
    done = nsvm(*words, cwd=tmp_path, code=1)
    status = status_of(tmp_path / "run")
    assert (status["status"], status["job"], status["exit_code"]) == ("failed", None, 1)
    assert status["overrides"] == [*TINY, "kernel=polynomial", "optimizer.lr=1e25"]
    assert done.stderr.splitlines()[-1] == f"nsvm: {status['message']}"


@pytest.mark.skipif(find_spec("hydra_plugins.hydra_ray_launcher") is not None, reason="it is installed")
def test_a_missing_plugin_is_named(tmp_path: Path) -> None:
    assert "seed=range(3,1): expected a range with" in refusal("train", "-m", "seed=range(3,1)", cwd=tmp_path)
    says = refusal("train", "-m", "hydra/launcher=ray", "seed=0,1", cwd=tmp_path)
    assert says == "hydra/launcher=ray requires a Hydra plugin: install it with pip install 'nsvm[ray]'"


def test_a_sweeper_gets_the_validation_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    returned: list[Any] = []
    call = Job.__call__

    def recorded(self: Job, config: DictConfig) -> float | None:
        returned.append(call(self, config))
        return returned[-1]

    monkeypatch.setattr(Job, "__call__", recorded)
    words = [*TINY, "kernel=polynomial", f"hydra.sweep.dir='{tmp_path / 'sweep'}'"]
    nsvm("train", "-m", *words, "dataset.validation=20", "optimizer.lr=1e-3,1e25", cwd=tmp_path)
    result = json.loads((jobs_of(tmp_path / "sweep")[0] / "result.json").read_text())
    assert returned[0] == result["validation_accuracy"]
    assert returned[1] is None, "a failed job must return None"
    nsvm("train", *words, cwd=tmp_path, code=0)
    assert returned[2] is None, "a sweeper must not optimise on the test set"
