"""Loggers, which show a run in other tools, besides its ``metrics.jsonl``.

To add a logger, write a class as in ``nsvm_cli.loggers.base`` and list it in ``LOGGERS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from nsvm_cli.config.registry import build
from nsvm_cli.errors import InputError
from nsvm_cli.loggers.base import Logger, LoggerConfig, TrackedRun
from nsvm_cli.loggers.mlflow import MLflow
from nsvm_cli.loggers.tensorboard import TensorBoard
from nsvm_cli.loggers.wandb import WandB

__all__ = ["LOGGERS", "Logger", "LoggerConfig", "TrackedRun", "build_logger"]

LOGGERS: dict[str, type[LoggerConfig]] = {
    "none": LoggerConfig,
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WandB,
}


def build_logger(settings: Mapping[str, Any]) -> LoggerConfig:
    """Return the logger that a ``logger:`` section names.

    Raises:
        InputError: the logger or one of its settings is wrong, or its package is not installed.
    """
    config, name = build(LOGGERS, "logger", settings), settings["name"]
    if config.package is not None and find_spec(config.package) is None:
        raise InputError(f"logger={name} needs {config.package}: pip install 'nsvm[{name}]', or logger=none")
    return config
