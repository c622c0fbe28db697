"""The live view of a sweep, with jobs that are made up."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from nsvm_cli.terminal.sweep_progress import JobView, SweepProgress, best_of


def finished(number: int, accuracy: float | None, **more: object) -> JobView:
    result = {"dataset": "digits", "test_accuracy": accuracy, **more}
    return JobView(number, f"seed={number}", "finished", result=result)


RUNNING = JobView(2, "seed=2", "running", 500, {"step": 50, "violations": 7, "objective": None})
FAILED = JobView(3, "seed=3", "failed")
JOBS = [finished(0, 0.97), finished(1, 0.98), RUNNING, FAILED]


def shown(jobs: Sequence[JobView], capsys: pytest.CaptureFixture[str]) -> str:
    with SweepProgress(lambda: jobs, total=6):
        pass
    return capsys.readouterr().err


def test_a_line_for_each_job_that_has_ended(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(JOBS, capsys).splitlines() == [
        "job 0 (seed=0): finished, test accuracy 97.00 %; 3/6 ended",
        "job 1 (seed=1): finished, test accuracy 98.00 %; 3/6 ended",
        "job 3 (seed=3): failed; 3/6 ended",
    ]


def test_a_job_that_had_finished_before_is_counted_and_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    before = JobView(0, "seed=0", "finished", earlier=True)
    assert shown([before, FAILED], capsys) == "job 3 (seed=3): failed; 2/6 ended\n"


def test_a_terminal_shows_the_running_jobs_and_the_best(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown(JOBS, capsys))
    assert "2 finished, 1 failed, 1 running, 2 waiting; 0:00 elapsed, about 0:00 left" in text
    assert re.search(r"2  50/500  seed=2  viol 7\s", text)
    assert "best so far: job 1 (seed=1): test accuracy 98.00 %" in text


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (80, "12  1500/9000  algorithm=alg3 optimizer.lr=0.003 seed=1  viol 813 acc 91.40 % S…"),
        (60, "12  1500/9000  algorithm=alg3 optimizer.lr=0.003 seed=1  vi…"),
        (40, "12  1500/9000  algorithm=alg3 optimizer…"),
    ],
)
def test_a_narrow_terminal_shows_job_and_steps(
    columns: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    record = {"step": 1500, "violations": 813, "running_accuracy": 0.914, "support_vectors": 402}
    settings = "algorithm=alg3 optimizer.lr=0.003 seed=1"
    text = shown([JobView(12, settings, "running", 9000, record | {"objective": 0.09})], capsys)
    (row, *_) = [line.rstrip() for line in text.splitlines() if "1500/9000" in line]
    assert re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", row).rstrip() == said


def test_the_best_is_the_best_on_validation_data() -> None:
    jobs = [finished(0, None, validation_accuracy=0.9), finished(1, None, validation_accuracy=0.8)]
    assert best_of(jobs) is jobs[0]


@pytest.mark.parametrize("other", [{"dataset": "mnist"}, {"test_accuracy": None, "test_r2": 0.5}])
def test_scores_that_cannot_be_compared_have_no_best(other: dict[str, object]) -> None:
    jobs = [finished(0, 0.9), JobView(1, "", "finished", result=finished(1, 0.8).result | other)]
    assert best_of(jobs) is None


def test_a_directory_that_cannot_be_read_for_a_moment_is_read_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    looks = iter([OSError("gone"), [FAILED]])

    def look() -> Sequence[JobView]:
        found = next(looks, [FAILED])
        if isinstance(found, OSError):
            raise found
        return found

    with SweepProgress(look, total=None):
        pass
    assert capsys.readouterr().err == "job 3 (seed=3): failed; 1 ended\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_what_a_job_has_to_say_has_a_line_of_its_own_once(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the process of a launcher, which does not know where the table is."""
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr("nsvm_cli.terminal.sweep_progress.MIN_INTERVAL", 0.0)
    looks = [
        [replace(RUNNING, notices=["resuming after step 9"])],
        [replace(RUNNING, notices=["resuming after step 9", "half way"])],
        [JobView(0, "seed=0", "finished", earlier=True, notices=["of another day"])],
    ]
    seen = threading.Event()

    def look() -> Sequence[JobView]:
        if len(looks) > 1:
            return looks.pop(0)
        seen.set()
        return looks[0]

    with SweepProgress(look, total=6):
        assert seen.wait(10)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    notices = [
        line.split("\r")[-1].rstrip() for line in text.split("\n") if "after step" in line or "way" in line
    ]
    assert notices == ["job 2 (seed=2): resuming after step 9", "job 2 (seed=2): half way"]
    assert "another day" not in text
