"""Run directories: the configuration, metrics, checkpoints, result and model of one run."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from nsvm_cli.config.registry import shown
from nsvm_cli.errors import InputError
from nsvm_cli.storage.files import fsync_folder, locked, read_regular, write_atomically
from nsvm_cli.storage.metrics_file import START, MetricsFile, Position, check_metrics

METRICS = "metrics.jsonl"
CURVES = "curves.png"
MISTAKES = "mistakes.png"
STATUS = "status.json"

CHECKPOINTS = ("next.safetensors", "last.safetensors", "previous.safetensors")
"""The newest first. ``next`` is renamed to ``last`` right after it is written, unless nsvm is killed."""

FILES = (
    *CHECKPOINTS,
    *(
        "result.json",
        "final.safetensors",
        "best.safetensors",
        CURVES,
        MISTAKES,
        METRICS,
        STATUS,
        "config.yaml",
    ),
)
"""All files of a run, in the order of removal: if nsvm is killed meanwhile, the rest counts as a run."""

IfExists = Literal["refuse", "resume", "overwrite"]
Status = Literal["running", "finished", "failed", "interrupted"]


class RunDirectory:
    """The files of one run, locked by one process. A run is finished once ``result.json`` exists."""

    def __init__(self, path: Path, settings: Mapping[str, Any], if_exists: IfExists = "refuse") -> None:
        """Lock the directory and record the settings.

        Args:
            path: the directory; created if it is missing.
            settings: written to ``config.yaml``, unless the directory already holds a run to resume.
            if_exists: what to do if the directory already holds a run.

        Raises:
            InputError: another process holds the directory, or it already holds a run.
        """
        self.path = path
        self._open = contextlib.ExitStack()
        self._open.enter_context(locked(path))
        try:
            if if_exists == "overwrite":
                for name in FILES:
                    (path / name).unlink(missing_ok=True)
            if not has_run(path):
                write_config(path, settings)
            elif if_exists != "resume":
                raise InputError(_holds_a_run(path))
            self.recorded = read_config(path)
        except BaseException:
            self._open.close()
            raise

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def final(self) -> Path:
        """The path of the trained model."""
        return self.path / "final.safetensors"

    @property
    def best(self) -> Path:
        """The path of the model with the best validation score."""
        return self.path / "best.safetensors"

    def update_config(self, settings: Mapping[str, Any]) -> None:
        """Record the settings if they differ from the recorded ones."""
        if self.recorded != settings:
            write_config(self.path, settings)

    def add_checkpoint(self, write: Callable[[Path], None]) -> None:
        """Call ``write`` with the path of the new checkpoint, and keep the previous checkpoint."""
        new, last, previous = (self.path / name for name in CHECKPOINTS)
        write(new)
        if last.exists():
            last.replace(previous)
        new.replace(last)
        fsync_folder(self.path)

    def check_metrics(self, at: Position) -> None:
        """Raise a ValueError unless the metrics up to a position are unchanged."""
        check_metrics(self.path / METRICS, at)

    def open_metrics(self, at: Position = START) -> None:
        """Continue the metrics from a position."""
        self.metrics = self._open.enter_context(contextlib.closing(MetricsFile(self.path / METRICS, at)))

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the result, which marks the run as finished, and remove its checkpoints."""
        self.metrics.position()
        write_json(self.path / "result.json", result)
        remove_checkpoints(self.path)


def checkpoints_in(path: Path) -> list[Path]:
    """Return the checkpoints in a run directory, newest first."""
    return [file for name in CHECKPOINTS if (file := path / name).is_file()]


def remove_checkpoints(path: Path) -> None:
    """Remove the checkpoints of a finished run."""
    for file in checkpoints_in(path):
        file.unlink(missing_ok=True)


def has_run(path: Path) -> bool:
    """Return whether a run has been started in the directory."""
    return any((path / name).exists() for name in ("config.yaml", METRICS, "result.json"))


def is_finished(path: Path) -> bool:
    """Return whether the directory holds a finished run."""
    return (path / "result.json").is_file()


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write strict JSON atomically."""
    write_atomically(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())


def write_status(path: Path, status: Status, message: str = "", **about: Any) -> None:
    """Write the status of a job to its directory.

    Args:
        path: the directory, created if it is missing.
        status: ``running`` until the job writes another one.
        message: one line, for a failure.
        about: further facts about the job, such as its overrides.
    """
    path.mkdir(parents=True, exist_ok=True)
    write_json(path / STATUS, {"status": status, "message": message, **about})


def read_status(path: Path) -> dict[str, Any] | None:
    """Return the status of the job in a directory; None if there is none, or it cannot be read."""
    try:
        status = json.loads(read_regular(path / STATUS, STATUS_BYTES))
    except (OSError, ValueError):
        return None
    return status if isinstance(status, dict) else None


def _holds_a_run(path: Path) -> str:
    if is_finished(path):
        return f"{path} already holds a run: name a new folder, or replace it with overwrite=true"
    return (
        f"{path} already holds a run that is not finished: resume it with nsvm train resume={path}, name a "
        "new folder, or replace it with overwrite=true"
    )


CONFIG_BYTES, STATUS_BYTES = 2**16, 2**20
DIGITS = 100


def config_text(settings: Mapping[str, Any]) -> bytes:
    """Return what ``config.yaml`` holds for these settings.

    Raises:
        ValueError: ``read_config`` would refuse it.
    """
    text = yaml.dump(dict(settings), Dumper=_Plain, sort_keys=False, allow_unicode=True).encode()
    if len(text) > CONFIG_BYTES:
        raise ValueError(f"config.yaml would have {len(text)} bytes, expected at most {CONFIG_BYTES}")
    return text


def write_config(path: Path, settings: Mapping[str, Any]) -> None:
    """Write the settings of a run to ``config.yaml``."""
    write_atomically(path / "config.yaml", config_text(settings))


def read_config(path: Path) -> dict[str, Any]:
    """Return the settings that a run directory records, as plain values.

    Raises:
        InputError: there are none, or they are not plain values.
    """
    file = path / "config.yaml"
    if not file.is_file():
        raise InputError(f"{path} has no config.yaml: expected the directory of a run")
    try:
        values = yaml.load(read_regular(file, CONFIG_BYTES).decode(), Loader=_WithoutAliases)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InputError(f"{file} cannot be read: {str(error).splitlines()[0]}") from None
    if not isinstance(values, dict):
        raise InputError(f"{file} cannot be read: expected the settings of a run")
    return {str(key): value for key, value in values.items()}


class _Plain(yaml.SafeDumper):
    """Writes repeated values in full, since anchors are refused on reading."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


class _WithoutAliases(yaml.SafeLoader):
    """Reads plain values and refuses what only harms: aliases, with which a few lines expand to gigabytes,
    and integers that are too long for Python to print.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it has aliases")
        return super().compose_node(parent, index)

    def construct_yaml_int(self, node: Any) -> int:
        if len(node.value) > DIGITS:
            raise yaml.YAMLError(f"expected integers of at most {DIGITS} digits, got {shown(node.value)}")
        return super().construct_yaml_int(node)


_WithoutAliases.add_constructor("tag:yaml.org,2002:int", _WithoutAliases.construct_yaml_int)
