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

from nsvm_cli.output import printable
from nsvm_cli.report.comparison_figures import STYLES, Course, Grid, curves, heat_map, mean_ranks
from nsvm_cli.report.curves import WINDOW, moving_mean
from nsvm_cli.storage.metrics_file import read_metrics, read_times
from nsvm_cli.storage.run_directory import METRICS, TIMES
from nsvm_cli.studies.cells import PERCENT, Cell
from nsvm_cli.studies.compare import Comparison, Ranking
from nsvm_cli.studies.intervals import R2, decimals

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCORES: Mapping[str, Mapping[str, str]] = {
    PERCENT: {
        "validation_accuracy": "validation accuracy, %",
        "running_accuracy": "accuracy on training samples\nbefore they are learnt, %",
    },
    R2: {"validation_r2": "R² on validation data\n(0 where it is negative)"},
}
"""The scores that metrics may hold, the one to be preferred first, by the unit of the comparison."""

NOISY = ("running_accuracy",)
"""Scores of the few samples since the last record, which are shown as moving means."""

AXES = ("step", "seconds of training", "support vectors")


def figures(rows: Sequence[Comparison], ranks: Ranking | None) -> dict[str, Figure]:
    """Return the figures that apply to a comparison.

    These are ``curves``, if the runs recorded a score during training; ``heat_map``, if the candidates differ
    in two settings; and ``ranks``, if there are any.

    Raises:
        InputError: the metrics of a run are damaged.
    """
    drawn = {"curves": _curves(rows), "heat_map": _heat_map(rows), "ranks": _ranks(ranks)}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def _curves(rows: Sequence[Comparison]) -> Figure | None:
    """Draw the best candidates, as many as can be told apart, by the score that most of them recorded."""
    names = _best_first(rows)
    best = names[: len(STYLES)]
    cells = [row.cell for row in rows if row.cell.candidate in best]
    cells.sort(key=lambda cell: (cell.dataset, best.index(cell.candidate)))
    scores = SCORES[rows[0].cell.unit]
    recorded = {name: [(cell.dataset, _course(cell, name)) for cell in cells] for name in scores}
    found = {name: [(where, course) for where, course in pairs if course] for name, pairs in recorded.items()}
    name = max(found, key=lambda name: len(found[name]))
    courses = [course for _, course in found[name]]
    if not courses:
        return None
    axes = [axis for axis in AXES if _is_known(axis, courses)]
    by_dataset: dict[str, list[Course]] = {}
    for dataset, course in found[name]:
        shown = replace(course, at={axis: course.at[axis] for axis in axes})
        by_dataset.setdefault(dataset, []).append(shown)
    number = len({course.name for course in courses})
    about = [f"{number} of {len(names)} settings, the best that recorded it"] if number < len(names) else []
    about += [f"mean of {WINDOW} records around each"] if name in NOISY else []
    return curves(by_dataset, scores[name], about)


def _best_first(rows: Sequence[Comparison]) -> list[str]:
    """Return the candidates in the order of their mean ranks over the data sets."""
    ranks: dict[str, list[float]] = {}
    for row in rows:
        ranks.setdefault(row.cell.candidate, []).append(row.rank)
    return sorted(ranks, key=lambda name: fmean(ranks[name]))


def _is_known(axis: str, courses: Sequence[Course]) -> bool:
    """Return whether all courses have an axis, and not only zeros, as support vectors without an SVM are."""
    places = np.concatenate([course.at[axis] for course in courses])
    return bool(np.isfinite(places).all() and places.any())


def _course(cell: Cell, name: str) -> Course | None:
    """Return how a score changed, at the steps where all seeds recorded it; None if these are no two."""
    runs = [_recorded(run.path, name) for run in cell.runs.values()]
    steps = sorted(set.intersection(*map(set, runs)))
    if len(steps) < 2:
        return None
    found = np.array([[run[step] for step in steps] for run in runs], dtype=np.float64)
    at = dict(zip(AXES, found[..., 1:].mean(axis=0).T, strict=True))
    return Course(cell.candidate, at, found[..., 0])


def _recorded(run: Path, name: str) -> dict[int, tuple[float | int | None, ...]]:
    """Return the score and the place on each axis of the steps at which the score was recorded."""
    if not (run / METRICS).is_file():
        return {}
    records = [record for record in read_metrics(run / METRICS) if record.get(name) is not None]
    times = read_times(run / TIMES)
    scores = [max(0.0, r[name]) if name.endswith("r2") else 100 * r[name] for r in records]
    if name in NOISY:
        scores = moving_mean(scores)
    return {
        r["step"]: (score, r["step"], times.get(r["step"]), r.get("support_vectors"))
        for r, score in zip(records, scores, strict=True)
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
    return heat_map(grids, settings, f"mean {cell.split} {cell.unit}", decimals(cell.unit))


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
