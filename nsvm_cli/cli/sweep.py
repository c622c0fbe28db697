"""A sweep: the progress and the outcomes of its jobs, read from their run directories."""

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
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from nsvm_cli.compose.composition import settings_words, sources_sha256
from nsvm_cli.errors import InputError, Interrupted, RunError, message_of
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
from nsvm_cli.words import TASK_METRICS, decapitalised, no_better, score_of


class SweepDirectory(Callback):
    """Hydra's callback that starts the ``sweep`` of this process for sweepers other than ``JobSweeper``."""

    sweep: ClassVar[Sweep | None] = None

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        if SweepDirectory.sweep is not None and not config.hydra.sweeper._target_.endswith("JobSweeper"):
            words: list[Override] = []
            with contextlib.suppress(HydraException, ValueError):  # a mistake that Hydra reports
                words = overrides_of(config)
            SweepDirectory.sweep.start(config, words)


def overrides_of(config: DictConfig) -> list[Override]:
    """Return the overrides of a sweep, from its section of the configuration and from the command line."""
    params = [f"{key}={values}" for key, values in (config.hydra.sweeper.get("params") or {}).items()]
    parser = OverridesParser.create(GlobalHydra.instance().config_loader())
    return parser.parse_overrides([*params, *config.hydra.overrides.task])


