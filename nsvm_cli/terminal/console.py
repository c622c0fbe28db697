"""Output on a terminal: tables that fit on the screen, bars, and the progress of a sweep."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import rich.console
from rich import progress
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from nsvm_cli import words
from nsvm_cli.output import answer, printable, shortened
from nsvm_cli.words import Figures

WIDE = 10_000


class Console(rich.console.Console):
    """A rich console that prints strings literally, without markup and emoji codes.

    Characters that are unprintable, or that the stream cannot encode, are escaped. If ``wide`` and not on a
    terminal, lines may have any length.
    """

    def __init__(self, file: Any = None, wide: bool = False) -> None:
        # rich uses the encoding of a stream only if the stream is an argument
        super().__init__(file=file or sys.stdout, highlight=False)
        if wide and not self.is_terminal and "COLUMNS" not in os.environ:
            self.width = WIDE

    def render_str(self, text: str, **options: Any) -> Text:
        text = printable(text).encode(self.encoding, "backslashreplace").decode(self.encoding)
        return super().render_str(text, **{**options, "markup": False, "emoji": False})


def show_result(result: Figures, directory: Path) -> None:
    """Print the result of a run as tables, with its confusion matrix."""
    title = f"{result['algorithm']} on {result['dataset']}, seed {result['seed']}"
    _show(title, words.scores_of(result), result, result["data"]["classes"], words.held_out(result))
    if sentence := words.baseline_warning(result):
        answer(sentence)
    answer(f"Run directory: {directory}")


def show_evaluation(figures: Figures) -> None:
    """Print the result of ``nsvm evaluate`` as tables, with its confusion matrix."""
    rows = {
        "data": figures["source"],
        "same data as in training": "yes" if figures["same_data"] else "no",
        "algorithm": figures["algorithm"],
        "split": figures["split"],
        **words.split_scores(figures, figures["samples"], figures["classes"]),
    }
    _show(str(figures["checkpoint"]), rows, figures, figures["classes"], figures["split"])


def show_evaluations(evaluations: Sequence[Figures]) -> None:
    """Print the scores of several models as one table."""
    rows = [
        {"model": str(e["checkpoint"]), "step": str(e["steps"])}
        | words.split_scores(e, e["samples"], e["classes"])
        for e in evaluations
    ]
    columns = dict.fromkeys(column for row in rows for column in row)
    table = Table(*(Column(name, overflow="fold", justify="right") for name in columns), box=SIMPLE_HEAD)
    table.columns[0].justify = "left"
    cells = ([row.get(column, "") for column in columns] for row in rows)
    Console(wide=True).print(_filled(table, cells))


def _show(title: str, rows: Mapping[str, str], figures: Figures, classes: Sequence[str], split: str) -> None:
    """Print a title, rows, the confusion matrix, and values about the model and the training."""
    console = Console()
    answer(title)
    console.print(_filled(Table(show_header=False), rows.items()))
    if "confusion" in figures and (table := _confusion_table(figures, classes, split, console)):
        console.print(table)
    show_rows(words.training_rows(figures))


def _confusion_table(figures: Figures, classes: Sequence[str], split: str, console: Console) -> Group | None:
    """Return the confusion matrix or, if the matrix is too wide, the most frequent confusions, if any."""
    names = [shortened(name) for name in classes]
    if len(classes) <= words.FEW_CLASSES:
        matrix = _table(words.matrix_cells(figures, names))
        unbounded = console.options.update(max_width=WIDE)
        if console.measure(matrix, options=unbounded).maximum <= console.width:
            return Group(f"{split}: true classes in rows, decisions in columns", matrix)
    most_frequent = _table(words.frequent_cells(figures, names))
    return Group(f"{split}: the most frequent confusions", most_frequent) if most_frequent.row_count else None


def show_columns(rows: words.Rows) -> None:
    """Print a table about the columns of a data set. The first row is the head."""
    Console(wide=True).print(_table([tuple(shortened(cell, 40) for cell in row) for row in rows], "left"))


def _table(rows: words.Rows, justify: Literal["left", "right"] = "right") -> Table:
    """Return a table whose head is the first row."""
    columns = (Column(name, justify=justify, no_wrap=True) for name in rows[0])
    return _filled(Table(*columns, box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0)), rows[1:])


def _filled(table: Table, rows: Iterable[Iterable[str]]) -> Table:
    for row in rows:
        table.add_row(*row)
    return table


def show_rows(rows: words.Rows) -> None:
    """Print values with their names and meanings, one per line."""
    columns = Column(), Column(justify="right"), Column()
    Console().print(_filled(Table(*columns, show_header=False, box=None, padding=(0, GAP, 0, 0)), rows))


GAP = 2
"""Number of blanks between columns without lines."""

FOLDED, NARROW = ("run", "message"), 16
"""The columns of a table of runs that may be folded, and their minimum width."""


def show_runs(
    columns: Mapping[str, Sequence[str]], numbers: Sequence[str], required: Sequence[str]
) -> list[str]:
    """Print a table of runs without columns that do not fit, and return the heads of these columns.

    Args:
        columns: the cells of each column, by head.
        numbers: the heads of columns of numbers, which are aligned to the right.
        required: the heads of columns that are always printed.
    """
    console, heads, names = Console(wide=True), {name: [name] for name in columns}, [*columns]

    def width(name: str) -> int:
        longest = max(cell_len(printable(text)) for text in (*heads[name], *columns[name]))
        return GAP + min(longest, NARROW if name in FOLDED else longest)

    if sum(map(width, names)) > console.width:
        heads = {name: re.split(r"(?<=[._])", name) for name in columns}
    for name in reversed([*columns]):
        if name not in required and sum(map(width, names)) > console.width:
            names.remove(name)
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for name in names:
        side: Any = "right" if name in numbers else "left"
        table.add_column(Group(*heads[name]), justify=side, no_wrap=name not in FOLDED, overflow="fold")
    console.print(_filled(table, zip(*(columns[name] for name in names), strict=True)))
    return [name for name in columns if name not in names]


def progress_bar(console: Console, *columns: progress.ProgressColumn) -> progress.Progress:
    """Return a progress bar with counts and times. The bar is shown only on a terminal."""
    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(table_column=Column(min_width=10, max_width=40, ratio=1)),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(compact=True),
        *columns,
        console=console,
        expand=True,
        disable=not console.is_terminal,
        speed_estimate_period=float("inf"),
    )


INTERVAL, TIME_SHARE = 0.5, 0.02
"""Minimum seconds between two checks of the jobs, and maximum share of a core for these checks."""


@contextlib.contextmanager
def sweep_progress(look: Callable[[], tuple[Sequence[str], int]], total: int | None) -> Iterator[None]:
    """Context manager: show on stderr the new lines and the number of ended jobs that ``look`` returns."""
    console, has_ended = Console(sys.stderr), threading.Event()

    def watch() -> None:
        is_last = False
        while not is_last:
            is_last, began = has_ended.is_set(), time.monotonic()
            with contextlib.suppress(OSError):  # a directory was removed while it was read
                lines, ended = look()
                for line in lines:
                    console.print(line, soft_wrap=True)
                bar.update(task, completed=ended)
            has_ended.wait(max(INTERVAL, (time.monotonic() - began) / TIME_SHARE))

    with progress_bar(console) as bar:
        task = bar.add_task("jobs", total=total)
        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            has_ended.set()
            thread.join()
