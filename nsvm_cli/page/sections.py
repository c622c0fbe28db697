"""The sections of a report on one run."""

from __future__ import annotations

import json
import math
from collections.abc import Container, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nsvm_cli.config.settings import flat
from nsvm_cli.output import shortened
from nsvm_cli.page.curves import Panel, panels_of, plot_panels
from nsvm_cli.page.document import Blocks, Grid, KeyFigures, Picture, Section, Table, section
from nsvm_cli.page.model_sections import model_sections
from nsvm_cli.page.plotting import new_figure, to_svg
from nsvm_cli.storage.run_directory import RESULT, checkpoints_in, reading
from nsvm_cli.terminal.confusion import MOST_CLASSES, class_cells, frequent_cells, matrix_cells
from nsvm_cli.terminal.console import facts_of, held_out, scores_of

MAX_VALUE_LENGTH = 120
"""Characters of a value that are shown."""


def run_sections(
    run: Path,
    result: Mapping[str, Any],
    settings: Sequence[Section],
    runtime: Mapping[str, Any],
) -> list[Section]:
    """Return what there is to show of a run: settings and curves, its model once it has a checkpoint, and
    its result once it has finished.

    Args:
        result: its result; empty before it has finished.
        runtime: see ``load_trained``.
    """
    curves = section("Training", partial(_curves, run))
    model = model_sections(run, runtime) if result or checkpoints_in(run) else []
    if not result:
        return [*settings, *curves, *model]
    return [
        *section("Result", partial(_result, run, result)),
        *settings,
        *curves,
        *section("Confusion", partial(_confusion, run, result)),
        *model,
        *section("Data and computation", partial(_circumstances, run, result)),
    ]


def _result(run: Path, result: Mapping[str, Any]) -> Blocks:
    with reading(run / RESULT):
        first, more = KeyFigures(scores_of(result)), facts_of(result)
        return [first, Table("What training did", ("figure", "value", "meaning"), more, range(1, 2))]


def settings_tables(settings: Mapping[str, Any], overridden: Container[str]) -> Grid:
    """Return the settings of a run, a table for each part, in which those that were overridden are marked."""
    parts: dict[str, dict[str, Any]] = {}
    for key, value in flat(settings).items():
        part, _, name = key.rpartition(".")
        parts.setdefault(part or "run", {})[name] = value
    return Grid([_settings_table(part, values, overridden) for part, values in parts.items()])


def _settings_table(part: str, values: Mapping[str, Any], overridden: Container[str]) -> Table:
    marks = {
        row: "overridden"
        for row, name in enumerate(values)
        if (name if part == "run" else f"{part}.{name}") in overridden
    }
    rows = [(name, _text(value)) for name, value in values.items()]
    return Table(part, ("setting", "value"), rows, marks=marks)


def _text(value: Any) -> str:
    """Return a value of a JSON file as text."""
    return shortened(value if isinstance(value, str) else json.dumps(value), MAX_VALUE_LENGTH)


def _curves(run: Path) -> Blocks:
    yield Grid([_picture(panel) for panel in panels_of(run)])


def _picture(panel: Panel) -> Picture:
    with new_figure(4.6, 2.5) as figure:
        plot_panels([panel], "", figure)
    return Picture(to_svg(figure, f"{panel.title}, over the steps of training"))


def _confusion(run: Path, result: Mapping[str, Any]) -> Blocks:
    if "confusion" not in result:
        return []
    with reading(run / RESULT):
        confusion, classes = result["confusion"], [shortened(str(name)) for name in result["data"]["classes"]]
        split = held_out(result)
        head, *rows = class_cells(confusion, classes)
        few = f"the {MOST_CLASSES} classes of the lowest F1" if len(classes) > MOST_CLASSES else "each class"
        of_classes = Table(f"Precision, recall and F1 of {few}", head, rows, range(1, len(head)))
        if len(classes) > MOST_CLASSES:
            head, *rows = frequent_cells(confusion, result["recall"], classes)
            caption = f"The most frequent confusions of {split} samples"
            return [Grid([Table(caption, head, rows, range(2, 4)), of_classes])]
        head, *rows = matrix_cells(confusion, result["recall"], classes)
        shades = [[*(math.sqrt(count / (sum(row) or 1)) for count in row), 0.0] for row in confusion]
        caption = f"{split.capitalize()} samples: classes by row, decisions by column"
        return [Grid([Table(caption, head, rows, range(1, len(head)), shades=shades), of_classes])]


def _circumstances(run: Path, result: Mapping[str, Any]) -> Blocks:
    with reading(run / RESULT):
        how = {key: result[key] for key in ("device", "dtype", "engine", "threads")}
        values = {"data": result["data"], "computation": {**how, **flat(result["versions"])}}
        return [Grid([_values_table(name, of_name) for name, of_name in values.items()])]


def _values_table(caption: str, values: Mapping[str, Any]) -> Table:
    return Table(caption, ("", ""), [(name, _text(value)) for name, value in flat(values).items()])
