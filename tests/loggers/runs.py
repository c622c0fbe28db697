"""Short runs with a logger, whole, interrupted and killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from PIL import Image

from nsvm_cli.config.settings import Settings, parse_settings, plain
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.runs.loop import Callback, Record
from nsvm_cli.runs.tracking import Tracking
from nsvm_cli.runs.train import train_run
from nsvm_cli.storage.run_directory import RunDirectory
from nsvm_cli.trainers import State

VALUES: dict[str, Any] = {
    "dataset": {"name": "digits", "validation": 10},
    "network": {"name": "mlp", "widths": [4]},
    "kernel": {"name": "rbf"},
    "optimizer": {"name": "sgd", "lr": 0.01},
    "algorithm": {"name": "alg2", "steps": 50},
    "validation": {"every": 50},
    "checkpoint": {"every": 20},
    "log_every": 10,
    "device": "cpu",
    "engine": "torch",
}


class Stop(Callback):
    """A signal after the record of a step."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.noted: int | None = None

    def on_log(self, state: State, record: Record) -> None:
        self.noted = 15 if record["step"] == self.step else None

    def take_checkpoint_request(self) -> bool:
        return False

    def end_at_once(self, message: str) -> None: ...


class Kill(Callback):
    """The end of the process after the record of a step; see ``go_until_killed``."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_log(self, state: State, record: Record) -> None:
        if record["step"] == self.step:
            raise Killed


class Killed(BaseException):
    pass


def settings_with(logger: str | dict[str, Any], **changes: Any) -> Settings:
    """Return the settings of a run with a logger, which may be a name."""
    section = {"name": logger} if isinstance(logger, str) else logger
    return parse_settings({**VALUES, "logger": section, **changes})


def go(path: Path, settings: Settings, *callbacks: Callback, said: list[str] | None = None) -> dict[str, Any]:
    """Train in a directory, from the last checkpoint if there is one, as a job of the sweep ``a-sweep``.

    Its only picture is a pixel, and its report a word.
    """

    def draw() -> None:
        Image.new("RGB", (1, 1), "red").save(path / "curves.png")
        (path / "report.html").write_text("<p>report</p>")

    signals = next((callback for callback in callbacks if isinstance(callback, Stop)), None)
    say = [].append if said is None else said.append
    with RunDirectory(path, plain(settings), "resume") as run:
        return train_run(prepare(settings), run, callbacks, signals, say, sweep="a-sweep", draw=draw)


def go_until_killed(path: Path, settings: Settings, step: int) -> None:
    """Train until the record of a step; the logger gets no word of the end, as when the process is killed."""
    with mock.patch.object(Tracking, "__exit__", return_value=None), pytest.raises(Killed):
        go(path, settings, Kill(step))
