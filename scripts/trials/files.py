"""Model files and checkpoints to be changed, and readers that must accept or refuse them."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from nsvm_cli.artifacts.model_file import MODEL, load_model
from nsvm_cli.config.settings import Settings, parse_settings, plain
from nsvm_cli.errors import InputError, Interrupted, RunError
from nsvm_cli.runs.checkpoint import load_checkpoint, restore_state
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.runs.train import train_run
from nsvm_cli.storage.run_directory import RunDirectory, checkpoints_in
from nsvm_cli.storage.tensor_file import BLANK
from tests.runs.test_train import FakeSignals

SETTINGS: dict[str, Any] = {
    "dataset": {"name": "ringnorm", "samples": 300},
    "network": {"name": "mlp", "widths": [10, 6], "dropout": 0.2},
    "kernel": {"name": "rbf"},
    "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9},
    "algorithm": {"name": "alg4", "steps": 20, "solver_steps": 100},
    "device": "cpu",
    "threads": 1,
}


def settings_of(algorithm: str) -> Settings:
    """Return the settings of a run that takes a second or less."""
    section = {"name": algorithm, "steps": 120}
    if algorithm == "alg4":
        section = {"name": algorithm, "steps": 20, "solver_steps": 100}
    return parse_settings({**SETTINGS, "algorithm": section, "checkpoint": {"every": 1}})


def make(folder: Path, algorithm: str) -> tuple[Path, Path]:
    """Return a model file, and a checkpoint from the middle of its training."""
    settings = settings_of(algorithm)
    with RunDirectory(folder / f"{algorithm}_whole", plain(settings)) as run:
        train_run(prepare(settings), run)
    with (
        RunDirectory(folder / f"{algorithm}_half", plain(settings)) as half,
        contextlib.suppress(Interrupted),
    ):
        train_run(prepare(settings), half, [stop := FakeSignals(pauses=50)], stop)
    return run.final, checkpoints_in(half.path)[0]


def split(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the header of a safetensors file, and the bytes after it."""
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def join(header: str, rest: bytes) -> bytes:
    """Undo ``split``, and replace the placeholder of the checksum, if there is exactly one."""
    text = header.encode(errors="surrogatepass")
    data = bytearray(len(text).to_bytes(8, "little") + text + rest)
    if data.count(BLANK.encode()) == 1:
        at = data.index(BLANK.encode())
        data[at : at + len(BLANK)] = hashlib.sha256(data).hexdigest().encode()
    return bytes(data)


class Reader:
    """Opens files like ``nsvm evaluate`` and ``nsvm train resume=``, and returns the outcome."""

    def __init__(self, kind: str, algorithm: str) -> None:
        self.kind = kind
        self.settings = settings_of(algorithm)
        self.experiment = prepare(self.settings)

    def __call__(self, file: Path) -> str:
        """Return 'taken' or the message of a refusal. Any other exception is a defect."""
        try:
            if self.kind == MODEL:
                model = load_model(file, {"device": "cpu", "threads": 1})
                model.decision_function(torch.zeros(2, *model.metadata.shape))
            else:
                restore_state(self.experiment, load_checkpoint(file))
        except (InputError, RunError) as error:
            return str(error)
        return "taken"
