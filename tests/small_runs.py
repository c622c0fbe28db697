"""Small runs, with default settings that a test can change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nsvm_cli.config.settings import Settings, parse_settings, plain
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.runs.train import train_run
from nsvm_cli.storage.run_directory import RunDirectory

SETTINGS: dict[str, Any] = {
    "dataset": {"name": "ringnorm", "samples": 300},
    "network": {"name": "mlp", "widths": [10, 6]},
    "kernel": {"name": "rbf"},
    "optimizer": {"name": "sgd", "lr": 0.01},
    "algorithm": {"name": "alg4", "steps": 20, "solver_steps": 100},
    "device": "cpu",
    "threads": 1,
}


def small_settings(**changes: Any) -> Settings:
    return parse_settings({**SETTINGS, **changes})


def small_run(folder: Path, **changes: Any) -> dict[str, Any]:
    """Train with ``folder`` as the run directory, and return the result."""
    settings = small_settings(**changes)
    with RunDirectory(folder, plain(settings)) as directory:
        return train_run(prepare(settings), directory)
