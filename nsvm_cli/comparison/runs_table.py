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

from nsvm_cli.comparison.cells import ONLY_HOW
from nsvm_cli.comparison.records import RunRecord, telling
from nsvm_cli.words import METRIC_FORMATS

FIGURE_COLUMNS = (
    *("validation_accuracy", "validation_r2", "test_accuracy", "test_r2", "train_accuracy", "train_r2"),
    *("support_vectors", "train_seconds"),
)
"""The figures of the table, if any run has them."""


@dataclass(frozen=True)
class RunsTable:
    """A table of runs as text.

    Attributes:
        folder: the folder above all of them, from which their names lead.
        count: how many have which status.
        numbers: the columns of figures; the status is before them, and there may be a message after them.
        least: the columns that may be left out, the least important first.
    """

    folder: Path
    count: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: range
    least: Sequence[int]


def runs_table(records: Sequence[RunRecord]) -> RunsTable:
    """Return the table of one or more runs: the settings that tell them apart, status and figures."""
    paths = [Path(os.path.abspath(record.path)) for record in records]  # without the .. that may be in them
    folder = Path(os.path.commonpath([path.parent for path in paths]))
    count = Counter(record.status for record in records)
    rows, settings = [record.values() for record in records], telling(records)
    figures = [name for name in FIGURE_COLUMNS if any(_text(name, row.get(name)) for row in rows)]
    message = ["message"] if any(record.message for record in records) else []
    columns = [*settings, "status", *figures, *message]
    cells = [
        (str(path.relative_to(folder)), *(_text(name, row.get(name)) for name in columns))
        for path, row in zip(paths, rows, strict=True)
    ]
    numbers = range(len(settings) + 2, len(settings) + 2 + len(figures))
    fixed = ("status", *(name for name in figures if name.startswith(("validation", "test"))))
    least = [n for n, name in reversed([*enumerate(columns[: numbers.stop - 1], 1)]) if name not in fixed]
    least.sort(key=lambda n: _importance(columns[n - 1]))
    counted = ", ".join(f"{n} {status}" for status, n in count.most_common())
    head = ["run", *(name.removesuffix(".name") for name in columns)]
    return RunsTable(folder, counted, head, cells, numbers, least)


LAST = ("seed", "algorithm.name", "dataset.name")
"""The settings that are left out last."""


def _importance(column: str) -> int:
    """Return how important a column is: those that say how a run was computed are least so."""
    if column in LAST:
        return 4 + LAST.index(column)
    return 0 if column in ONLY_HOW else 1 if column in FIGURE_COLUMNS else 2 + column.endswith(".name")


def _text(name: str, value: Any) -> str:
    """Return the text of a setting, or of a figure in its format."""
    if name not in FIGURE_COLUMNS:
        return "" if value is None else value if isinstance(value, str) else json.dumps(value)
    if not isinstance(value, (int, float)) or abs(value) > sys.float_info.max:  # 10**400 is valid JSON
        return ""
    metric = name.partition("_")[2]
    if metric in METRIC_FORMATS:
        return METRIC_FORMATS[metric][1](value)
    return f"{value:.1f}" if name == "train_seconds" else str(value)
