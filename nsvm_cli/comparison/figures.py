"""What the figures of a comparison show: the courses of its runs, its scores in a grid, and its ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from nsvm_cli.comparison.cells import Cell
from nsvm_cli.comparison.compare import Comparison, Ranking
from nsvm_cli.comparison.intervals import PERCENT, R2, decimals
from nsvm_cli.comparison.plots import STYLES, Course, Grid, curves, heat_map, mean_ranks
from nsvm_cli.output import printable
from nsvm_cli.storage.metrics_file import read_metrics, read_times
from nsvm_cli.storage.run_directory import METRICS, TIMES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCORES = {PERCENT: ("accuracy", "accuracy, %"), R2: ("r2", "R²\n(0 where it is negative)")}
"""The metric of a score and what it is called, by the unit of the comparison."""

ENDS = {"step": "steps", "seconds of training": "train_seconds", "support vectors": "support_vectors"}
"""The axes of the curves, and the figure of a result that says where on each its training ended."""


def figures(rows: Sequence[Comparison], ranks: Ranking | None) -> dict[str, Figure]:
    """Return the figures that apply to a comparison.

    These are ``curves``, if there are several candidates or the runs recorded their score on held-out data;
    ``heat_map``, if the candidates differ in two settings; and ``ranks``, if there are any.

    Raises:
        InputError: the metrics of a run are damaged.
    """
    drawn = {"curves": _curves(rows), "heat_map": _heat_map(rows), "ranks": _ranks(ranks)}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def _curves(rows: Sequence[Comparison]) -> Figure | None:
    """Draw the best candidates, as many as can be told apart."""
    names = _best_first(rows)
    best = names[: len(STYLES)]
    cells = [row.cell for row in rows if row.cell.candidate in best]
    cells.sort(key=lambda cell: (cell.dataset, best.index(cell.candidate)))
    courses = [_course(cell) for cell in cells]
    if len(names) < 2 and not any(course.scores.size for course in courses):
        return None
    axes = [axis for axis in ENDS if any(course.end[axis] > 0 for course in courses)]
    by_dataset: dict[str, list[Course]] = {}
    for cell, course in zip(cells, courses, strict=True):
        shown = replace(course, at={axis: course.at[axis] for axis in axes})
        by_dataset.setdefault(cell.dataset, []).append(shown)
    about = [f"the best {len(best)} of {len(names)} settings"] if len(best) < len(names) else []
    return curves(by_dataset, f"{cells[0].split} {SCORES[cells[0].scores.unit][1]}", about)


def _best_first(rows: Sequence[Comparison]) -> list[str]:
    """Return the candidates in the order of their mean ranks over the data sets."""
    ranks: dict[str, list[float]] = {}
    for row in rows:
        ranks.setdefault(row.cell.candidate, []).append(row.rank)
    return sorted(ranks, key=lambda name: fmean(ranks[name]))


def _course(cell: Cell) -> Course:
    """Return how the score changed at the steps where all seeds recorded it, and the scores at the end."""
    name = f"{cell.split}_{SCORES[cell.scores.unit][0]}"
    runs = [_recorded(run.path, name) for run in cell.runs.values()]
    steps = sorted(set.intersection(*map(set, runs)))
    found = np.array([[run[step] for step in steps] for run in runs], dtype=np.float64)
    found = found.reshape(len(runs), len(steps), 1 + len(ENDS))
    at = dict(zip(ENDS, found[..., 1:].mean(axis=0).T, strict=True))
    end = {axis: cell.mean(figure) for axis, figure in ENDS.items()}
    final = [max(0.0, score) for score in cell.scores.each]
    return Course(cell.candidate, at, found[..., 0], end, np.array(final))


def _recorded(run: Path, name: str) -> dict[int, tuple[float | int | None, ...]]:
    """Return the score and the place on each axis of the steps at which the score was recorded."""
    if not (run / METRICS).is_file():
        return {}
    times = read_times(run / TIMES)
    scale = 1 if name.endswith("r2") else 100
    return {
        r["step"]: (max(0.0, scale * r[name]), r["step"], times.get(r["step"]), r.get("support_vectors"))
        for r in read_metrics(run / METRICS)
        if r.get(name) is not None
    }


def _heat_map(rows: Sequence[Comparison]) -> Figure | None:
    """Draw the mean scores if two settings vary, most of whose combinations were tried."""
    every = [row.cell.settings for row in rows]
    keys = dict.fromkeys(key for settings in every for key in settings)
    varied = [key for key in keys if len(_labels(every, key)) > 1]
    if len(varied) != 2:
        return None
    y, x = sorted(varied, key=lambda key: all(_is_number(settings.get(key)) for settings in every))
    grids = {dataset: _grid([*group], y, x) for dataset, group in groupby(rows, lambda row: row.cell.dataset)}
    if any(np.isnan(grid.scores).mean() > 0.5 for grid in grids.values()):
        return None
    cell = rows[0].cell
    settings = printable(y.removesuffix(".name")), printable(x.removesuffix(".name"))
    return heat_map(grids, settings, f"mean {cell.split} {cell.scores.unit}", decimals(cell.scores.unit))


def _grid(rows: Sequence[Comparison], y: str, x: str) -> Grid:
    every = [row.cell.settings for row in rows]
    lines, columns = _labels(every, y), _labels(every, x)
    scores = np.full((len(lines), len(columns)), np.nan)
    for row, settings in zip(rows, every, strict=True):
        place = lines.index(_label(settings.get(y))), columns.index(_label(settings.get(x)))
        scores[place] = row.score.mean
    return Grid(lines, columns, scores)


def _labels(every: Iterable[Mapping[str, Any]], key: str) -> list[str]:
    """Return the values of a setting as they are shown, numbers first and in their order."""
    values = {_label(settings.get(key)): settings.get(key) for settings in every}
    order = {label: value if _is_number(value) else math.inf for label, value in values.items()}
    return sorted(values, key=lambda label: (order[label], label))


def _label(value: Any) -> str:
    return "null" if value is None else printable(str(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def _ranks(ranks: Ranking | None) -> Figure | None:
    if ranks is None:
        return None
    return mean_ranks(ranks.ranks, ranks.critical, f"mean ranks over {ranks.over}; {ranks.test}")
