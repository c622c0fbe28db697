"""A run directory: one run's configuration, metrics, result and model."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import yaml

from nsvm_cli.errors import InputError


def write_atomically(path: Path, content: bytes) -> None:
    """The file is there with all of its content, or as it was before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """At least one row, all with the same keys."""
    text = io.StringIO()
    table = csv.DictWriter(text, rows[0].keys(), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_atomically(path, text.getvalue().encode())


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Keeps a directory of many runs for this process, until it ends.

    Raises:
        InputError: another process has it.
    """
    path.mkdir(parents=True, exist_ok=True)
    with (path / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"{path} is in use by another nsvm: wait for it, or name another folder"
            ) from None
        yield


class RunDirectory:
    """The files of one run. ``result.json`` comes last: where it is, the run is finished."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        """Claims the directory for this run.

        Raises:
            InputError: it already belongs to a run.
        """
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        try:
            with (path / "config.yaml").open("x") as file:
                yaml.safe_dump(dict(settings), file, sort_keys=False)
            self._metrics: TextIO = (path / "metrics.jsonl").open("x")
        except FileExistsError:
            raise InputError(f"{path} already holds a run: expected a new folder in hydra.run.dir") from None

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # a full disk has been reported by the write already
            self._metrics.close()

    @property
    def checkpoint(self) -> Path:
        return self.path / "final.safetensors"

    def add_metrics(self, record: Mapping[str, Any]) -> None:
        """One line of strict JSON, on disk when this returns."""
        self._metrics.write(json.dumps(record, allow_nan=False) + "\n")
        self._metrics.flush()

    def finish(self, result: Mapping[str, Any]) -> None:
        """Writes the result, which marks the run as finished."""
        text = json.dumps(result, indent=2, allow_nan=False) + "\n"
        write_atomically(self.path / "result.json", text.encode())
