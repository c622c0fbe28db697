"""Run directories: the configuration, metrics, checkpoints, result and model of one run."""

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
from nsvm_cli.errors import InputError, message_of
from nsvm_cli.storage.files import fsync_folder, is_locked, locked, read_regular, write_atomically
from nsvm_cli.storage.metrics_file import START, JSONLines, Position, read_metrics

METRICS = "metrics.jsonl"
TIMES = "times.jsonl"
CURVES = "curves.png"
REPORT = "report.html"
STATUS = "status.json"
RESULT = "result.json"
CONFIG = "config.yaml"
TRACKING = "tracking.json"

AT_THE_END = (RESULT, "final.safetensors", "final.onnx", CURVES, REPORT)
"""The files that only a finished run has."""

FILES = (*AT_THE_END, "best.safetensors", "best.onnx", METRICS, TIMES, TRACKING, STATUS, CONFIG)
"""The files of a run except checkpoints, in the order of removal: a kill in between leaves a valid run."""

IfExists = Literal["refuse", "resume", "overwrite"]
Status = Literal["running", "finished", "failed", "interrupted"]


class RunDirectory(contextlib.ExitStack):
    """The files of one run, locked by this process. A run is finished once ``result.json`` exists.

    ``final`` is the path of the trained model, ``best`` of the model with the best validation score.
    """

    def __init__(
        self, path: Path, settings: Mapping[str, Any], if_exists: IfExists = "refuse", wait: bool = False
    ) -> None:
        """Lock the directory, which is created if it is missing, and record the settings of a new run.

        Args:
            wait: whether to wait for another process that holds the directory.

        Raises:
            InputError: another process holds the directory, or it already holds a run.
        """
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
                advice = "name a new folder, or replace it with overwrite=true"
                raise InputError(f"{path} already holds a run{'' if is_finished(path) else resume}: {advice}")
            self.recorded = read_config(path)
            self.push(opened.pop_all())  # an error above closes it

    def resume(self, settings: Mapping[str, Any], at: Position = START) -> None:
        """Record the settings if they have changed, and continue the metrics from a position.

        Delete a finished run's outputs, result.json last, so that a kill leaves it finished.
        """
        if is_finished(self.path):
            for name in reversed(AT_THE_END):
                (self.path / name).unlink(missing_ok=True)
        if self.recorded != settings:
            write_config(self.path, settings)
        self.metrics = self.enter_context(JSONLines(self.path / METRICS, at))
        self.times = self.enter_context(JSONLines(self.path / TIMES))

    def add_checkpoint(self, write: Callable[[Path], None], step: int, schedule: Checkpoints) -> None:
        """Call ``write`` with the path of the new checkpoint, and delete all but the newest ones: two, or the
        number that is asked for if it is larger.
        """
        write(new := self.path / f"step-{step:08d}.safetensors")
        files = checkpoints_in(self.path)
        at = files.index(new)  # before it are later steps, which are being repeated
        for file in (*files[:at], *files[at + max(schedule.kept, 2) :]):
            file.unlink(missing_ok=True)
        fsync_folder(self.path)

    def finish(self, result: Mapping[str, Any], schedule: Checkpoints) -> None:
        """Write the result, which marks the run as finished, and delete the checkpoints that are not kept."""
        self.metrics.position()
        write_json(self.path / RESULT, result)
        for file in checkpoints_in(self.path)[schedule.kept :]:
            file.unlink(missing_ok=True)


def checkpoints_in(path: Path) -> list[Path]:
    """Return the checkpoints in a run directory, newest first."""
    named = re.compile(r"step-([0-9]{8,})\.safetensors")
    matches = ((named.fullmatch(file.name), file) for file in path.glob("step-*") if file.is_file())
    files = {int(match[1]): file for match, file in matches if match}
    return [files[step] for step in sorted(files, reverse=True)]


def has_run(path: Path) -> bool:
    """Return whether a run has been started in the directory."""
    return any((path / name).exists() for name in (CONFIG, METRICS, RESULT))


def has_records(path: Path) -> bool:
    """Return whether a run has recorded a step, which a method without steps never does."""
    return (path / METRICS).stat().st_size > 0


