"""The table of runs: what ``nsvm runs`` prints, and reports show."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nsvm_cli.report.console import METRICS
from nsvm_cli.studies.records import RunRecord, telling

FIGURES = {
    "validation_accuracy": "validation",
    "validation_r2": "validation R²",
    "test_accuracy": "test",
    "test_r2": "test R²",
    "train_accuracy": "training",
    "train_r2": "training R²",
    "support_vectors": "support vectors",
    "train_seconds": "seconds",
}
"""The figures of the table, if any run has them, and the heads of their columns."""


@dataclass(frozen=True)
class RunsTable:
    """A table of runs as text.

    Attributes:
        folder: the folder above all of them, from which their names lead.
        count: how many have which status.
        head: the heads of the columns.
        rows: a row for each run.
        numbers: the columns of figures.
    """

    folder: Path
    count: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: range


def runs_table(records: Sequence[RunRecord]) -> RunsTable:
    """Return the table of one or more runs: the settings that tell them apart, status and figures."""
    paths = [Path(os.path.abspath(record.path)) for record in records]  # without the .. that may be in them
    folder = Path(os.path.commonpath([path.parent for path in paths]))
    count = Counter(record.status for record in records)
    rows, settings = [record.values() for record in records], telling(records)
    figures = [name for name in FIGURES if any(row.get(name) is not None for row in rows)]
    message = ["message"] if any(record.message for record in records) else []
    names = [name.removesuffix(".name") for name in settings]
    head = ["run", *names, "status", *(FIGURES[name] for name in figures), *message]
    cells = [
        (
            str(path.relative_to(folder)),
            *(_text(row.get(name)) for name in settings),
            record.status,
            *(_figure(name, row.get(name)) for name in figures),
            *(str(row[name]) for name in message),
        )
        for path, record, row in zip(paths, records, rows, strict=True)
    ]
    first = len(settings) + 2
    counted = ", ".join(f"{n} {status}" for status, n in count.most_common())
    return RunsTable(folder, counted, head, cells, range(first, first + len(figures)))


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _figure(name: str, value: Any) -> str:
    if not isinstance(value, (int, float)) or abs(value) > sys.float_info.max:  # 10**400 is valid JSON
        return ""
    metric = name.partition("_")[2]
    if metric in METRICS:
        return METRICS[metric][1](value)
    return f"{value:.1f}" if name.endswith("seconds") else str(value)
