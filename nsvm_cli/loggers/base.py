"""The interface of loggers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from nsvm_cli.storage.metrics_file import read_metrics
from nsvm_cli.storage.run_directory import METRICS, Status, numbers_in, read_tracking, write_tracking


@dataclass(frozen=True)
class TrackedRun:
    """The information that a logger gets about a run that starts or resumes.

    Attributes:
        sweep: the name of the sweep that the run belongs to; None for a single run.
        step: the step after which it starts, 0 unless it resumes.
    """

    directory: Path
    settings: Mapping[str, Any]
    sweep: str | None
    step: int

    @property
    def name(self) -> str:
        """A name for a person to read: the end of the directory's path."""
        return "/".join(self.directory.absolute().parts[-2:])

    def recorded_id(self, logger: str) -> str | None:
        """Return the logger's id of this run from before it was resumed; None if the run is new to it.

        Raises:
            InputError: the directory's record of it is damaged.
        """
        return read_tracking(self.directory).get(logger)

    def record_id(self, logger: str, run: str) -> None:
        """Record the logger's id of this run, for ``recorded_id``."""
        write_tracking(self.directory, {**read_tracking(self.directory), logger: run})

    def told_to(self, logger: Logger) -> Logger:
        """Log the records before this start, as a kill may have left some unsent, and return the logger."""
        for record in read_metrics(self.directory / METRICS):
            logger.log(record.pop("step"), numbers_in(record))
        return logger


class Logger:
    """Shows one run; this one shows nothing.

    An exception of a logger becomes one line: before training it ends the run, and later it is a warning.
    """

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Show the figures of a step."""

    def add_files(self, files: Sequence[Path]) -> None:
        """Keep files of a finished run, such as its model; show the pictures (PNG) and pages (HTML)."""

    def finish(self, status: Status, figures: Mapping[str, float]) -> None:
        """Show how the run ended, with its final figures, and release everything."""


class LoggerConfig:
    """The settings of a logger; this one shows nothing.

    ``package`` is the one that it needs, if any. ``keeps_files`` says whether it copies the files of a
    finished run elsewhere: only then is a report written for it.
    """

    package: ClassVar[str | None] = None
    keeps_files: ClassVar[bool] = False

    def start(self, run: TrackedRun) -> Logger:
        """Return the logger of a run; if the run resumes, the tool may already have it."""
        return Logger()


def set_defaults(**variables: str) -> None:
    """Set variables of the environment that the user has not set."""
    for name, value in variables.items():
        os.environ.setdefault(name, value)
