"""A run directory: one run's configuration, metrics, checkpoints, result and model, and its one owner."""

from __future__ import annotations

import contextlib
import csv
import errno
import fcntl
import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field
from pydantic.dataclasses import dataclass

from nsvm_cli.errors import InputError
from nsvm_cli.registry import STRICT

TEMPORARY = ".tmp"
ORPHAN = re.compile(r"\..+\.(json|jsonl|yaml|png|safetensors|csv|md)\.[0-9]+\.tmp")


def write_atomically(path: Path, content: bytes | bytearray) -> None:
    """The file is there with all of its content, even after a power cut, or as it was before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}")
    try:
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _about(path, error) from None
        raise
    _fsync_folder(path.parent)


def _about(path: Path, error: OSError) -> OSError:
    """The same error, with the name that a person knows."""
    return OSError(error.errno, error.strerror, str(path))


def _fsync_folder(path: Path) -> None:
    """Makes the names in it as durable as the files."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """At least one row, all with the same keys."""
    text = io.StringIO()
    table = csv.DictWriter(text, rows[0].keys(), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_atomically(path, text.getvalue().encode())


def _own_file(path: Path) -> io.FileIO:
    """Opened to read and to append, made if need be; not one elsewhere that a link leads to."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise InputError(f"{path} is a link: expected a file of this folder") from None
        raise
    return io.FileIO(descriptor, "a+b")


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Keeps a directory for this process, until it ends, and clears away what a killed owner was writing.

    Raises:
        InputError: another process has it.
    """
    path.mkdir(parents=True, exist_ok=True)
    with _own_file(path / ".lock") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"{path} is in use by another nsvm: wait for it, or name another folder"
            ) from None
        for orphan in path.glob(f".*{TEMPORARY}"):
            if ORPHAN.fullmatch(orphan.name) and orphan.is_file():
                orphan.unlink()
        yield


def _sum(path: Path, length: int) -> str:
    """SHA-256 of a file's beginning."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while length and (chunk := file.read(min(length, 2**20))):
            digest.update(chunk)
            length -= len(chunk)
    return digest.hexdigest()


