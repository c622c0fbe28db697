"""Reports of a sweep on its jobs, which are simulated by writing statuses."""

from __future__ import annotations

import errno
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from nsvm_cli.cli.sweep import Sweep, outcome
from nsvm_cli.errors import Interrupted, RunError
from nsvm_cli.storage.files import locked
from nsvm_cli.storage.run_directory import Status, write_status

MINE = "mine"
WORDS = ["-m", "a=0,1,2,3", "b=0"]


def job(folder: Path, number: int, status: Status, message: str = "", **more: Any) -> Path:
    about = {"job": number, "sweep": [MINE], "overrides": [f"a={number}", "b=0"]} | more
    write_status(folder / str(number), status, message, **about)
    return folder / str(number)


def swept(folder: Path, jobs: int, meanwhile: Callable[[], object], *more: str) -> None:
    """Run a sweep, and call ``meanwhile`` in place of its jobs."""
    with Sweep([*WORDS, *more], MINE).reported() as sweep:
        config = {"hydra": {"sweep": {"dir": str(folder)}}, "overwrite": True, "allow_mismatch": False}
        words = OverridesParser.create().parse_overrides(WORDS[1:])
        sweep.start(OmegaConf.create(config), words, [[]] * jobs)
        meanwhile()


def lines(captured: str) -> list[str]:
    return [line.strip() for line in captured.splitlines()]


def test_what_jobs_leave_behind(tmp_path: Path) -> None:
    finished, killed = job(tmp_path, 1, "finished"), job(tmp_path, 0, "running")
    other = job(tmp_path, 2, "failed", "no", sweep=["other"], exit_code=2)
    held = job(tmp_path, 3, "running")
    with locked(held):
        found = [outcome(path, MINE) for path in (finished, killed, other, held)]
    assert [one and (one["status"], one["message"]) for one in found] == [
        ("finished", ""),
        ("interrupted", f"interrupted at step 0; resume with nsvm train resume={killed}"),
        None,
        ("running", ""),
    ]
    (tmp_path / "4").mkdir()
    (tmp_path / "4" / "status.json").write_text("{")
    assert outcome(tmp_path / "4", MINE) is None


def test_only_what_has_happened_since_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, status in enumerate(("finished", "failed", "failed", "running")):
        job(tmp_path, number, status, exit_code=1, sweep=["before"])  # type: ignore[arg-type]

    def meanwhile() -> None:
        job(tmp_path, 0, "finished", kept=True)
        job(tmp_path, 1, "failed", "no", exit_code=1)
        job(tmp_path, 2, "finished")
        with locked(tmp_path / "3"):
            job(tmp_path, 3, "running")
        job(tmp_path, 3, "finished")

    with pytest.raises(RunError, match=r"job 1 \(a=1 b=0\): no"):
        swept(tmp_path, 4, meanwhile)
    out, errors = capsys.readouterr()
    assert sorted(line.partition(";")[0] for line in lines(errors))[:3] == [
        *("job 1 (a=1): failed: no", "job 2 (a=2): finished", "job 3 (a=3): finished")
    ]
    assert lines(out)[:2] == [
        f"{tmp_path}: 3 finished, 1 failed, 0 interrupted",
        f"To compare the settings: nsvm compare {tmp_path}",
    ]
    assert lines(out)[-1] == "To run the remaining jobs: nsvm train -m a=0,1,2,3 b=0"


def test_what_is_started_over_counts_once_it_has_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(2):
        job(tmp_path, number, "finished", sweep=["before"])

    def meanwhile() -> None:
        job(tmp_path, 1, "finished")
        job(tmp_path, 0, "running")
        raise Interrupted(signal.SIGTERM)

    with pytest.raises(
        Interrupted, match="to resume the sweep, run the same command again, without overwrite=true"
    ):
        swept(tmp_path, 2, meanwhile, "overwrite=true")
    out, errors = capsys.readouterr()
    assert lines(errors) == ["job 1 (a=1): finished; 1/2 ended"]
    assert lines(out)[0] == f"{tmp_path}: 1 finished, 0 failed, 1 interrupted"
    assert lines(out)[-1] == "To run the remaining jobs: nsvm train -m a=0,1,2,3 b=0"


@pytest.mark.parametrize(
    ("figures", "told"),
    [
        (
            {"test_accuracy": 0.7, "test_majority_accuracy": 0.7},
            "test accuracy 70.00 %, no better than always predicting the most frequent class "
            "(accuracy 70.00 %)",
        ),
        ({"test_accuracy": 0.71, "test_majority_accuracy": 0.7}, "test accuracy 71.00 %"),
        (
            {"metric": "r2", "test_r2": -0.07, "test_rmse": 2.0, "test_mean_rmse": 1.9},
            "test R^2 -0.0700, no better than always predicting the mean (RMSE 1.900)",
        ),
    ],
)
def test_a_line_says_whether_one_answer_for_all_is_as_good(
    figures: dict[str, Any], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def meanwhile() -> None:
        done = job(tmp_path, 0, "finished")
        (done / "result.json").write_text(json.dumps({"data": {"samples": {"validation": 0}}, **figures}))

    swept(tmp_path, 1, meanwhile)
    assert lines(capsys.readouterr().err)[0] == f"job 0 (a=0): finished, {told}; 1/1 ended"


def test_jobs_that_leave_nothing_are_a_failure(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="3 of the sweep's jobs wrote no status to "):
        swept(tmp_path, 4, lambda: job(tmp_path, 0, "finished"))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TimeoutError(), "TimeoutError"),
        (RuntimeError("no cluster\nat all"), "RuntimeError: no cluster"),
        (OSError(errno.ENOSPC, "No space left on device"), "[Errno 28] No space left on device"),
    ],
)
def test_an_error_of_the_launcher_is_one_line(error: Exception, said: str, tmp_path: Path) -> None:
    def meanwhile() -> None:
        raise error

    with pytest.raises(RunError) as raised:
        swept(tmp_path, 4, meanwhile)
    assert str(raised.value) == f"the sweep ended early: {said}"
