"""The callback that passes the records of a run on to its logger."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from nsvm_cli.config.settings import flat
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.loggers import Logger, TrackedRun, build_logger
from nsvm_cli.plugins import location
from nsvm_cli.runs.callbacks import Say
from nsvm_cli.runs.loop import Callback, Record
from nsvm_cli.storage.run_directory import KEPT_BY_LOGGERS, Status, numbers_in
from nsvm_cli.trainers import State


class Tracking(Callback):
    """Pass the records of a run to its logger and, when the context ends, the outcome.

    A logger that cannot start ends the run, since nothing is lost yet. One that fails later is disabled, with
    a warning; one that cannot take the files of the run is still told that it has finished. Set ``result`` to
    the fields of the result once the files of the run are written.
    """

    def __init__(self, run: TrackedRun, say: Say) -> None:
        self.run, self.say = run, say
        self.name = run.settings["logger"]["name"]
        self.logger = Logger()
        self.result: Mapping[str, Any] = {}
        self.record: Record = {}

    def __enter__(self) -> Tracking:
        try:
            self.logger = build_logger(self.run.settings["logger"]).start(self.run)
        except InputError:
            raise
        except Exception as error:
            raise RunError(
                f"logger={self.name} could not start: {_sentence(error)}; logger=none trains without"
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        interrupted = isinstance(error, KeyboardInterrupt)
        status: Status = "finished" if error is None else "interrupted" if interrupted else "failed"
        logged = {**self.record, **flat(self.run.settings)}
        logger = self.logger
        if status == "finished":
            kept = (self.run.directory / name for name in KEPT_BY_LOGGERS)
            with self._surviving("could not keep the files of the run"):
                logger.add_files([file for file in kept if file.is_file()])
        with self._surviving():
            logger.finish(status, {k: v for k, v in numbers_in(self.result).items() if k not in logged})

    def on_log(self, state: State, record: Record) -> None:
        self.record = record
        with self._surviving():
            self.logger.log(record["step"], {k: v for k, v in numbers_in(record).items() if k != "step"})

    @contextlib.contextmanager
    def _surviving(self, what: str = "failed and is disabled for the rest of the run") -> Iterator[None]:
        """Turn an error of the logger into a warning, and disable the logger."""
        try:
            yield
        except Exception as error:
            self.logger = Logger()
            self.say(f"warning: logger={self.name} {what}: {_sentence(error)}")


def _sentence(error: Exception) -> str:
    """Return the beginning of a library's message, on one line, and the line of a plugin that led to it."""
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return (text if len(text) <= 200 else f"{text[:196]} ...") + location(error)
