"""Run directories, which hold the configuration, metrics, checkpoints, result and model of a run."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from nsvm_cli.config.settings import Checkpoints
from nsvm_cli.errors import InputError, first_line, message_of
from nsvm_cli.storage.files import is_locked, locked, read_regular, write_atomically
from nsvm_cli.storage.metrics_file import JSONLines, read_metrics

METRICS_FILE = "metrics.jsonl"
TIMES_FILE = "times.jsonl"
CURVES = "curves.png"
REPORT = "report.html"
STATUS = "status.json"
RESULT = "result.json"
CONFIG = "config.yaml"
TRACKING = "tracking.json"

AT_THE_END = (RESULT, "final.safetensors", "final.onnx", CURVES, REPORT)
"""Files that only finished runs have."""

FILES = (*AT_THE_END, "best.safetensors", "best.onnx", METRICS_FILE, TIMES_FILE, TRACKING, STATUS, CONFIG)
"""Files of a run except checkpoints. If deletion in this order is interrupted, a valid run remains."""

IfExists = Literal["refuse", "resume", "overwrite"]
Status = Literal["running", "finished", "failed", "interrupted"]


class RunDirectory(contextlib.ExitStack):
    """The directory of one run, locked by this process. A run is finished once ``result.json`` exists.

    ``final`` is the path of the trained model. ``best`` is the path of the model with the best validation
    score.
    """

    def __init__(
        self, path: Path, settings: Mapping[str, Any], if_exists: IfExists = "refuse", wait: bool = False
    ) -> None:
        """Lock the directory and record a new run; raise an InputError if it is in use or holds a run."""
        super().__init__()
        self.path = path
        self.final, self.best = path / "final.safetensors", path / "best.safetensors"
        with contextlib.ExitStack() as opened:
            opened.enter_context(locked(path, wait))
            if if_exists == "overwrite":
                events = path.glob("events.out.tfevents.*")  # of TensorBoard
                for file in (*events, *checkpoints_in(path), *(path / name for name in FILES)):
                    file.unlink(missing_ok=True)
            if not has_run(path):
                write_config(path, settings)
            elif if_exists != "resume":
                resume = f" that is not finished (resume it with {resume_command(path)})"
                advice = "choose a new folder, or replace the run with overwrite=true"
                raise InputError(
                    f"{path} already contains a run{'' if is_finished(path) else resume}: {advice}"
                )
            self.recorded = read_config(path)
            self.push(opened.pop_all())  # an error before this line releases the lock

    def resume(self, settings: Mapping[str, Any], size: int = 0) -> None:
        """Continue after ``size`` bytes of metrics, record new settings, delete a finished run's outputs."""
        if is_finished(self.path):
            # the result is deleted last, so that an interrupted deletion leaves a finished run
            for name in reversed(AT_THE_END):
                (self.path / name).unlink(missing_ok=True)
        if self.recorded != settings:
            write_config(self.path, settings)
        self.metrics = self.enter_context(JSONLines(self.path / METRICS_FILE, size))
        self.times = self.enter_context(JSONLines(self.path / TIMES_FILE))

    def add_checkpoint(self, write: Callable[[Path], None], step: int, schedule: Checkpoints) -> None:
        """Write a checkpoint with ``write(path)``; delete all but the newest max(2, ``schedule.n_kept``)."""
        write(new := self.path / f"step-{step:08d}.safetensors")
        files = checkpoints_in(self.path)
        at = files.index(new)  # the files before this file are from later steps, which are repeated
        for file in (*files[:at], *files[at + max(schedule.n_kept, 2) :]):
            file.unlink(missing_ok=True)

    def finish(self, result: Mapping[str, Any], schedule: Checkpoints) -> None:
        """Write the result, which marks the run as finished, and keep ``schedule.n_kept`` checkpoints."""
        self.metrics.sync()
        write_json(self.path / RESULT, result)
        for file in checkpoints_in(self.path)[schedule.n_kept :]:
            file.unlink(missing_ok=True)


def checkpoints_in(path: Path) -> list[Path]:
    """Return the checkpoints in a run directory, newest first."""
    named = re.compile(r"step-([0-9]{8,})\.safetensors")
    matches = ((named.fullmatch(file.name), file) for file in path.glob("step-*") if file.is_file())
    files = {int(match[1]): file for match, file in matches if match}
    return [files[step] for step in sorted(files, reverse=True)]


def has_run(path: Path) -> bool:
    """Return whether a directory holds a run, finished or not."""
    return any((path / name).exists() for name in (CONFIG, METRICS_FILE, RESULT))


def has_records(path: Path) -> bool:
    """Return whether a run has recorded metrics; methods without steps record none."""
    file = path / METRICS_FILE
    return file.is_file() and file.stat().st_size > 0


