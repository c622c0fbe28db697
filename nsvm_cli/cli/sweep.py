"""The progress of a sweep and the outcomes of its jobs, read from the jobs' run directories."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, RangeSweep
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from nsvm_cli.compose.composition import settings_words, sources_sha256
from nsvm_cli.errors import InputError, Interrupted, RunError, message_of
from nsvm_cli.metrics import figure_of
from nsvm_cli.output import answer, say
from nsvm_cli.page.curves import draw_missing
from nsvm_cli.storage.run_directory import (
    RESULT,
    STATUS,
    command_in,
    is_finished,
    outcome_of,
    read_json,
    read_status,
    sweeps_in,
)
from nsvm_cli.words import baseline_warning, decapitalised, score_of


class SweepDirectory(Callback):
    """A Hydra callback that starts to show ``sweep``, unless the sweeper is a ``JobSweeper``."""

    sweep: ClassVar[Sweep | None] = None

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        if SweepDirectory.sweep is not None and not config.hydra.sweeper._target_.endswith("JobSweeper"):
            overrides: list[Override] = []
            with contextlib.suppress(HydraException, ValueError):  # Hydra reports the mistake
                overrides = overrides_of(config)
            SweepDirectory.sweep.start(config, overrides)


def overrides_of(config: DictConfig) -> list[Override]:
    """Return the overrides in ``hydra.sweeper.params``, followed by the command line's overrides."""
    params = [f"{key}={values}" for key, values in (config.hydra.sweeper.get("params") or {}).items()]
    parser = OverridesParser.create(GlobalHydra.instance().config_loader())
    return parser.parse_overrides([*params, *config.hydra.overrides.task])


