"""Which classes a model takes for which others, as a table that fits on the screen."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.measure import Measurement
from rich.table import Table

from nsvm_cli.output import shortened

MOST_CLASSES = 12
"""The most classes that a matrix is shown for."""

MOST_PAIRS = 8
"""The most confusions that are listed where there is no room for a matrix."""

Counts = Sequence[Sequence[int]]
Recall = Sequence[float | None]
TextTable = list[tuple[str, ...]]
"""A table: its head, and then its rows."""


def confusion_table(
    confusion: Counts, recall: Recall, classes: Sequence[str], split: str, console: Console
) -> Group | None:
    """Return the confusion matrix under a title or, where there is no room for it, the most frequent ones.

    Args:
        confusion: counts of samples by their class (row) and the class that was decided for (column).
        recall: the share of each class that is decided rightly; None without samples.

    None is returned if there is neither room nor a confusion.
    """
    names = [shortened(name) for name in classes]
    if len(classes) <= MOST_CLASSES:
        matrix = _table(matrix_cells(confusion, recall, names))
        unbounded = console.options.update(max_width=10_000)
        if Measurement.get(console, unbounded, matrix).maximum <= console.width:
            return Group(f"{split}: classes by row, decisions by column", matrix)
    most_frequent = _table(frequent_cells(confusion, recall, names))
    return Group(f"{split}: the most frequent confusions", most_frequent) if most_frequent.row_count else None


def matrix_cells(confusion: Counts, recall: Recall, names: Sequence[str]) -> TextTable:
    """Return the confusion matrix, with a row for each class and a column for each decision."""
    rows = zip(names, confusion, recall, strict=True)
    return [
        ("", *names, "recall"),
        *((name, *(str(count or ".") for count in counts), _percent(share)) for name, counts, share in rows),
    ]


def frequent_cells(confusion: Counts, recall: Recall, names: Sequence[str]) -> TextTable:
    """Return the most frequent confusions, one a row."""
    pairs = [
        (count, i, j) for i, row in enumerate(confusion) for j, count in enumerate(row) if count and i != j
    ]
    return [
        ("class", "decision", "samples", "recall"),
        *(
            (names[i], names[j], f"{count} of {sum(confusion[i])}", _percent(recall[i]))
            for count, i, j in sorted(pairs, key=lambda pair: -pair[0])[:MOST_PAIRS]
        ),
    ]


def class_cells(confusion: Counts, names: Sequence[str]) -> TextTable:
    """Return precision, recall and F1 of each class; of many classes, those of the lowest F1."""
    rows = []
    for r, (name, row) in enumerate(zip(names, confusion, strict=True)):
        right, samples, decided = row[r], sum(row), sum(other[r] for other in confusion)
        f1 = _share(2 * right, samples + decided)
        shares = _share(right, decided), _share(right, samples), f1
        rows.append((1.0 if f1 is None else f1, (name, str(samples), *map(_percent, shares))))
    if len(rows) > MOST_CLASSES:
        rows = sorted(rows, key=lambda row: row[0])[:MOST_CLASSES]
    return [("class", "samples", "precision", "recall", "F1"), *(cells for _, cells in rows)]


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _table(cells: TextTable) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for column in cells[0]:
        table.add_column(column, justify="right", no_wrap=True)
    for row in cells[1:]:
        table.add_row(*row)
    return table


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"