def is_finished(path: Path) -> bool:
    """Return whether a directory holds a finished run."""
    return (path / RESULT).is_file()


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object to a file atomically; NaN and infinity raise a ValueError."""
    write_atomically(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())


def read_json(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file, or raise an InputError if the file cannot be read."""
    try:
        content: object = json.loads(read_regular(file, JSON_BYTES))
    except OSError as error:
        raise InputError(message_of(error)) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"{file} cannot be read: expected a JSON object")
    return content


def write_status(path: Path, status: Status, message: str = "", **fields: Any) -> None:
    """Write the status of a job and additional fields, such as its overrides, to its directory."""
    path.mkdir(parents=True, exist_ok=True)
    write_json(path / STATUS, {"status": status, "message": message, **fields})


def read_status(path: Path) -> dict[str, Any]:
    """Return the status of a run, or {} if the status is missing or unreadable."""
    with contextlib.suppress(InputError):
        return read_json(path / STATUS)
    return {}


def sweeps_in(status: Mapping[str, Any]) -> list[str]:
    """Return the identifiers of the latest sweeps that started the job with this status."""
    marks = status.get("sweep")
    return [str(mark) for mark in marks[-9:]] if isinstance(marks, list) else []


def command_in(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the overrides and the ``--config-dir`` (or None) that a status or result records."""
    words, folder = record.get("overrides"), record.get("config_dir")
    return {
        "overrides": [str(word) for word in words] if isinstance(words, list) else [],
        "config_dir": folder if isinstance(folder, str) else None,
    }


@contextlib.contextmanager
def damage_errors(what: object, advice: str = "") -> Iterator[None]:
    """Context manager: turn errors about missing or malformed values into an InputError about ``what``."""
    try:
        yield
    except InputError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError):
        raise InputError(f"{what} is damaged, or was written by an earlier version of nsvm{advice}") from None


def outcome_of(path: Path, status: Mapping[str, Any]) -> tuple[str, str]:
    """Return the status and message of a run; a killed run counts as interrupted."""
    known, message = status.get("status"), str(status.get("message", ""))
    if known in ("finished", "failed"):
        return known, message
    if known == "interrupted":  # the run directory may have moved since
        reason, advice, _ = message.partition("; resume with ")
        return known, f"{reason}{advice}{resume_command(path) if advice else ''}"
    if is_locked(path):
        return "running", ""
    step = 0
    if files := checkpoints_in(path):
        step = int(files[0].stem.partition("-")[2])
    else:
        with contextlib.suppress(InputError, OSError, IndexError):
            step = int(read_metrics(path / METRICS_FILE)[-1]["step"])
    return "interrupted", f"interrupted at step {step}; resume with {resume_command(path)}"


def resume_command(path: Path) -> str:
    """Return the shell command that resumes the run in a directory, with the plugins of its configuration."""
    words = ["nsvm", "train", f"resume={path}"]
    with contextlib.suppress(InputError):
        if (plugins := read_config(path).get("plugins")) and isinstance(plugins, list):
            words.append(f"plugins=[{','.join(map(str, plugins))}]")
    return shlex.join(words)


CONFIG_BYTES, JSON_BYTES, LEVELS = 2**16, 2**24, 16


def write_config(path: Path, settings: Mapping[str, Any]) -> None:
    """Write the settings of a run to ``config.yaml``; raise an InputError if the file would be too large."""
    text = yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True).encode()
    if len(text) > CONFIG_BYTES:
        raise InputError(f"config.yaml would have {len(text)} bytes, expected at most {CONFIG_BYTES}")
    write_atomically(path / CONFIG, text)


def read_config(path: Path) -> dict[str, Any]:
    """Return the settings in ``config.yaml``, or raise an InputError if the file is missing or damaged."""
    file = path / CONFIG
    if not file.is_file():
        raise InputError(f"{path} has no config.yaml: expected a run directory")
    loader, depth = getattr(yaml, "CSafeLoader", yaml.SafeLoader), 0
    try:
        text = read_regular(file, CONFIG_BYTES).decode()
        for event in yaml.parse(text, Loader=loader):
            if isinstance(event, yaml.AliasEvent):  # a few lines could expand to gigabytes
                raise yaml.YAMLError("expected YAML without aliases")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > LEVELS:  # libyaml would overflow the stack
                raise yaml.YAMLError(f"expected at most {LEVELS} nested levels")
        values = yaml.load(text, Loader=loader)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{file} cannot be read: {first_line(error)}") from None
    if not isinstance(values, dict):
        raise InputError(f"{file} cannot be read: expected the settings of a run")
    return {str(key): value for key, value in values.items()}