@dataclass
class Sweep:
    """Shows the jobs of a sweep while they run, and reports their outcomes.

    Args:
        words: the arguments of ``nsvm train``.
        mark: identifies the sweep in the statuses of its jobs.

    Attributes:
        jobs: the number of jobs; None if the sweeper chooses each job after earlier jobs have ended.
        finished: the outcomes of jobs that had finished before the sweep started, by directory.
    """

    words: Sequence[str]
    mark: str = field(default_factory=lambda: f"{time.time_ns()}-{os.getpid()}")
    directory: Path | None = None
    jobs: int | None = None
    keys: set[str] = field(default_factory=set)
    finished: dict[Path, dict[str, Any]] = field(default_factory=dict)
    allow_mismatch: bool = False
    _missing: int = 0
    _ended: set[Path] = field(default_factory=set)
    _noticed: set[str] = field(default_factory=set)
    _watching: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def start(
        self, config: DictConfig, overrides: Sequence[Override], jobs: Sequence[list[str]] = ()
    ) -> list[Any]:
        """Start to show the jobs, and return the overrides of the unfinished jobs.

        ``jobs`` is empty if the sweeper chooses each job after earlier jobs have ended.
        """
        from nsvm_cli.terminal.console import sweep_progress

        for override in overrides:
            if isinstance(values := override.value(), RangeSweep) and not [*values.range()]:
                raise InputError(f"{override.input_line}: expected a range with at least one value")
        unresolved: Any = OmegaConf.to_container(config.hydra.sweep)
        parent, by_dataset, _ = unresolved["dir"].partition("${dataset.name}")  # a folder for each data set
        self.directory = Path(parent if by_dataset else config.hydra.sweep.dir)
        self.keys = {swept.get_key_element() for swept in overrides if swept.is_sweep_override()}
        self.jobs, self.allow_mismatch = len(jobs) or None, config.allow_mismatch is True
        if config.overwrite is False and (sources := sources_sha256(config.hydra)):
            finished = {path: read_status(path) for path in self._paths() if is_finished(path)}
            same = {path: status for path, status in finished.items() if status.get("sources") == sources}
            paths = {tuple(command_in(status)["overrides"]): path for path, status in same.items()}
            done = {n: path for n, job in enumerate(jobs) if (path := paths.get(tuple(settings_words(job))))}
            for n, path in done.items():
                self.finished[path] = {**same[path], "job": n, "directory": path}
            jobs = [job for n, job in enumerate(jobs) if n not in done]
        self._ended = {*self.finished}
        self._watching.enter_context(sweep_progress(self.look, self.jobs))
        return [*jobs]

    @contextlib.contextmanager
    def reported(self) -> Iterator[Sweep]:
        """Context manager: report the outcomes of the sweep's jobs at the end.

        Raises:
            InputError, RunError: a job failed.
            Interrupted: a signal ended the sweep.
        """
        SweepDirectory.sweep = self
        try:
            with self._watching:
                yield self
        except KeyboardInterrupt as error:
            if not self._report(draw=False):
                raise
            signum = error.signum if isinstance(error, Interrupted) else signal.SIGINT
            advice = "to resume the sweep, run the same command again, without overwrite=true"
            raise Interrupted(signum, f"interrupted: {advice}") from None
        except Exception as error:
            self._report()
            if self.directory is None or isinstance(error, (InputError, RunError)):
                raise
            # an error of the launcher, for example because there is no cluster or a process was killed
            cause = getattr(error, "cause", None) or error  # Ray wraps the error of a job
            raise RunError(f"the sweep ended early: {message_of(cause).splitlines()[0]}") from error
        finally:
            SweepDirectory.sweep = None
        outcomes = self._report()
        if failed := [job for job in outcomes if job["status"] in ("failed", "interrupted")]:
            first, *others = failed
            line = f"job {first['job']} ({' '.join(first['overrides'])}): {first['message']}"
            line += f"; failed jobs in total: {len(failed)}" if others else ""
            raise InputError(line) if all(job.get("exit_code") == 2 for job in failed) else RunError(line)
        if self._missing:
            jobs = f"{self._missing} of the sweep's jobs wrote no status to {self.directory}"
            raise RunError(f"{jobs}: check that the jobs can write to this folder")

    def look(self) -> tuple[list[str], int]:
        """Return lines on new notices and newly ended jobs, and the number of ended jobs."""
        lines = []
        for path in self._paths():
            if path in self._ended or (job := outcome(path, self.mark)) is None or job["killed"]:
                continue
            settings = [word for word in job["overrides"] if word.partition("=")[0] in self.keys]
            label = f"job {job['job']} ({' '.join(settings)})" if settings else f"job {job['job']}"
            new = [notice for notice in job.get("notices", []) if notice not in self._noticed]
            lines += [f"{label}: {notice}" for notice in new]
            self._noticed.update(new)
            if job["status"] != "running":
                self._ended.add(path)
            if job["status"] != "running" and not job.get("kept"):
                of_all = f"/{self.jobs}" if self.jobs else ""
                result = f": {job['message']}" if job["message"] else _score(path)
                lines.append(f"{label}: {job['status']}{result}; {len(self._ended)}{of_all} ended")
        return lines, len(self._ended)

    def _paths(self) -> list[Path]:
        assert self.directory is not None
        return [file.parent for file in self.directory.rglob(STATUS)]

    def _report(self, draw: bool = True) -> list[dict[str, Any]]:
        if self.directory is None:
            return []
        # a job with the same result as a finished one keeps its directory
        started = {path: job for path in self._paths() if (job := outcome(path, self.mark))}
        outcomes = sorted((started | self.finished).values(), key=lambda job: job["job"])
        known = len(self.finished) + sum(job["jobs"] for job in started.values())
        self._missing = max(0, (self.jobs or 0) - known)
        if outcomes:
            self._show(outcomes)
        if draw:  # after a signal, the curves are drawn when the sweep is started again
            draw_missing([job["directory"] for job in outcomes if job["status"] == "finished"])
        return outcomes

    def _show(self, outcomes: Sequence[dict[str, Any]]) -> None:
        count = Counter(job["status"] for job in outcomes)
        count["without a result"] = self._missing
        always = ("finished", "failed", "interrupted")
        further = [status for status in ("running", "without a result") if count[status]]
        folder = os.path.commonpath([job["directory"].parent for job in outcomes])
        answer(f"{folder}: {', '.join(f'{count[status]} {status}' for status in (*always, *further))}")
        if count["finished"] > 1:
            for line in _answers([job["directory"] for job in outcomes if job["status"] == "finished"]):
                answer(line)
            answer(f"To compare the settings: nsvm compare {shlex.quote(folder)}")
        outdated = [job["directory"].name for job in outcomes if job.get("other_code")]
        if outdated and not self.allow_mismatch:
            jobs = f"{len(outdated)} finished jobs, such as {outdated[0]},"
            advice = "to train these jobs again, delete their folders; to keep them, set allow_mismatch=true"
            say(f"{jobs} were trained before the code of plugins changed: {advice}")
        if count["finished"] < count.total():
            arguments = [word for word in self.words if not word.startswith("overwrite=")]
            answer(f"To run the remaining jobs: nsvm train {shlex.join(arguments)}")


def outcome(path: Path, sweep: str) -> dict[str, Any] | None:
    """Return the status and the outcome of the job in a directory; None if it belongs to another sweep."""
    record = read_status(path)
    if not (jobs := sweeps_in(record).count(sweep)):
        return None
    status, message = outcome_of(path, record)
    killed = status == "interrupted" != record.get("status")
    fields = {"directory": path, "status": status, "message": message, "killed": killed, "jobs": jobs}
    return {**record, **command_in(record), **fields}


def _answers(directories: Sequence[Path]) -> list[str]:
    """Return sentences that compare the scores of finished jobs."""
    from nsvm_cli.comparison import compare as study
    from nsvm_cli.comparison.records import read_run
    from nsvm_cli.comparison.table import answers

    try:
        return answers(study.compare(study.cells([read_run(path) for path in directories])))
    except InputError:  # the jobs cannot be compared, for example because their metrics differ
        return []


def _score(path: Path) -> str:
    """Return the score of a job as the end of a line, or an empty string if there is no score."""
    with contextlib.suppress(InputError):
        result = read_json(path / RESULT)
        if score := score_of(result, by=result.get("metric")):
            split, metric, value = score
            figure = figure_of(metric)
            caution = decapitalised(baseline_warning(result).rstrip("."))
            return f", {split} {figure.name} {figure.written(value)}{', ' * bool(caution)}{caution}"
    return ""
