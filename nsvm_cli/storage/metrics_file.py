"""The files ``metrics.jsonl`` and ``times.jsonl``. Only ``metrics.jsonl`` is truncated on resuming.

Times are in a separate file, because they differ between otherwise equal runs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import Any

from nsvm_cli.config.registry import shown
from nsvm_cli.errors import InputError
from nsvm_cli.storage.files import read_regular

METRICS_BYTES = 2**26
"""Maximum size of a metrics file in bytes, enough for several hundred thousand records."""

LARGEST_NUMBER, MOST_PARTS = 1e300, 9
"""Maximum magnitude of a number (so that plots have finite axes) and maximum ``part`` in a record."""


class JSONLines(FileIO):
    """A file of JSON records to append to, first cut to ``size`` bytes. Links and pipes are rejected."""

    def __init__(self, path: Path, size: int | None = None) -> None:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            kind = "a link to another file" if path.is_symlink() else "not a regular file"
            raise InputError(f"{path} is {kind}: replace it with a regular file")
        super().__init__(path, "a")
        if size is not None:
            self.truncate(size)

    def append(self, record: Mapping[str, Any]) -> None:
        """Append a record as one line of strict JSON."""
        left = memoryview(json.dumps(record, allow_nan=False).encode() + b"\n")
        try:
            while left:
                left = left[self.write(left) :]
        except OSError as error:
            error.filename = self.name
            raise

    def sync(self) -> int:
        """Flush the file to disk and return its size."""
        os.fsync(self)
        return os.fstat(self.fileno()).st_size


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return all complete records of a metrics file, or raise an InputError if the file is damaged."""
    records: list[dict[str, Any]] = []
    for number, line in enumerate(_lines(path), 1):
        record = _parsed(line, after=records[-1]["step"] if records else 0)
        if record is None:
            raise InputError(
                f"{path}, line {number}: expected a JSON object of numbers with the keys step and violations"
                f", and a step larger than in the previous line, got {shown(line.decode(errors='replace'))}"
            )
        records.append(record)
    return records


def read_times(path: Path) -> dict[int, float]:
    """Return the seconds of training by step, or {} if the file is missing. Later records win."""
    records = [_parsed(line, after=0, positive="seconds") for line in _lines(path)] if path.exists() else []
    return {record["step"]: record["seconds"] for record in records if record is not None}


def _lines(path: Path) -> list[bytes]:
    try:
        return read_regular(path, METRICS_BYTES).split(b"\n")[:-1]
    except ValueError as error:
        raise InputError(f"{path} cannot be read: {error}") from None


def _parsed(line: bytes, after: int, positive: str = "violations") -> dict[str, Any] | None:
    try:
        record: dict[str, Any] = json.loads(line)
        numbers = all(value is None or abs(value) <= LARGEST_NUMBER for value in record.values())
        bounded = numbers and 0 <= (record.get("part") or 0) <= MOST_PARTS
        return record if bounded and record["step"] > after and record[positive] >= 0 else None
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError):
        return None


def check_metrics(path: Path, size: int) -> None:
    """Raise a ValueError if a metrics file is shorter than at the time of a checkpoint."""
    if not path.is_file() or path.stat().st_size < size:
        raise ValueError(f"{path} has changed since the checkpoint")