@dataclass(frozen=True, config=STRICT)
class Position:
    """How much of the metrics there was at a checkpoint: length and SHA-256."""

    bytes: Annotated[int, Field(ge=0, le=2**31)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


START = Position(0, hashlib.sha256().hexdigest())


IfTaken = Literal["refuse", "resume", "overwrite"]


class RunDirectory:
    """The files of one run. ``result.json`` comes last: where it is, the run is finished."""

    def __init__(
        self,
        path: Path,
        settings: Mapping[str, Any],
        if_taken: IfTaken = "refuse",
    ) -> None:
        """Claims the directory for this run.

        Args:
            path: where it is; made if it does not exist.
            settings: become its ``config.yaml``, unless a run is resumed.
            if_taken: what to do where there is a run already.

        Raises:
            InputError: it belongs to another process, or to another run.
        """
        self.path = path
        self._owned = contextlib.ExitStack()
        self._owned.enter_context(claimed(path))
        try:
            if if_taken == "overwrite":
                for name in FILES:
                    (path / name).unlink(missing_ok=True)
            if not has_run(path):
                write_config(path, settings)
            elif if_taken != "resume":
                raise InputError(_taken(path))
            self.recorded = read_config(path)
        except BaseException:
            self._owned.close()
            raise

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self._owned.close()

    @property
    def final(self) -> Path:
        """The trained model."""
        return self.path / "final.safetensors"

    @property
    def best(self) -> Path:
        """The model that was best on the validation set."""
        return self.path / "best.safetensors"

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Records the settings, where they are others than those that are recorded."""
        if self.recorded != settings:
            write_config(self.path, settings)

    def add_checkpoint(self, write: Callable[[Path], None]) -> None:
        """Has a checkpoint written; whatever happens meanwhile, there is one, and the one before it."""
        new, last, previous = (self.path / name for name in CHECKPOINTS)
        write(new)
        if last.exists():
            last.replace(previous)
        new.replace(last)
        _fsync_folder(self.path)

    def check_metrics(self, at: Position) -> None:
        """Raises a ValueError where the metrics up to a position are not what they were."""
        path = self.path / METRICS
        if not path.is_file() or path.stat().st_size < at.bytes or _sum(path, at.bytes) != at.sha256:
            raise ValueError(f"{path} is not what it was at the checkpoint")

    def open_metrics(self, at: Position = START) -> None:
        """Goes on writing metrics at a position; what lies behind it is of steps that are taken again."""
        file = self._owned.enter_context(_own_file(self.path / METRICS))
        file.seek(0)
        self._sum = hashlib.sha256(file.read(at.bytes))
        file.truncate(at.bytes)
        self._metrics, self._bytes = file, at.bytes

    def add_metrics(self, record: Mapping[str, Any]) -> None:
        """One line of strict JSON: there when this returns, and never a part of it."""
        line = memoryview(json.dumps(record, allow_nan=False).encode() + b"\n")
        try:
            left = line
            while left:
                left = left[self._metrics.write(left) :]
        except OSError as error:
            self._metrics.truncate(self._bytes)
            raise _about(self.path / METRICS, error) from None
        self._sum.update(line)
        self._bytes += len(line)

    def position(self) -> Position:
        """Where the metrics have come to; all of that is on the disk when this returns."""
        os.fsync(self._metrics.fileno())
        return Position(self._bytes, self._sum.hexdigest())

    def finish(self, result: Mapping[str, Any]) -> None:
        """Writes the result, which marks the run as finished; no checkpoint is needed then."""
        os.fsync(self._metrics.fileno())
        text = json.dumps(result, indent=2, allow_nan=False) + "\n"
        write_atomically(self.path / "result.json", text.encode())
        tidy(self.path)


CHECKPOINTS = ("next.safetensors", "last.safetensors", "previous.safetensors")
"""The newest first. The first is renamed to the second at once, but for a kill just then."""

METRICS = "metrics.jsonl"
CURVES = "curves.png"

FILES = (
    *CHECKPOINTS,
    *("result.json", "final.safetensors", "best.safetensors", CURVES, METRICS, "config.yaml"),
)
"""Everything that belongs to a run, in the order of removal: what a kill leaves is less of the same run."""


def checkpoints_in(path: Path) -> list[Path]:
    """The checkpoints that a run has left in its directory, the newest first."""
    return [file for name in CHECKPOINTS if (file := path / name).is_file()]


def tidy(path: Path) -> None:
    """Removes the checkpoints of a finished run."""
    for file in checkpoints_in(path):
        file.unlink(missing_ok=True)


def has_run(path: Path) -> bool:
    """Whether a run has been started in the directory."""
    return any((path / name).exists() for name in ("config.yaml", METRICS, "result.json"))


def is_finished(path: Path) -> bool:
    """Whether the run there has come to its result."""
    return (path / "result.json").is_file()


def _taken(path: Path) -> str:
    if is_finished(path):
        return f"{path} already holds a run: name a new folder, or have it overwritten with overwrite=true"
    return (
        f"{path} already holds a run that is not finished: go on with nsvm train resume={path}, name a new "
        "folder, or have it overwritten with overwrite=true"
    )


CONFIG_BYTES = 2**16


def write_config(path: Path, settings: Mapping[str, Any]) -> None:
    """Records the settings of the run in a directory."""
    text = yaml.dump(dict(settings), Dumper=_Plain, sort_keys=False, allow_unicode=True)
    write_atomically(path / "config.yaml", text.encode())


def read_config(path: Path) -> dict[str, Any]:
    """The settings that a run directory records, as plain values.

    Raises:
        InputError: there are none, or they are not what ``RunDirectory`` writes.
    """
    file = path / "config.yaml"
    if not file.is_file():
        raise InputError(f"{path} has no config.yaml: expected the directory of a run")
    try:
        if file.stat().st_size > CONFIG_BYTES:
            raise ValueError(f"expected at most {CONFIG_BYTES} bytes")
        values = yaml.load(file.read_text(), Loader=_WithoutAliases)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InputError(f"{file} cannot be read: {str(error).splitlines()[0]}") from None
    if not isinstance(values, dict):
        raise InputError(f"{file} cannot be read: expected the settings of a run")
    return {str(key): value for key, value in values.items()}


class _Plain(yaml.SafeDumper):
    """Writes a list that occurs twice twice, without the anchors that are refused at reading."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


class _WithoutAliases(yaml.SafeLoader):
    """Plain values only. A few lines of aliases can stand for gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it has aliases")
        return super().compose_node(parent, index)
