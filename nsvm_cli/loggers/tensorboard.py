"""TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.config.settings import flat
from nsvm_cli.loggers.base import Logger, LoggerConfig, TrackedRun
from nsvm_cli.storage.run_directory import EVENTS, Status

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


@dataclass(frozen=True, config=STRICT)
class TensorBoard(LoggerConfig):
    """Writes event files to the run directory: ``tensorboard --logdir SWEEP`` shows a line for each run."""

    package: ClassVar[str | None] = "tensorboard"

    def start(self, run: TrackedRun) -> Logger:
        """Return a logger whose events replace all after the step that the run resumes from."""
        from torch.utils.tensorboard import SummaryWriter  # slow to import

        suffix = EVENTS.rpartition("*")[2]
        return _Events(
            SummaryWriter(str(run.directory), purge_step=run.step + 1, filename_suffix=suffix), run
        )


class _Events(Logger):
    def __init__(self, writer: SummaryWriter, run: TrackedRun) -> None:
        from torch.utils.tensorboard.summary import hparams

        self.writer, self.step = writer, run.step
        settings = {name: _shown(value) for name, value in flat(run.settings).items()}
        # no summary of the experiment: TensorBoard would take one run's for all, and hide others' settings
        _, start, self.end = hparams(settings, {})
        self.add_summary = writer.file_writer.add_summary  # type: ignore[attr-defined]  # None once it is closed
        self.add_summary(start)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        self.step = step
        for name, value in figures.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def add_files(self, files: Sequence[Path]) -> None:
        """Show the pictures: the files themselves are beside the events."""
        from PIL import Image

        for file in files:
            if file.suffix == ".png":
                pixels = np.asarray(Image.open(file).convert("RGB"))
                self.writer.add_image(file.stem, pixels, self.step, dataformats="HWC")

    def finish(self, status: Status, figures: Mapping[str, float]) -> None:
        self.log(self.step, figures)
        self.writer.add_text("status", status, self.step)
        if status == "finished":
            self.add_summary(self.end)
        self.writer.close()


def _shown(value: object) -> object:
    """Return a setting in a type that TensorBoard accepts."""
    return value if isinstance(value, (int, float, str)) else str(value)
