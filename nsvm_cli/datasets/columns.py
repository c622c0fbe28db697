"""How each column of a table is read, for people: its kind, its gaps and an example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nsvm_cli.datasets.base import Table, TableSource, expect_column
from nsvm_cli.datasets.csv import Dialect, read_cells
from nsvm_cli.datasets.encoding import DATE_FEATURES, Dates, is_number, read_columns, texts
from nsvm_cli.output import shortened

ID = "id"
"""The kind of a column that names rows, and is left out."""

LONGEST_LINE = 300
"""The most characters of a line that names columns."""


@dataclass(frozen=True)
class Column:
    """A column of a table: its kind, for text the number of categories, the number of empty cells, and an
    example, which is the median of numbers and dates.
    """

    name: str
    kind: str
    categories: int | None
    missing: int
    example: str


def describe(table: Table, columns: Mapping[str, Any]) -> tuple[Column, ...]:
    """Return how each column is read by a model that knows ``columns`` (see ``read_columns``)."""

    def described(name: Any) -> Column:
        cells, known = table.rows[name], columns.get(str(name))
        cells = texts(cells) if cells.dtype.kind == "O" else cells  # Parquet may hold lists
        present = cells[cells.notna() & (cells != "")]
        count, example = None, str(present.iloc[0]) if len(present) else ""
        kind = table.roles.get(name, ID if known is None else "text")
        if isinstance(known, Dates):
            kind, example = "date", str(np.datetime64(int(known.median // 1), "D"))
        elif isinstance(known, float):
            kind, example = "number", f"{known:.6g}"
        elif kind in ("text", "label"):
            count = present.nunique()
        if known is not None and (not len(present) or (cells == cells.iloc[0]).all()):
            kind = "constant" if len(present) else "empty"
        return Column(str(name), kind, count, len(cells) - len(present), example)

    return tuple(map(described, table.rows))


def survey(path: str, dialect: Dialect, label: str | None) -> tuple[Column, ...]:
    """Return how training would read the columns of a file, were all of its rows for training.

    Raises:
        InputError: it cannot be read, or has no such column of labels.
    """
    rows = read_cells(path, "", dialect)
    if label is not None:
        expect_column("--label", path, label, rows)
    table = Table(rows, (path,), label or "label", TableSource(drop=None))
    return describe(table, read_columns(table, np.arange(len(rows))))


def summary(columns: Sequence[Column]) -> list[str]:
    """Return a few lines about the columns of a table, if there are any, for a run."""
    names: dict[str, list[str]] = {}
    for column in columns:
        names.setdefault(column.kind, []).append(column.name)
    counts = ", ".join(f"{len(some)} {kind}" for kind, some in names.items())
    missing = sum(column.missing for column in columns)
    advice = {
        "date": f"dates are read as {', '.join(DATE_FEATURES)}",
        ID: "left out as identifiers, unless dataset.drop=[...] says what is left out",
    }
    lines = [f"columns: {counts}; {missing} empty cells"] if columns else []
    lines += [f"{text}: {', '.join(names[kind])}" for kind, text in advice.items() if kind in names]
    lines += decimal_commas(columns, "\"dataset.decimal=','\"")
    return [shortened(line, LONGEST_LINE) for line in lines]


def decimal_commas(columns: Sequence[Column], setting: str) -> list[str]:
    """Return a line about columns of text that are numbers with a decimal comma, if there are any."""
    commas = [column for column in columns if column.kind == "text" and "," in column.example]
    names = ", ".join(column.name for column in commas if is_number(column.example.replace(",", ".")))
    return [f"numbers with commas are read as text: is {setting} meant? {names}"] if names else []


def unseen_categories(counts: Mapping[str, int], rows: int) -> list[str]:
    """Return lines about cells of text, of so many rows, with categories that no training row has."""
    everywhere = [name for name, count in counts.items() if count == rows > 1]
    warning = "all {} cells of {} are unseen in training: is the file in another encoding?"
    lines = [warning.format(rows, name) for name in everywhere]
    others = [(name, count) for name, count in counts.items() if name not in everywhere]
    if cells := ", ".join(f"{name}: {count} cell{'s' * (count > 1)}" for name, count in others):
        lines.append(f"categories unseen in training: {cells}")
    return [shortened(line, LONGEST_LINE) for line in lines]
