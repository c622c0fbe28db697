"""MLflow."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from platformdirs import user_cache_path
from pydantic import Field
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.config.settings import flat
from nsvm_cli.loggers.base import Logger, LoggerConfig, TrackedRun, set_defaults
from nsvm_cli.storage.files import locked
from nsvm_cli.storage.run_directory import Status

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
"""MLflow's names for the status of a run that has ended."""

LARGEST_BATCH = 1000
"""The most figures that MLflow takes at a time."""

SECONDS = 1.0
"""Time between two batches."""


@dataclass(frozen=True, config=STRICT)
class MLflow(LoggerConfig):
    """Logs to the server or the store that MLFLOW_TRACKING_URI names, by default mlflow.db in this folder.

    ``experiment`` is the name of MLflow's experiment; the runs of a sweep have a tag ``sweep``.
    """

    package: ClassVar[str | None] = "mlflow"
    keeps_files: ClassVar[bool] = True
    experiment: Annotated[str, Field(min_length=1)] = "nsvm"

    def start(self, run: TrackedRun) -> Logger:
        """Return a logger that has created a run, or continues the one that it created before."""
        # by default it retries for minutes, while training waits, and waits for a telemetry server at the end
        waits = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "3"}
        set_defaults(**waits, MLFLOW_DISABLE_TELEMETRY="true")
        import mlflow  # slow to import
        from mlflow.entities import Param

        logging.getLogger("mlflow").setLevel(logging.CRITICAL)  # its exceptions say the same
        with _alone(mlflow.get_tracking_uri()):
            client = mlflow.MlflowClient()
            experiment = mlflow.set_experiment(self.experiment).experiment_id
        if (run_id := run.recorded_id("mlflow")) is None:
            tags = {} if run.sweep is None else {"sweep": run.sweep}
            run_id = client.create_run(experiment, tags=tags, run_name=run.name).info.run_id
            run.record_id("mlflow", run_id)
            settings = flat(run.settings).items()
            client.log_batch(run_id, params=[Param(name, str(value)) for name, value in settings])
        client.update_run(run_id, "RUNNING")
        steps = [metric.step for metric in client.get_metric_history(run_id, "violations")]
        return run.told_to(_MLflowRun(client, run_id, max(steps, default=0)))


def _alone(store: str) -> contextlib.AbstractContextManager[None]:
    """Keep other runs from creating the same database, which MLflow cannot do in parallel."""
    if not store.startswith("sqlite:"):
        return contextlib.nullcontext()
    return locked(user_cache_path("nsvm", appauthor=False) / "mlflow", wait=True)


class _MLflowRun(Logger):
    """Sends several records at a time: a database or a server takes as long for many as for one."""

    def __init__(self, client: MlflowClient, run: str, step: int) -> None:
        self.client, self.run, self.step = client, run, step
        self.waiting: list[Metric] = []
        self.sent = time.monotonic()

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        if step > self.step:  # or it was logged before the run was resumed
            self._add(step, figures)

    def _add(self, step: int, figures: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now, self.step = int(1000 * time.time()), step
        if len(self.waiting) + len(figures) > LARGEST_BATCH:
            self._send()
        self.waiting += [Metric(name, value, now, step) for name, value in figures.items()]
        if time.monotonic() - self.sent > SECONDS:
            self._send()

    def _send(self) -> None:
        self.client.log_batch(self.run, self.waiting)
        self.waiting, self.sent = [], time.monotonic()

    def add_files(self, files: Sequence[Path]) -> None:
        for file in files:
            self.client.log_artifact(self.run, str(file))

    def finish(self, status: Status, figures: Mapping[str, float]) -> None:
        self._add(self.step, figures)
        self._send()
        self.client.set_terminated(self.run, STATUS[status])