@dataclass
class Sweep:
    """Shows the jobs of a sweep while they run, and reports their outcomes.

    Args:
        words: the arguments of ``nsvm train``.
        mark: identifies the sweep in the statuses of its jobs, as other sweeps may share the directory.

    Attributes:
        jobs: the number of jobs; None if the sweeper decides on them one after the other.
        keys: the keys that have several values.
        kept: the outcomes of jobs that had finished before the start, by their directories.
    """

    words: Sequence[str]
    mark: str = field(default_factory=lambda: f"{time.time_ns()}-{os.getpid()}")
    directory: Path | None = None
    jobs: int | None = None
    keys: set[str] = field(default_factory=set)
    kept: dict[Path, dict[str, Any]] = field(default_factory=dict)
    allow_mismatch: bool = False
    _lacking: int = 0
    _ended: set[Path] = field(default_factory=set)
    _noticed: set[str] = field(default_factory=set)
    _watching: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def start(
        self, config: DictConfig, overrides: Sequence[Override], jobs: Sequence[list[str]] = ()
    ) -> list[Any]:
        """Begin to show the jobs, and return the words of the unfinished ones.

        Args:
            overrides: the overrides of the sweep. Keys with several values tell the jobs apart.
            jobs: the words of each job; empty if the sweeper decides on jobs one after the other.
        """
        from nsvm_cli.terminal.console import sweep_progress

        unresolved: Any = OmegaConf.to_container(config.hydra.sweep)
        above, of_dataset, _ = unresolved["dir"].partition("${dataset.name}")  # with a folder for each
        self.directory = Path(above if of_dataset else config.hydra.sweep.dir)
        self.keys = {word.get_key_element() for word in overrides if word.is_sweep_override()}
        self.jobs, self.allow_mismatch = len(jobs) or None, config.allow_mismatch is True
        if config.overwrite is False and (sources := sources_sha256(config.hydra)):
            finished = {path: read_status(path) for path in self._paths() if is_finished(path)}
            same = {path: status for path, status in finished.items() if status.get("sources") == sources}
            paths = {tuple(command_in(status)["overrides"]): path for path, status in same.items()}
            kept = {n: path for n, job in enumerate(jobs) if (path := paths.get(tuple(settings_words(job))))}
            for n, path in kept.items():
                self.kept[path] = {**same[path], "job": n, "directory": path, "jobs": 1}
            jobs = [job for n, job in enumerate(jobs) if n not in kept]
        self._ended = {*self.kept}
        self._watching.enter_context(sweep_progress(self.look, self.jobs))
        return [*jobs]

    @contextlib.contextmanager
    def reported(self) -> Iterator[Sweep]:
        """Yield the sweep, and report the outcomes of its jobs at the end of the context, if it was started.

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
            advice = "the same command, without overwrite=true, resumes the sweep"
            raise Interrupted(signum, f"interrupted: {advice}") from None
        except Exception as error:
            self._report()
            if self.directory is None or isinstance(error, (InputError, RunError)):
                raise
            # an error of the launcher: no cluster, or a process was killed
            cause = getattr(error, "cause", None) or error  # Ray wraps the error of a job
            raise RunError(f"the sweep ended early: {message_of(cause).splitlines()[0]}") from error
        finally:
            SweepDirectory.sweep = None
        outcomes = self._report()
        if failed := [one for one in outcomes if one["status"] in ("failed", "interrupted")]:
            raise _failure(failed)
        if self._lacking:
            where = f"nothing in {self.directory}: can they write there?"
            raise RunError(f"{self._lacking} of the sweep's jobs left {where}")

    def look(self) -> tuple[list[str], int]:
        """Return a line for each new notice and each job that has ended, and the number of jobs that have."""
        lines = []
        for path in self._paths():
            if path in self._ended or (one := outcome(path, self.mark)) is None or one["killed"]:
                continue
            settings = [word for word in one["overrides"] if word.partition("=")[0] in self.keys]
            label = f"job {one['job']} ({' '.join(settings)})" if settings else f"job {one['job']}"
            new = [notice for notice in one.get("notices", []) if notice not in self._noticed]
            lines += [f"{label}: {notice}" for notice in new]
            self._noticed.update(new)
            if one["status"] != "running":
                self._ended.add(path)
            if one["status"] != "running" and not one.get("kept"):
                of_all = f"/{self.jobs}" if self.jobs else ""
                result = f": {one['message']}" if one["message"] else _score(path)
                lines.append(f"{label}: {one['status']}{result}; {len(self._ended)}{of_all} ended")
        return lines, len(self._ended)

    def _paths(self) -> list[Path]:
        assert self.directory is not None
        return [file.parent for file in self.directory.rglob(STATUS)]

    def _report(self, draw: bool = True) -> list[dict[str, Any]]:
        """Print and return the outcomes of the jobs."""
        if self.directory is None:
            return []
        others = (outcome(path, self.mark) for path in {*self._paths()} - {*self.kept})
        outcomes = sorted([*self.kept.values(), *filter(None, others)], key=lambda one: one["job"])
        self._lacking = max(0, (self.jobs or 0) - sum(one["jobs"] for one in outcomes))
        if outcomes:
            self._show(outcomes)
        if draw:  # after a signal the next start of the sweep draws the curves
            draw_missing([one["directory"] for one in outcomes if one["status"] == "finished"])
        return outcomes

    def _show(self, outcomes: Sequence[dict[str, Any]]) -> None:
        count = Counter(one["status"] for one in outcomes)
        count["without a result"] = self._lacking
        always = ("finished", "failed", "interrupted")
        more = [status for status in ("running", "without a result") if count[status]]
        above = os.path.commonpath([one["directory"].parent for one in outcomes])
        answer(f"{above}: {', '.join(f'{count[status]} {status}' for status in (*always, *more))}")
        if count["finished"] > 1:
            for line in _answers([one["directory"] for one in outcomes if one["status"] == "finished"]):
                answer(line)
            answer(f"To compare the settings: nsvm compare {shlex.quote(above)}")
        others = [one["directory"].name for one in outcomes if one.get("other_code")]
        if others and not self.allow_mismatch:
            jobs = f"{len(others)} finished jobs, such as {others[0]},"
            advice = "allow_mismatch=true accepts that; to train them again, delete their folders"
            say(f"{jobs} were trained with other code of plugins: {advice}")
        if count["finished"] < count.total():
            again = [word for word in self.words if not word.startswith("overwrite=")]
            answer(f"What is left: nsvm train {shlex.join(again)}")


def outcome(path: Path, sweep: str) -> dict[str, Any] | None:
    """Return the status of the job in a directory and its outcome; None if it belongs to another sweep.

    ``jobs`` is the number of equal jobs that share the directory. A ``killed`` job may be started again.
    """
    record = read_status(path)
    if not (jobs := sweeps_in(record).count(sweep)):
        return None
    status, message = outcome_of(path, record)
    killed = status == "interrupted" != record.get("status")
    own = {"directory": path, "status": status, "message": message, "killed": killed, "jobs": jobs}
    return {**record, **command_in(record), **own}


def _answers(directories: Sequence[Path]) -> list[str]:
    """Return sentences that compare the settings of the jobs by their scores."""
    from nsvm_cli.comparison import compare as study
    from nsvm_cli.comparison.records import read_run
    from nsvm_cli.comparison.table import answers

    try:
        return answers(study.compare(study.cells([read_run(path) for path in directories])))
    except InputError:  # such as different metrics
        return []


def _score(path: Path) -> str:
    """Return the score of a job as the end of a line; empty without one."""
    with contextlib.suppress(InputError):
        result = read_json(path / RESULT)
        if score := score_of(result, by=result.get("metric")):
            split, metric, value = score
            figure = TASK_METRICS[metric]
            caution = decapitalised(no_better(result).rstrip("."))
            return f", {split} {figure.name} {figure.written(value)}{', ' * bool(caution)}{caution}"
    return ""


def _failure(failed: Sequence[dict[str, Any]]) -> InputError | RunError:
    first, more = failed[0], len(failed) - 1
    line = f"job {first['job']} ({' '.join(first['overrides'])}): {first['message']}"
    line += f"; {more} more of the sweep's jobs failed" if more else ""
    return InputError(line) if all(one.get("exit_code") == 2 for one in failed) else RunError(line)
