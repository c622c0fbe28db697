"""Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.loggers.base import Logger, LoggerConfig, TrackedRun, set_defaults
from nsvm_cli.storage.run_directory import Status

if TYPE_CHECKING:
    from wandb import Run

UPLOAD_SECONDS = 60.0
"""How long a run may wait at its end for uploads; what is left can be uploaded later."""


@dataclass(frozen=True, config=STRICT)
class WandB(LoggerConfig):
    """Logs to Weights & Biases, or with WANDB_MODE=offline to ./wandb, for ``wandb sync``.

    ``project`` is the name of the project; the runs of a sweep are a group.
    """

    package: ClassVar[str | None] = "wandb"
    keeps_files: ClassVar[bool] = True
    project: Annotated[str, Field(min_length=1)] = "nsvm"

    def start(self, run: TrackedRun) -> Logger:
        """Return a logger that has created a run, or continues the one that it created before."""
        # when silent, it does not ask for an account either
        set_defaults(WANDB_SILENT="true", WANDB_ERROR_REPORTING="false")
        import wandb  # slow to import

        started = wandb.init(
            project=self.project,
            id=run.recorded_id("wandb"),
            resume="allow",
            name=run.name,
            group=run.sweep,
            config=dict(run.settings),
            allow_val_change=True,
            settings=wandb.Settings(
                console="off",
                disable_git=True,
                disable_code=True,
                x_disable_stats=True,
                finish_timeout=UPLOAD_SECONDS,
                finish_timeout_raises=True,
            ),
        )
        run.record_id("wandb", started.id)
        # all of them offline, as the last folder replaces those before it
        return run.told_to(_WandBRun(started))


class _WandBRun(Logger):
    def __init__(self, run: Run) -> None:
        self.run = run

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        if step >= self.run.step:  # or W&B has it already
            self.run.log(dict(figures), step=step)

    def add_files(self, files: Sequence[Path]) -> None:
        import wandb

        for file in files:  # in a folder of their own: W&B has a config.yaml too
            self.run.save(str(file), base_path=str(file.parents[1]), policy="now")
        shown: dict[str, Any] = {}
        for file in files:
            if file.suffix == ".png":
                shown[file.stem] = wandb.Image(str(file))
            elif file.suffix == ".html":  # unchanged: W&B would add a style of its own
                shown[file.stem] = wandb.Html(str(file), inject=False)
        self.run.summary.update(shown)

    def finish(self, status: Status, figures: Mapping[str, float]) -> None:
        import wandb

        self.run.summary.update({**figures, "status": status})
        self.run.finish(exit_code=0 if status == "finished" else 1)
        wandb.teardown()  # ends its process
