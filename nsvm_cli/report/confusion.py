"""Which classes a model takes for which others, as a table that fits on the screen."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.measure import Measurement
from rich.table import Table

MOST_CLASSES = 12
"""The most classes that a matrix is shown for."""

MOST_PAIRS = 8
"""The most confusions that are listed where there is no room for a matrix."""

LONGEST = 16
"""Characters of a class's name that are shown."""

Counts = Sequence[Sequence[int]]
Recall = Sequence[float | None]


def confusion_table(
    confusion: Counts, recall: Recall, classes: Sequence[str], split: str, console: Console
) -> Group | None:
    """Return the confusion matrix under a title or, where there is no room for it, the most frequent ones.

    Args:
        confusion: counts of samples by their class (row) and the class that was decided for (column).
        recall: the share of each class that is decided rightly; None without samples.
        classes: the names of the classes.
        split: the name of the split, for the title.
        console: what the table is printed on.

    None is returned if there is neither room nor a confusion.
    """
    names = [name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…" for name in classes]
    if len(classes) <= MOST_CLASSES:
        matrix = _matrix(confusion, recall, names)
        unbounded = console.options.update(max_width=10_000)
        if Measurement.get(console, unbounded, matrix).maximum <= console.width:
            return Group(f"{split}: classes by row, decisions by column", matrix)
    most_frequent = _most_frequent(confusion, recall, names)
    return Group(f"{split}: the most frequent confusions", most_frequent) if most_frequent.row_count else None


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _matrix(confusion: Counts, recall: Recall, names: Sequence[str]) -> Table:
    table = _table("", *names, "recall")
    for name, counts, share in zip(names, confusion, recall, strict=True):
        table.add_row(name, *(str(count or ".") for count in counts), _percent(share))
    return table


def _most_frequent(confusion: Counts, recall: Recall, names: Sequence[str]) -> Table:
    pairs = [
        (count, i, j) for i, row in enumerate(confusion) for j, count in enumerate(row) if count and i != j
    ]
    table = _table("class", "decision", "samples", "recall")
    for count, i, j in sorted(pairs, key=lambda pair: -pair[0])[:MOST_PAIRS]:
        table.add_row(names[i], names[j], f"{count} of {sum(confusion[i])}", _percent(recall[i]))
    return table


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"
