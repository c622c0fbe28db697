"""A run between two steps as one file: everything that it needs to go on, to the bit."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, ValidationError
from pydantic.dataclasses import dataclass

from nsvm_cli import __version__
from nsvm_cli.config.registry import STRICT, one_line
from nsvm_cli.runs.experiment import Experiment
from nsvm_cli.storage import tensor_file
from nsvm_cli.storage.metrics_file import Position
from nsvm_cli.storage.state_dict import StateDict, flatten, unflatten
from nsvm_cli.storage.tensor_file import unusable

TRAINING = "nsvm-training-1"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Checkpoint:
    """Where a run has come to.

    ``seconds`` of training so far; the ``best`` validation accuracy so far, and its step; ``resumed`` counts
    how often it was gone on with, and ``exact`` says whether always with the settings and in the environment
    in which it was begun. ``values`` are those of theta ("F") and of the trainer's state ("state").
    """

    step: NonNegativeInt
    seconds: NonNegativeFloat
    best: tuple[float, int] | None
    resumed: NonNegativeInt
    exact: bool
    metrics: Position
    settings: dict[str, Any]
    environment: dict[str, str]
    values: StateDict = Field(repr=False)


def environment(experiment: Experiment) -> dict[str, str]:
    """What a run's bits depend on beside its settings."""
    device = experiment.device
    return {
        "nsvm": __version__,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu(),
        "threads": str(torch.get_num_threads()),
        "processes": str(experiment.problem.processes.size),
        "data": experiment.data.sha256,
    }


def _cpu() -> str:
    """Which of its instructions torch and its libraries choose by, rather than which one it is."""
    return f"cpu {platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Writes the file whole, or leaves what was there.

    Raises:
        RunError: it would be too large.
    """
    tensors, numbers = flatten(checkpoint.values)
    about = {key: value for key, value in vars(checkpoint).items() if key not in ("values", "metrics")}
    content = {**about, "metrics": asdict(checkpoint.metrics), "numbers": numbers}
    tensor_file.write(path, TRAINING, {k: v for k, v in content.items() if not k.startswith("_")}, tensors)


def load_checkpoint(path: Path) -> Checkpoint:
    """Reads and checks the file.

    Raises:
        InputError: it is missing, damaged, of another kind, or contradicts itself.
    """
    file = tensor_file.read(path, TRAINING)
    about: dict[str, Any] = dict(file.content)
    numbers = about.pop("numbers", None)
    try:
        if not isinstance(numbers, Mapping) or not all(_is_number(value) for value in numbers.values()):
            raise ValueError("expected numbers")
        values = unflatten(
            {**dict.fromkeys(file.specs), **numbers}
        )  # that the names fit, before tensors are read
        checkpoint = Checkpoint(**about, values=values)
    except ValidationError as error:
        raise unusable(path, one_line(error)) from None
    except (ValueError, TypeError, RecursionError) as error:
        raise unusable(path, error) from None
    values = unflatten({**file.tensors(), **numbers})
    return Checkpoint(**{**vars(checkpoint), "values": values})


def _is_number(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
