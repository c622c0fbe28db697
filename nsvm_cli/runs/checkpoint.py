"""Checkpoints: one file with everything that a run needs to resume bit for bit."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, StrictFloat, StrictInt, TypeAdapter
from pydantic.dataclasses import dataclass

from nsvm_cli import __version__
from nsvm_cli.config.registry import STRICT
from nsvm_cli.config.settings import WITHOUT_EFFECT, Settings, code_of, flat, parse_settings, plain
from nsvm_cli.engines import LITERAL, NUMBA, TORCH, circumstances
from nsvm_cli.engines.numba.code import is_usable
from nsvm_cli.engines.numba.coverage import uncovered
from nsvm_cli.errors import InputError
from nsvm_cli.output import Say, shortened
from nsvm_cli.runs.experiment import Experiment
from nsvm_cli.storage import tensor_file
from nsvm_cli.storage.metrics_file import Position
from nsvm_cli.storage.state_dict import StateDict, expect_keys, nested
from nsvm_cli.storage.tensor_file import unusable
from nsvm_cli.trainers import State

KIND = "nsvm-checkpoint-6"

DATA_PATHS = ("dataset.path", "dataset.validation_path", "dataset.test_path", "dataset.root", "kernel.path")
"""Paths of the data, which may change: the data are compared by their checksum."""

Number = StrictInt | Annotated[StrictFloat, Field(allow_inf_nan=False)]
NUMBERS = TypeAdapter(dict[str, Number | None])
"""The numbers in state dicts, by their paths."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Checkpoint:
    """A run after ``step`` steps.

    Attributes:
        seconds: seconds of training so far.
        stopped: why a callback has stopped the run; None if none has.
        resumed: how often the run was resumed.
        bitwise: whether settings and environment were the same throughout.
        metrics: the end of the metrics at this step.
        settings: those that were asked for.
        chosen, search: what was chosen before the first step; see ``Experiment``.
        values: the state dicts of theta ("F"), of the trainer's state ("state") and of "callbacks".
    """

    step: NonNegativeInt
    seconds: NonNegativeFloat
    stopped: str | None
    resumed: NonNegativeInt
    bitwise: bool
    metrics: Position
    settings: dict[str, Any]
    chosen: dict[str, Any]
    search: dict[str, Any]
    environment: dict[str, str]
    values: StateDict = Field(repr=False)


def with_engine_of(checkpoint: Checkpoint, experiment: Experiment) -> Experiment:
    """Return the run with the engine that took the steps so far, if it is at hand."""
    e, engine = experiment, checkpoint.environment.get("engine", TORCH)
    if not engine.startswith(NUMBA):
        return replace(e, engine=LITERAL if engine == LITERAL else TORCH)
    usable = not uncovered(e.algorithm, e.problem, e.F) and is_usable()
    return replace(e, engine=NUMBA) if usable else e


def environment(experiment: Experiment) -> dict[str, str]:
    """Return what the bits of a result depend on, apart from the settings: hardware, data and code."""
    device = experiment.problem.x.device
    weights = experiment.problem.weights
    sums = {
        "plugins_sha256": code_of(experiment.settings),
        "kernel_sha256": experiment.kernel_sha256,
        "weights_sha256": None if weights is None else hashlib.sha256(weights.tobytes()).hexdigest(),
    }
    # torch selects its kernels by the capability of a CPU; the model does not matter
    cpu = f"cpu {platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    return {
        "nsvm": __version__,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else cpu,
        "threads": str(torch.get_num_threads()),
        "engine": circumstances(experiment.engine),
        "data": experiment.data.samples.sha256,
        **{name: sha256 for name, sha256 in sums.items() if sha256},
    }


def mismatches(
    recorded: Mapping[str, Any],
    settings: Settings,
    was: Mapping[str, str] | None = None,
    now: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the differences from recorded settings, and those between environments, that may change the bits
    of a result.

    The actual device, engine and number of threads take the place of those that were asked for.

    Raises:
        InputError: this version does not have the recorded settings.
    """
    before = flat({**plain(parse_settings(recorded)), **(was or {})})
    after = flat({**plain(settings), **(now or {})})
    return [
        f"{key} was {shortened(str(before.get(key)), 60)} and is {shortened(str(after.get(key)), 60)}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
        if key.split(".")[0] not in WITHOUT_EFFECT and key not in DATA_PATHS
    ]


def restore_state(experiment: Experiment, checkpoint: Checkpoint) -> State:
    """Restore theta in ``experiment.F``, and return the state of the trainer.

    Raises:
        InputError: the checkpoint does not fit a run with these settings.
    """
    trainer, F, values = experiment.trainer, experiment.F, checkpoint.values
    try:
        expect_keys(values, ["F", "state", "callbacks"])
        F.load_state_dict(values["F"])
        state: State = trainer.restore(experiment.problem, F, values["state"])
        if not 0 <= state.t == checkpoint.step <= trainer.total:
            raise ValueError(f"its state is of step {state.t} of {trainer.total}")
        if state.violations < 0 or (state.objective is not None and state.objective.ndim > 0):
            raise ValueError(f"violations {state.violations}, objective {state.objective}")
    except (ValueError, TypeError) as error:
        raise InputError(f"the checkpoint of step {checkpoint.step} does not fit this run: {error}") from None
    return state


def save_checkpoint(path: Path, checkpoint: Checkpoint, only_check: bool = False) -> None:
    """Write a checkpoint atomically, or only check that it can be written.

    Raises:
        InputError: it would be too large.
    """
    values = flat(checkpoint.values, "/")
    tensors = {path: value for path, value in values.items() if isinstance(value, torch.Tensor)}
    numbers = {path: value for path, value in values.items() if path not in tensors}
    fields = {key: value for key, value in vars(checkpoint).items() if key not in ("values", "metrics")}
    content = {**fields, "metrics": asdict(checkpoint.metrics), "numbers": numbers}
    tensor_file.write(path, KIND, content, tensors, only_check=only_check)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read and check a checkpoint.

    Raises:
        InputError: the file is missing, damaged, of another kind, or inconsistent.
    """
    file = tensor_file.read(path, KIND, noun="checkpoint")
    fields: dict[str, Any] = dict(file.content)
    try:
        numbers = NUMBERS.validate_python(fields.pop("numbers", None))
        names = nested({**dict.fromkeys(file.specs), **numbers})
        checkpoint = Checkpoint(**fields, values=names)  # checks everything before tensors are read
    except (ValueError, TypeError, RecursionError) as error:
        raise unusable(path, error) from None
    return replace(checkpoint, values=nested({**file.tensors(), **numbers}))


def newest_intact(
    paths: Sequence[Path], say: Say, check: Callable[[Checkpoint], object] = str
) -> tuple[Path, Checkpoint] | None:
    """Return the first of these checkpoints, the newest first, that is intact, with its path.

    Args:
        check: raises a ValueError if a checkpoint is of no use.

    Raises:
        ValueError: there are some, but none is intact.
    """
    for path in paths:
        try:
            check(checkpoint := load_checkpoint(path))
            return path, checkpoint
        except ValueError as error:
            if path == paths[-1]:
                raise
            say(f"{error}; falling back to the previous checkpoint")
    return None
