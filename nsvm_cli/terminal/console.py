"""Console output: tables of results."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import rich.console
from rich.box import SIMPLE_HEAD
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table
from rich.text import Text

from nsvm_cli.output import answer, printable
from nsvm_cli.terminal.confusion import confusion_table

WIDE = 10_000


class Console(rich.console.Console):
    """A rich console that prints strings as they are: without markup, emoji codes or control characters.

    What the encoding of the stream lacks is written as an escape.

    Args:
        file: the stream, in place of standard output.
        wide: whether lines may be of any length where no terminal would fold them.
    """

    def __init__(self, file: Any = None, wide: bool = False) -> None:
        # rich asks a stream for its encoding only if it is given one
        super().__init__(file=file or sys.stdout, highlight=False)
        if wide and not self.is_terminal and "COLUMNS" not in os.environ:
            self.width = WIDE

    def render_str(self, text: str, **options: Any) -> Text:
        """Convert a string; rich calls this for each one that it is given."""
        shown = printable(text).encode(self.encoding, "backslashreplace").decode(self.encoding)
        return super().render_str(shown, **{**options, "markup": False, "emoji": False})


def show_result(result: Mapping[str, Any], directory: Path) -> None:
    """Print the result of a run as tables, and which classes were taken for which."""
    title = f"{result['algorithm']} on {result['dataset']}, seed {result['seed']}"
    _show(title, scores_of(result), result, result["data"]["classes"], held_out(result))
    answer(f"Run directory: {directory}")


def show_evaluation(figures: Mapping[str, Any]) -> None:
    """Print the result of ``nsvm evaluate`` as tables, and which classes were taken for which."""
    rows = {
        "data": figures["source"],
        "same data as in training": "yes" if figures["same_data"] else "no",
        "algorithm": figures["algorithm"],
        "split": figures["split"],
        **_scores(figures, figures["samples"]),
    }
    _show(str(figures["checkpoint"]), rows, figures, figures["classes"], figures["split"])


def show_evaluations(evaluations: Sequence[Mapping[str, Any]]) -> None:
    """Print the scores of several models as one table."""
    rows = [
        {"model": str(e["checkpoint"]), "step": str(e["steps"]), **_scores(e, e["samples"])}
        for e in evaluations
    ]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    table = Table(box=SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold", justify="left" if column == "model" else "right")
    for row in rows:
        table.add_row(*(row.get(column, "") for column in columns))
    Console(wide=True).print(table)


def _show(
    title: str, rows: Mapping[str, str], figures: Mapping[str, Any], classes: Sequence[str], split: str
) -> None:
    """Print rows below a title, the confusion matrix if there is one, and the facts below it."""
    console, first = Console(), Table(show_header=False)
    for row in rows.items():
        first.add_row(*row)
    answer(title)
    console.print(first)
    if "confusion" in figures and (
        table := confusion_table(figures["confusion"], figures["recall"], classes, split, console)
    ):
        console.print(table)
    show_facts(facts_of(figures))


def show_facts(facts: Sequence[Fact]) -> None:
    """Print figures, one a line."""
    table = Table(show_header=False, box=None, padding=(0, GAP, 0, 0))
    for justify in ("left", "right", "left"):
        table.add_column(justify=justify)
    for fact in facts:
        table.add_row(*fact)
    Console().print(table)


def scores_of(result: Mapping[str, Any]) -> dict[str, str]:
    """Return the figures of a result that a person looks at first, by their names."""
    samples, split = result["data"]["samples"], held_out(result)
    return {
        **_scores(_of_split(result, split), samples[split], f"{split} "),
        **_scores(_of_split(result, "train"), samples["train"], "train "),
        "training time": f"{result['train_seconds']:.1f} s",
    }


def counted(some: int, whole: int, kind: str) -> str:
    """Return a number of samples in words, and of how many they are if not all."""
    return f"{f'{some} of' if some < whole else 'all'} {whole} {kind} samples"


def held_out(result: Mapping[str, Any]) -> str:
    """Return the name of the split that a run was evaluated on."""
    return "validation" if result["data"]["samples"]["validation"] else "test"


GAP = 2
"""Blanks after a column of a table without lines between its columns."""


def show_columns(
    widths: Mapping[int, int],
    numbers: Container[int],
    heads: Sequence[Sequence[str]] = (),
    rows: Sequence[Sequence[str]] = (),
) -> None:
    """Print heads, or rows of a table that stands in columns of given widths.

    Args:
        widths: of the columns that are shown, by their number; they include ``GAP``.
        numbers: the columns that hold numbers.
        heads: the lines of the head of each column.
    """
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), show_header=bool(heads))
    for n, width in widths.items():
        head = rich.console.Group(*heads[n]) if heads else ""
        table.add_column(
            head, justify="right" if n in numbers else "left", width=width - GAP, overflow="fold"
        )
    for row in rows:
        table.add_row(*(row[n] for n in widths))
    Console(wide=True).print(table)


def _of_split(result: Mapping[str, Any], split: str) -> dict[str, Any]:
    """Return the scores of a split without its name; ``balanced_accuracy`` is that of the held-out one."""
    names = ("accuracy", "errors", "r2", "rmse", "mae")
    scores = {name: result[f"{split}_{name}"] for name in names if f"{split}_{name}" in result}
    return scores if split == "train" else {**scores, "balanced_accuracy": result.get("balanced_accuracy")}


def _scores(figures: Mapping[str, Any], samples: int, split: str = "") -> dict[str, str]:
    """Return the rows about the score on a split."""
    if "r2" in figures:
        rmse, mae = (_in_units(figures[name]) for name in ("rmse", "mae"))
        return {f"{split}R^2": _number(figures["r2"]), f"{split}RMSE": rmse, f"{split}MAE": mae}
    accuracy, balanced = percent(figures["accuracy"]), figures.get("balanced_accuracy")
    rows = {f"{split}accuracy": accuracy, f"{split}errors": f"{figures['errors']} of {samples}"}
    if balanced is not None and percent(balanced) != accuracy:
        rows[f"{split}balanced accuracy"] = percent(balanced)
    if "log_loss" in figures:
        log_loss, brier = (_number(figures[name]) for name in ("log_loss", "brier_score"))
        rows |= {f"{split}log loss": log_loss, f"{split}Brier score": brier}
    return rows


def _in_units(error: float) -> str:
    """Format an error in the units of the data: with four digits, or as many as it has before the point."""
    return f"{error:.0f}" if 1000 <= error < 1e12 else f"{error:#.4g}"


Fact = tuple[str, str, str]
"""A figure: its name, its value, and in a few words what it is."""


def facts_of(figures: Mapping[str, Any]) -> list[Fact]:
    """Return what else the figures of a result or an evaluation say of a model and its training."""
    theta = figures["theta_change"]
    facts = [
        ("steps", figures["steps"], "{}", "iterations of the algorithm"),
        ("violations", figures.get("violations"), "{}", "drawn samples that were inside the margin"),
        (
            "support vectors",
            figures["support_vectors"],
            "{}",
            "training samples that the decision is a sum over",
        ),
        ("parameters", figures["parameters"], "{}", "weights of the network, the length of theta"),
        (
            "theta change",
            None if theta is None else 100 * theta,
            "{:.3g} %",
            "how far theta has moved, relative to its norm",
        ),
        ("feature change", figures["feature_change"], "{:.4f}", "of the kernel matrix: 0 none, 1 all of it"),
    ]
    shown = [(name, form.format(value), meaning) for name, value, form, meaning in facts if value is not None]
    if "alignment" in figures:
        meaning = "of the kernel with the labels, from -1 to 1"
        shown.append(("kernel alignment", _number(figures["alignment"]), meaning))
    return shown


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.4f}"


def percent(share: float) -> str:
    """Format a share of 1."""
    return f"{100 * share:.2f} %"


METRIC_FORMATS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "accuracy": ("accuracy", percent),
    "r2": ("R^2", "{:.4f}".format),
}
"""How the metric of a task is named and written (see ``Task.metric``)."""


def score_of(result: Mapping[str, Any]) -> tuple[str, str, float] | None:
    """Return the score of a result on held-out data, with the split and the metric; None if it has none."""
    for split, metric in product(("validation", "test"), METRIC_FORMATS):
        if isinstance(value := result.get(f"{split}_{metric}"), (int, float)):
            return split, metric, value
    return None


RECORD_FIGURES: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("validation_accuracy", "validation", percent),
    ("validation_r2", "validation R^2", "{:.4f}".format),
    ("violations", "violations", str),
    ("running_accuracy", "running accuracy", percent),
    ("support_vectors", "support vectors", str),
    ("full_objective", "full objective", "{:.4g}".format),
    ("objective", "objective", "{:.3g}".format),
)
"""What a line shows of a record: field, name and format; the most important first."""

OF_SVM = ("violations", "support_vectors")
"""Figures hidden while zero."""


def clock(seconds: int | float | None) -> str:
    """Return seconds as ``H:MM:SS``."""
    return "-:--:--" if seconds is None else str(timedelta(seconds=int(seconds)))


def figures_of(record: Mapping[str, Any]) -> list[str]:
    """Return the figures of a record in words, the most important first."""
    return [
        f"{name} {shown(record[key])}"
        for key, name, shown in RECORD_FIGURES
        if record.get(key) is not None and (record[key] or key not in OF_SVM)
    ]


def progress_bar(console: Console, *columns: ProgressColumn) -> Progress:
    """Return a bar with the counts and times of one task, which only a terminal shows."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(table_column=Column(min_width=10, max_width=40, ratio=1)),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(compact=True),
        *columns,
        console=console,
        expand=True,
        disable=not console.is_terminal,
        speed_estimate_period=float("inf"),
    )
