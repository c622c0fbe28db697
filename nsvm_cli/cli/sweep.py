"""A sweep: the progress of its jobs, read from their run directories, and their outcomes."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from nsvm_cli.cli.job import refusals
from nsvm_cli.compose.composition import LAUNCHERS
from nsvm_cli.compose.hydra_private import jobs_of
from nsvm_cli.errors import InputError, Interrupted, RunError, message_of
from nsvm_cli.output import answer, say

if TYPE_CHECKING:
    from nsvm_cli.terminal.sweep_progress import JobView


class SweepDirectory(Callback):
    """Hydra's callback that tells the sweep of this process the directory and number of its jobs."""

    sweep: ClassVar[Sweep | None] = None

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Start to watch the directory."""
        if SweepDirectory.sweep is not None:
            jobs, keys = _swept(config.hydra)
            SweepDirectory.sweep.start(Path(config.hydra.sweep.dir), jobs, keys)


def _swept(hydra: DictConfig) -> tuple[int | None, set[str]]:
    """Return the number of jobs, None if a sweeper decides them, and the keys with several values."""
    params = [f"{key}={values}" for key, values in (hydra.sweeper.get("params") or {}).items()]
    try:
        overrides = OverridesParser.create().parse_overrides([*params, *hydra.overrides.task])
        keys = {override.get_key_element() for override in overrides if override.is_sweep_override()}
        if not hydra.sweeper._target_.endswith(".BasicSweeper"):
            return None, keys
        return len(jobs_of(overrides)), keys
    except (HydraException, ValueError):  # a mistake that Hydra reports, or glob(*)
        return None, set()


ENDED_WITH_SWEEP = "ended with its sweep"
"""The message of a job that had no time to write one."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one job.

    Attributes:
        message: what happened, in one line, unless it has finished or is running.
        steps: the steps that it takes in all, while it runs.
        notices: what it has to say meanwhile, a line each.
        was_killed: whether its process ended without a word.
    """

    directory: Path
    job: int
    overrides: list[str]
    status: str
    message: str
    exit_code: int | None
    steps: int | None = None
    notices: Sequence[str] = ()
    was_killed: bool = False

    def interrupted(self, sweep: str) -> Outcome:
        """Write the status of a job that ended with a signal to its sweep, and return its outcome."""
        from nsvm_cli.storage.run_directory import write_status

        fields = {"job": self.job, "sweep": sweep, "overrides": self.overrides}
        with contextlib.suppress(OSError):  # the disk may be full
            write_status(self.directory, "interrupted", ENDED_WITH_SWEEP, **fields)
        return replace(self, status="interrupted", message=ENDED_WITH_SWEEP, exit_code=None, was_killed=False)


@dataclass
class Sweep:
    """The sweep that this process runs, if any: shows its jobs while they run, and reports at the end.

    Args:
        name: the name in the statuses of its jobs; other sweeps may share the directory.
    """

    name: str
    words: Sequence[str]
    overwrite: bool = False
    directory: Path | None = None
    jobs: int | None = None
    keys: set[str] = field(default_factory=set)
    _before: dict[Path, int] = field(default_factory=dict)
    _ended: dict[Path, JobView] = field(default_factory=dict)
    _watching: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def start(self, directory: Path, jobs: int | None, keys: set[str]) -> None:
        """Show the jobs in a directory from now on: how many, and the keys that tell them apart."""
        from nsvm_cli.terminal.sweep_progress import SweepProgress

        self.directory, self.jobs, self.keys = directory, jobs, keys
        self._forget_refusals()  # of a command that was killed
        self._before = {path: _written(path) for path in _directories(directory)}
        self._watching.enter_context(SweepProgress(self.look, jobs))

    @contextlib.contextmanager
    def reported(self) -> Iterator[Sweep]:
        """Yield the sweep, and report the outcomes of its jobs when the block ends, if it was started.

        Raises:
            InputError, RunError: a job failed.
            Interrupted: a signal ended the sweep.
        """
        SweepDirectory.sweep = self
        try:
            with self._watching:
                yield self
        except (InputError, RunError):
            self._report()
            raise
        except KeyboardInterrupt as error:
            if not self._report(interrupted=True):
                raise
            signum = error.signum if isinstance(error, Interrupted) else signal.SIGINT
            same = "the same command without overwrite=true" if self.overwrite else "the same command"
            raise Interrupted(signum, f"interrupted: {same} resumes the sweep") from None
        except Exception as error:  # an error of the launcher: no cluster, or a process was killed
            if self.directory is None:
                raise
            self._report()
            raise RunError(f"the sweep ended early: {_reason(error, self.directory)}") from error
        finally:
            SweepDirectory.sweep = None
        if failed := [outcome for outcome in self._report() if outcome.status == "failed"]:
            raise _failure(failed)

    def look(self) -> list[JobView]:
        """Return the current state of the jobs that have started."""
        from nsvm_cli.storage.metrics_file import last_record
        from nsvm_cli.storage.run_directory import METRICS
        from nsvm_cli.terminal.sweep_progress import JobView

        assert self.directory is not None
        running = []
        for path in _directories(self.directory):
            if path in self._ended or (outcome := self._outcome_now(path)) is None:
                continue
            view = JobView(outcome.job, self._label(outcome), outcome.status, notices=outcome.notices)
            if outcome.status == "running":
                running.append(replace(view, steps=outcome.steps, record=last_record(path / METRICS)))
            else:
                self._ended[path] = replace(view, result=_result(path), earlier=self._is_earlier(path))
        by_number = {job.number: job for job in (*running, *self._ended.values())}
        return [by_number[number] for number in sorted(by_number)]

    def _outcome_now(self, path: Path) -> Outcome | None:
        """Return the outcome of a job; None before it is started again, or while it is ending."""
        earlier, outcome = self._is_earlier(path), self._outcome(path)
        if outcome is None or outcome.was_killed:
            return None
        kept = outcome.status == "finished" and not self.overwrite
        return outcome if kept or not earlier else None

    def _outcome(self, path: Path) -> Outcome | None:
        """Return the outcome of a job; None if the directory does not belong to a job of this sweep."""
        job = outcome(path, self.name)
        return None if job is None or (self.jobs is not None and job.job >= self.jobs) else job

    def _is_earlier(self, path: Path) -> bool:
        """Return whether the status of a job is still the one from before the sweep."""
        return self._before.get(path) == _written(path)

    def _label(self, outcome: Outcome) -> str:
        """Return the overrides that distinguish a job from the others."""
        return " ".join(word for word in outcome.overrides if word.partition("=")[0] in self.keys)

    def _report(self, interrupted: bool = False) -> list[Outcome]:
        from nsvm_cli.cli.pictures import draw_all, lacks_pictures

        if self.directory is None:
            return []
        outcomes = self._one_per_job(filter(None, map(self._outcome, _directories(self.directory))))
        self._forget_refusals()
        if interrupted:  # jobs that were running had no time to write it
            outcomes = [one.interrupted(self.name) if one.was_killed else one for one in outcomes]
        if outcomes:
            self._show(outcomes)
        if not interrupted:  # a signal means to stop now; the next start draws the pictures
            finished = [one.directory for one in outcomes if one.status == "finished"]
            draw_all([directory for directory in finished if lacks_pictures(directory)])
        return outcomes

    @property
    def _refusals(self) -> Path:
        assert self.directory is not None
        return refusals(self.directory, self.name)

    def _forget_refusals(self) -> None:
        shutil.rmtree(self._refusals, ignore_errors=True)

    def _one_per_job(self, outcomes: Iterable[Outcome]) -> list[Outcome]:
        """Return one outcome for each job: its refusal, if any, rather than the one in its directory."""
        by_job = sorted(outcomes, key=lambda one: (one.job, one.directory.parent == self._refusals))
        return [*{one.job: one for one in by_job}.values()]

    def _show(self, outcomes: Sequence[Outcome]) -> None:
        from rich.table import Table

        from nsvm_cli.terminal.console import Console

        assert self.directory is not None
        count = Counter(one.status for one in outcomes)
        shown = [f"{count[status]} {status}" for status in ("finished", "failed", "interrupted")]
        shown += [f"{count['running']} running"] if count["running"] else []
        lacking = (self.jobs or 0) - len(outcomes)
        shown += [f"{lacking} without a result"] if lacking > 0 else []
        earlier = sum(one.status == "finished" and self._is_earlier(one.directory) for one in outcomes)
        before = f"; {earlier} had finished before" if earlier else ""
        answer(f"{self.directory}: {', '.join(shown)}{before}")
        _show_best([one.directory for one in outcomes])
        table = Table()
        for column in ("job", "overrides", "", "message"):
            table.add_column(column, overflow="fold")
        for one in outcomes:
            if one.status != "finished":
                table.add_row(str(one.job), self._label(one), one.status, one.message)
        if table.row_count:
            Console().print(table)
        if table.row_count or lacking > 0:
            words = [word for word in self.words if not word.startswith("overwrite=")]
            answer(f"What is left: nsvm train {shlex.join(words)}")


def outcome(path: Path, sweep: str) -> Outcome | None:
    """Return the outcome of the job in a directory; None if it does not belong to this sweep."""
    from nsvm_cli.storage.run_directory import KILLED, outcome_of, overrides_in, read_status

    record = read_status(path) or {}
    if record.get("sweep") != sweep:
        return None
    status, message = outcome_of(path, record)
    code = 1 if (was_killed := message == KILLED) else record.get("exit_code")
    words = overrides_in(record)
    steps, notices = record.get("steps"), record.get("notices", ())
    return Outcome(path, record["job"], words, status, message, code, steps, notices, was_killed)


def _directories(directory: Path) -> Iterator[Path]:
    from nsvm_cli.storage.run_directory import STATUS

    return (file.parent for file in directory.rglob(STATUS))


def _written(path: Path) -> int:
    """Return the time at which the status of a job was written, in nanoseconds; 0 if it has none."""
    from nsvm_cli.storage.run_directory import STATUS

    try:
        return (path / STATUS).stat().st_mtime_ns
    except OSError:
        return 0


def _result(path: Path) -> dict[str, Any]:
    from nsvm_cli.storage.run_directory import read_result

    try:
        return read_result(path)
    except InputError:
        return {}


def _reason(error: Exception, directory: Path) -> str:
    """Return the reason why a sweep ended early, and what to do about it."""
    from nsvm_cli.storage.files import with_filename

    if isinstance(error, OSError) and error.strerror and not error.filename:
        # as when the disk has no room for Hydra's multirun.yaml
        error = with_filename(error, directory)
    reason = next(iter(message_of(error).splitlines()))
    if isinstance(error, ModuleNotFoundError) and error.name in LAUNCHERS:
        reason += f"; pip install {LAUNCHERS[error.name]}"
    if "srun" in reason:
        reason += "; hydra/launcher=submitit_local tries a sweep on this machine"
    return reason


def _failure(failed: Sequence[Outcome]) -> InputError | RunError:
    first, more = failed[0], len(failed) - 1
    line = f"job {first.job} ({' '.join(first.overrides)}): {first.message}"
    line += f"; {more} more of the sweep's jobs failed" if more else ""
    return InputError(line) if all(outcome.exit_code == 2 for outcome in failed) else RunError(line)


def _show_best(runs: Sequence[Path]) -> None:
    """Print the best settings on each data set, by their mean scores over the seeds."""
    from nsvm_cli.comparison.cells import CAUTION, cells, chooses_by_test
    from nsvm_cli.comparison.compare import ranked
    from nsvm_cli.comparison.records import read_run
    from nsvm_cli.terminal.console import show_ranking

    records = [read_run(path) for path in runs]
    if sum(record.status == "finished" for record in records) < 2:
        return
    try:
        cells_of_runs = [cell for cell in cells(records) if cell.runs]
    except InputError as error:
        say(f"the settings cannot be ranked: {error}")
        return
    for title, group in groupby(cells_of_runs, lambda cell: cell.title):
        rows = [(f"{r:g}", cell.candidate, cell.seeds, cell.score.spread) for cell, r in ranked([*group])]
        show_ranking(title, rows)
    if chooses_by_test(cells_of_runs):
        answer(CAUTION)
