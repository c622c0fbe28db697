"""The table of runs: what ``nsvm runs`` prints, and reports show."""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.cells import cell_len

from nsvm_cli.comparison.cells import ONLY_HOW
from nsvm_cli.comparison.records import RunRecord, telling
from nsvm_cli.output import printable
from nsvm_cli.terminal.console import GAP, METRIC_FORMATS

FIGURE_COLUMNS = (
    *("validation_accuracy", "validation_r2", "test_accuracy", "test_r2", "train_accuracy", "train_r2"),
    *("support_vectors", "train_seconds"),
)
"""The figures of the table, if any run has them."""

NO_SCORES = ("train_accuracy", "train_r2", "support_vectors", "train_seconds")
"""Those of them that are no scores on held-out data, without which a row says little."""

FOLDED, MESSAGE = 16, 12
"""Characters from which on names and settings, and messages, may be folded."""


@dataclass(frozen=True)
class RunsTable:
    """A table of runs as text.

    Attributes:
        folder: the folder above all of them, from which their names lead.
        count: how many have which status.
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
    figures = {name: [_figure(name, row.get(name)) for row in rows] for name in FIGURE_COLUMNS}
    figures = _held_out_first({name: cells for name, cells in figures.items() if any(cells)})
    message = ["message"] if any(record.message for record in records) else []
    names = [name.removesuffix(".name") for name in settings]
    head = ["run", *names, "status", *figures, *message]
    cells = [
        (
            str(path.relative_to(folder)),
            *(_text(row.get(name)) for name in settings),
            record.status,
            *(of_all[n] for of_all in figures.values()),
            *(str(row[name]) for name in message),
        )
        for n, (path, record, row) in enumerate(zip(paths, records, rows, strict=True))
    ]
    first = len(settings) + 2
    numbers = range(first, first + len(figures))
    least = sorted(range(len(settings), 0, -1), key=lambda n: _importance(settings[n - 1]))
    how = sum(_importance(name) == 0 for name in settings)
    least[how:how] = [n for n in reversed(numbers) if head[n] in NO_SCORES]
    counted = ", ".join(f"{n} {status}" for status, n in count.most_common())
    return RunsTable(folder, counted, head, cells, numbers, least)


def _held_out_first(figures: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the columns of figures, in which scores on validation and test data, of which a run has one,
    share a column.
    """
    for metric in METRIC_FORMATS:
        both = [f"{split}_{metric}" for split in ("validation", "test")]
        if all(name in figures for name in both):
            validation, test = (figures.pop(name) for name in both)
            cells = [f"val {a}" if a else b and f"test {b}" for a, b in zip(validation, test, strict=True)]
            figures = {metric: cells, **figures}
    return figures


FIRST = ("dataset.name", "algorithm.name", "seed")
"""The settings that are left out last."""


def _importance(setting: str) -> int:
    """Return 0 for a setting that says how a run was computed, and more for those that say what it is."""
    if setting in FIRST:
        return 3 + len(FIRST) - FIRST.index(setting)
    return 0 if setting in ONLY_HOW else 2 if setting.endswith(".name") else 1


def fitted(table: RunsTable, room: int) -> tuple[list[list[str]], dict[int, int]]:
    """Return the lines of the heads, and the widths of the columns that ``room`` characters have room for.

    Status and figures are never folded. Where the table is too wide, heads take several lines, and names,
    settings and messages may be folded. If it still is, columns are left out: settings that say how a run was
    computed, then figures that are no scores, then other settings, and at last data set, algorithm and seed.
    """
    heads = [[name] for name in table.head]
    widths = _widths(heads, table.rows)
    if sum(widths) > room:
        heads = [re.split(r"(?<=[._])", name) for name in table.head]
        widths = _widths(heads, table.rows)
    first = table.numbers.start
    rigid = {first - 1, *table.numbers}
    found = {n: width if n in rigid else min(width, FOLDED) for n, width in enumerate(widths)}
    if (message := table.numbers.stop) in found:
        found[message] = min(widths[message], MESSAGE)
    for least in table.least:
        if sum(found.values()) > room:
            del found[least]
    for n in found:
        found[n] += max(0, min(widths[n] - found[n], room - sum(found.values())))
    return heads, found


def _widths(heads: Sequence[Sequence[str]], rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the widths of the columns, in which runs have their names without the folder."""
    columns = zip(*((os.path.basename(run), *cells) for run, *cells in rows), strict=True)
    return [
        GAP + max(cell_len(printable(text)) for text in (*lines, *column))
        for lines, column in zip(heads, columns, strict=True)
    ]


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _figure(name: str, value: Any) -> str:
    if not isinstance(value, (int, float)) or abs(value) > sys.float_info.max:  # 10**400 is valid JSON
        return ""
    metric = name.partition("_")[2]
    if metric in METRIC_FORMATS:
        return METRIC_FORMATS[metric][1](value)
    return f"{value:.1f}" if name.endswith("seconds") else str(value)