def is_finished(path: Path) -> bool:
    """Return whether the directory holds a finished run."""
    return (path / RESULT).is_file()


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write strict JSON atomically."""
    write_atomically(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())


def read_json(file: Path) -> dict[str, Any]:
    """Return a JSON object, such as the result of a finished run.

    Raises:
        InputError: it cannot be read.
    """
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
    """Write the status of a job, with further fields such as its overrides, to its directory."""
    path.mkdir(parents=True, exist_ok=True)
    write_json(path / STATUS, {"status": status, "message": message, **fields})


def read_status(path: Path) -> dict[str, Any]:
    """Return the status of the run in a directory, or an empty dict if it is missing or unreadable."""
    with contextlib.suppress(InputError):
        return read_json(path / STATUS)
    return {}


def sweeps_in(status: Mapping[str, Any]) -> list[str]:
    """Return the marks of the latest sweeps that started the job with this status."""
    marks = status.get("sweep")
    return [str(mark) for mark in marks[-9:]] if isinstance(marks, list) else []


def command_in(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the overrides in a status or a result, and the ``--config-dir`` or None."""
    words, folder = record.get("overrides"), record.get("config_dir")
    return {
        "overrides": [str(word) for word in words] if isinstance(words, list) else [],
        "config_dir": folder if isinstance(folder, str) else None,
    }


@contextlib.contextmanager
def reading(what: object, advice: str = "") -> Iterator[None]:
    """Raise an InputError in place of errors that missing or malformed values cause within the context."""
    try:
        yield
    except InputError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError):
        raise InputError(f"{what} is damaged, or an earlier version wrote it{advice}") from None


def outcome_of(path: Path, status: Mapping[str, Any]) -> tuple[str, str]:
    """Return the status and message of a run; one that was killed counts as interrupted."""
    if status.get("status") in ("finished", "failed", "interrupted"):
        return status["status"], str(status.get("message", ""))
    if is_locked(path):
        return "running", ""
    plugins, step = None, 0
    with contextlib.suppress(InputError):
        plugins = read_config(path).get("plugins")
    if files := checkpoints_in(path):
        step = int(files[0].stem.partition("-")[2])
    else:
        with contextlib.suppress(InputError, OSError, IndexError):
            step = int(read_metrics(path / METRICS)[-1]["step"])
    return "interrupted", f"interrupted at step {step}; resume with {resume_command(path, plugins)}"


def resume_command(path: Path, plugins: object = None) -> str:
    """Return the command that resumes the run in a directory, for a shell."""
    words = ["nsvm", "train", f"resume={path}"]
    if plugins and isinstance(plugins, list):
        words.append(f"plugins=[{','.join(map(str, plugins))}]")
    return shlex.join(words)


CONFIG_BYTES, JSON_BYTES, LEVELS = 2**16, 2**24, 16


def write_config(path: Path, settings: Mapping[str, Any]) -> None:
    """Write the settings of a run to ``config.yaml``.

    Raises:
        InputError: ``read_config`` would refuse them.
    """
    text = yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True).encode()
    if len(text) > CONFIG_BYTES:
        raise InputError(f"config.yaml would have {len(text)} bytes, expected at most {CONFIG_BYTES}")
    write_atomically(path / CONFIG, text)


def read_config(path: Path) -> dict[str, Any]:
    """Return the recorded settings of a run as plain values.

    Raises:
        InputError: the file is missing, damaged, or holds more than plain values.
    """
    file = path / CONFIG
    if not file.is_file():
        raise InputError(f"{path} has no config.yaml: expected the directory of a run")
    loader, depth = getattr(yaml, "CSafeLoader", yaml.SafeLoader), 0
    try:
        text = read_regular(file, CONFIG_BYTES).decode()
        for event in yaml.parse(text, Loader=loader):
            if isinstance(event, yaml.AliasEvent):  # with which a few lines expand to gigabytes
                raise yaml.YAMLError("it has aliases")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > LEVELS:  # libyaml would overflow the stack
                raise yaml.YAMLError(f"expected at most {LEVELS} levels")
        values = yaml.load(text, Loader=loader)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{file} cannot be read: {str(error).splitlines()[0]}") from None
    if not isinstance(values, dict):
        raise InputError(f"{file} cannot be read: expected the settings of a run")
    return {str(key): value for key, value in values.items()}
