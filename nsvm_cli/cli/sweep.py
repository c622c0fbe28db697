"""A sweep: the progress of its jobs, read from their run directories, and their outcomes."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from nsvm_cli.errors import InputError, Interrupted, RunError, message_of
from nsvm_cli.output import answer
from nsvm_cli.page.curves import draw_missing
from nsvm_cli.storage.run_directory import (
    KILLED,
    RESULT,
    STATUS,
    command_in,
    outcome_of,
    read_json,
    read_status,
)
from nsvm_cli.words import METRIC_FORMATS, no_better, score_of


class SweepDirectory(Callback):
    """Hydra's callback that tells the sweep of this process the directory and number of its jobs."""

    sweep: ClassVar[Sweep | None] = None

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Start to watch the directory; jobs on several data sets have a folder for each in it."""
        if SweepDirectory.sweep is not None:
            unresolved: Any = OmegaConf.to_container(config.hydra.sweep)
            above, of_dataset, _ = unresolved["dir"].partition("${dataset.name}")
            directory = Path(above if of_dataset else config.hydra.sweep.dir)
            SweepDirectory.sweep.start(directory, *_swept(config.hydra))


def _swept(hydra: DictConfig) -> tuple[int | None, set[str]]:
    """Return the number of jobs, None if a sweeper decides it, and the keys with several values."""
    params = [f"{key}={values}" for key, values in (hydra.sweeper.get("params") or {}).items()]
    try:
        overrides = OverridesParser.create().parse_overrides([*params, *hydra.overrides.task])
        swept = [override for override in overrides if override.is_sweep_override()]
        keys = {override.get_key_element() for override in swept}
        if not hydra.sweeper._target_.endswith(".BasicSweeper"):
            return None, keys
        return math.prod(len([*override.sweep_string_iterator()]) for override in swept), keys
    except (HydraException, ValueError):  # a mistake that Hydra reports, or glob(*)
        return None, set()


@dataclass
class Sweep:
    """The sweep that this process runs, if any: shows its jobs while they run, and reports at the end.

    Args:
        words: the arguments of ``nsvm train``.

    Attributes:
        mark: what the statuses of its jobs name it by: other sweeps may share the directory.
    """

    words: Sequence[str]
    mark: str = field(default_factory=lambda: f"{time.time_ns()}-{os.getpid()}")
    directory: Path | None = None
    jobs: int | None = None
    keys: set[str] = field(default_factory=set)
    _ended: set[Path] = field(default_factory=set)
    _noticed: set[str] = field(default_factory=set)
    _watching: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def start(self, directory: Path, jobs: int | None, keys: set[str]) -> None:
        """Show the jobs in a directory from now on: how many, and the keys that tell them apart."""
        from nsvm_cli.terminal.console import sweep_progress

        self.directory, self.jobs, self.keys = directory, jobs, keys
        self._watching.enter_context(sweep_progress(self.look, jobs))

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
        except KeyboardInterrupt as error:
            if not self._report(interrupted=True):
                raise
            signum = error.signum if isinstance(error, Interrupted) else signal.SIGINT
            resumes = "the same command, without overwrite=true, resumes the sweep"
            raise Interrupted(signum, f"interrupted: {resumes}") from None
        except Exception as error:
            self._report()
            if self.directory is None or isinstance(error, (InputError, RunError)):
                raise
            # an error of the launcher: no cluster, or a process was killed
            cause = getattr(error, "cause", None) or error  # Ray wraps what a job raises
            raise RunError(f"the sweep ended early: {message_of(cause).splitlines()[0]}") from error
        finally:
            SweepDirectory.sweep = None
        outcomes = self._report()
        if failed := [outcome for outcome in outcomes if outcome["status"] == "failed"]:
            raise _failure(failed)
        if (lacking := (self.jobs or 0) - len(outcomes)) > 0:
            raise RunError(
                f"{lacking} of the sweep's jobs left nothing in {self.directory}: can they write there?"
            )

    def look(self) -> tuple[list[str], int]:
        """Return a line for each new notice and job that has ended, and how many jobs have ended."""
        lines = []
        for path in self._paths():
            if path in self._ended or (one := outcome(path, self.mark)) is None or one["message"] == KILLED:
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
                told = f": {one['message']}" if one["message"] else _score(path)
                lines.append(f"{label}: {one['status']}{told}; {len(self._ended)}{of_all} ended")
        return lines, len(self._ended)

    def _paths(self) -> list[Path]:
        """Return the directories of jobs."""
        assert self.directory is not None
        return [file.parent for file in self.directory.rglob(STATUS)]

    def _report(self, interrupted: bool = False) -> list[dict[str, Any]]:
        """Print what became of the jobs, and return their outcomes."""
        if self.directory is None:
            return []
        found = filter(None, (outcome(path, self.mark, interrupted) for path in self._paths()))
        if outcomes := sorted(found, key=lambda one: one["job"]):
            self._show(outcomes)
        if not interrupted:  # a signal means to stop now; the next start draws the pictures
            draw_missing([one["directory"] for one in outcomes if one["status"] == "finished"])
        return outcomes

    def _show(self, outcomes: Sequence[dict[str, Any]]) -> None:
        count = Counter(one["status"] for one in outcomes)
        count["without a result"] = max(0, (self.jobs or 0) - len(outcomes))
        always = ("finished", "failed", "interrupted")
        more = [status for status in ("running", "without a result") if count[status]]
        above = os.path.commonpath([one["directory"].parent for one in outcomes])
        answer(f"{above}: {', '.join(f'{count[status]} {status}' for status in (*always, *more))}")
        if count["finished"] > 1:
            answer(f"To compare the settings: nsvm compare {shlex.quote(above)}")
        if count["finished"] < count.total():
            again = [word for word in self.words if not word.startswith("overwrite=")]
            answer(f"What is left: nsvm train {shlex.join(again)}")


def outcome(path: Path, sweep: str, interrupted: bool = False) -> dict[str, Any] | None:
    """Return the status of the job in a directory, and this; None if it does not belong to this sweep.

    If the sweep was ``interrupted``, so were jobs that had no time to say so.
    """
    record = read_status(path)
    if record.get("sweep") != sweep:
        return None
    status, message = outcome_of(path, record)
    if interrupted and message == KILLED:
        status, message = "interrupted", "ended with its sweep"
    return {**record, **command_in(record), "directory": path, "status": status, "message": message}


def _score(path: Path) -> str:
    """Return the score of a job that has ended, if it has one, as it stands in a line."""
    with contextlib.suppress(InputError):
        result = read_json(path / RESULT)
        if score := score_of(result, by=result.get("metric")):
            split, metric, value = score
            name, shown = METRIC_FORMATS[metric]
            sentence = no_better(result).rstrip(".")
            return f", {split} {name} {shown(value)}" + (
                sentence and f", {sentence[0].lower()}{sentence[1:]}"
            )
    return ""


def _failure(failed: Sequence[dict[str, Any]]) -> InputError | RunError:
    first, more = failed[0], len(failed) - 1
    line = f"job {first['job']} ({' '.join(first['overrides'])}): {first['message']}"
    line += f"; {more} more of the sweep's jobs failed" if more else ""
    return InputError(line) if all(one.get("exit_code") == 2 for one in failed) else RunError(line)
