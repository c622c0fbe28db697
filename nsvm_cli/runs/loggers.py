"""Loggers, which show a run in TensorBoard, MLflow or Weights & Biases.

To add a logger, derive a class from ``Logger`` and register it in ``LOGGERS``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT, Registry, build, shown
from nsvm_cli.config.settings import flat
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.output import say
from nsvm_cli.plugins import location
from nsvm_cli.runs.loop import Callback, Record
from nsvm_cli.storage.files import cache_folder, locked
from nsvm_cli.storage.run_directory import CONFIG, RESULT, TRACKING, Status, read_json, write_json
from nsvm_cli.trainers import State

Name = Annotated[str, Field(min_length=1)]


class Logger:
    """Base class of loggers, which logs nothing by itself. The fields of a logger are its settings.

    An error in ``start`` ends the run. After a later error, the logger is disabled with a warning.
    """

    package: ClassVar[str | None] = None
    """The package that the logger imports, if any."""

    def start(self, run: Tracking) -> str | None:
        """Start to show a run, or resume the run ``run.id``. Return the run's id in the tool, or None."""
        return None

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Show the values recorded at a step."""

    def finish(self, status: Status, step: int, figures: Mapping[str, float], files: Sequence[Path]) -> None:
        """Show the final status, the values at the last step and the files, and release all resources."""


@dataclass(config=STRICT)
class TensorBoard(Logger):
    """Writes event files to the run directory. ``tensorboard --logdir SWEEP`` shows a line for each run."""

    package: ClassVar[str | None] = "tensorboard"

    def start(self, run: Tracking) -> str | None:
        from torch.utils.tensorboard import SummaryWriter  # slow to import

        # steps after the step from which the run resumes are recorded again
        self._writer = SummaryWriter(str(run.directory), purge_step=run.step + 1)
        self._writer.add_text("settings", "\n".join(f"    {k}={v}" for k, v in flat(run.settings).items()))
        return None

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def finish(self, status: Status, step: int, figures: Mapping[str, float], files: Sequence[Path]) -> None:
        self.log(step, figures)
        self._writer.add_text("status", status, step)
        self._writer.close()


@dataclass(config=STRICT)
class MLflow(Logger):
    """Logs to the server or store at MLFLOW_TRACKING_URI. The default is mlflow.db in the current folder.

    ``experiment`` is the name of MLflow's experiment. The runs of a sweep have a tag ``sweep``.
    """

    package: ClassVar[str | None] = "mlflow"
    experiment: Name = "nsvm"

    def start(self, run: Tracking) -> str | None:
        # by default, training would wait for minutes while MLflow retries, and later for a telemetry server
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "3")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        import mlflow  # slow to import

        logging.getLogger("mlflow").setLevel(logging.CRITICAL)  # MLflow's exceptions contain its messages
        # MLflow cannot create a database in several processes
        with locked(cache_folder() / "mlflow", wait=True):
            self._client = mlflow.MlflowClient()
            experiment = mlflow.set_experiment(self.experiment).experiment_id
        if (run_id := run.id) is None:
            tags = {} if run.sweep is None else {"sweep": run.sweep}
            run_id = self._client.create_run(experiment, tags=tags, run_name=run.name).info.run_id
            mlflow.log_params(flat(run.settings), run_id=run_id)
        self._client.update_run(run_id, "RUNNING")
        self._run = run_id
        return run_id

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._client.log_batch(self._run, [Metric(name, value, now, step) for name, value in figures.items()])

    def finish(self, status: Status, step: int, figures: Mapping[str, float], files: Sequence[Path]) -> None:
        self.log(step, figures)
        for file in files:
            self._client.log_artifact(self._run, str(file))
        names = {"finished": "FINISHED", "interrupted": "KILLED"}
        self._client.set_terminated(self._run, names.get(status, "FAILED"))


@dataclass(config=STRICT)
class WandB(Logger):
    """Logs to Weights & Biases. With WANDB_MODE=offline, it logs to ./wandb; ``wandb sync`` uploads the logs.

    ``project`` is the name of the project. The runs of a sweep form a group.
    """

    package: ClassVar[str | None] = "wandb"
    project: Name = "nsvm"

    def start(self, run: Tracking) -> str | None:
        os.environ.setdefault("WANDB_SILENT", "true")  # this also disables the prompt for an account
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb  # slow to import

        self._run = wandb.init(
            project=self.project,
            id=run.id,
            resume="allow",
            name=run.name,
            group=run.sweep,
            config=dict(run.settings),
            allow_val_change=True,
            settings=wandb.Settings(console="off", disable_git=True),  # see ``git_state``
        )
        return self._run.id

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        self._run.log(dict(figures), step=step)  # W&B ignores steps that it has already recorded

    def finish(self, status: Status, step: int, figures: Mapping[str, float], files: Sequence[Path]) -> None:
        for file in files:  # stored in a subfolder, because W&B has its own config.yaml
            self._run.save(str(file), base_path=str(file.parents[1]), policy="now")
        self._run.summary.update({**figures, "status": status})
        self._run.finish(exit_code=0 if status == "finished" else 1)


LOGGERS: Registry[type[Logger]] = Registry("logger", Logger)
LOGGERS |= {"none": Logger, "tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WandB}


def build_logger(settings: Mapping[str, Any]) -> Logger:
    """Return the logger of a ``logger:`` section. Raise an InputError if its package is not installed."""
    logger, name = build(LOGGERS, "logger", settings), settings["name"]
    if logger.package is not None and find_spec(logger.package) is None:
        advice = f"install it with pip install {logger.package}, or set logger=none"
        raise InputError(f"logger={name} requires {logger.package}: {advice}")
    return logger


@plain_dataclass(eq=False)
class Tracking(Callback):
    """A callback and context manager that passes the records and the outcome of a run to a logger.

    Attributes:
        sweep: the name of the run's sweep, or None.
        step: the number of steps taken before the run starts or resumes.
        result: the fields of the result, set at the end of the run.
        last: the last record.
    """

    logger: Logger
    directory: Path
    settings: Mapping[str, Any]
    sweep: str | None
    step: int
    result: Mapping[str, Any] = field(default_factory=dict)
    last: Record = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The last two parts of the path of the directory."""
        return "/".join(self.directory.absolute().parts[-2:])

    @property
    def id(self) -> str | None:
        """The id of a resumed run in the logger's tool; None if the run is new to the tool."""
        return self._ids().get(self.settings["logger"]["name"])

    def _ids(self) -> dict[str, str]:
        """Return the ids of this run in the tools of loggers, by name of the logger."""
        file = self.directory / TRACKING
        ids = read_json(file) if file.exists() else {}
        allowed = re.compile(r"[^/\\#?%:\s]{1,128}")  # the ids that W&B allows
        if not all(isinstance(run_id, str) and allowed.fullmatch(run_id) for run_id in ids.values()):
            raise InputError(f"{file} cannot be read: expected run ids, got {shown(ids)}")
        return ids

    def __enter__(self) -> Tracking:
        name = self.settings["logger"]["name"]
        try:
            if (run_id := self.logger.start(self)) is not None:
                write_json(self.directory / TRACKING, {**self._ids(), name: run_id})
        except InputError:
            raise
        except Exception as error:
            advice = "to train without a logger, set logger=none"
            raise RunError(f"logger={name} could not start: {_sentence(error)}; {advice}") from error
        return self

    def on_log(self, state: State, record: Record) -> None:
        self.last, figures = record, _numbers(record)
        with self._surviving():
            self.logger.log(int(figures.pop("step")), figures)

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        interrupted = isinstance(error, KeyboardInterrupt)
        status: Status = "finished" if error is None else "interrupted" if interrupted else "failed"
        shown_before = {**self.last, **flat(self.settings)}
        figures = {k: v for k, v in _numbers(self.result).items() if k not in shown_before}
        names = (CONFIG, RESULT, "final.safetensors") if status == "finished" else ()
        files = [file for name in names if (file := self.directory / name).is_file()]
        with self._surviving():
            step = self.last.get("step", self.step)
            self.logger.finish(status, step, figures, files)

    @contextlib.contextmanager
    def _surviving(self) -> Iterator[None]:
        """Context manager: if the logger raises an error, disable the logger and show a warning."""
        try:
            yield
        except Exception as error:
            self.logger, name = Logger(), self.settings["logger"]["name"]
            failed = f"logger={name} failed and is disabled for the rest of the run"
            say(f"warning: {failed}: {_sentence(error)}")


def _numbers(record: Mapping[str, Any]) -> dict[str, int | float]:
    return {name: value for name, value in record.items() if type(value) in (int, float)}


def _sentence(error: Exception) -> str:
    """Return the start of an error's message as one line, with the line of a plugin that caused the error."""
    text = textwrap.shorten(str(error), 200, placeholder=" ...").rstrip(".") or type(error).__name__
    return text + location(error)
