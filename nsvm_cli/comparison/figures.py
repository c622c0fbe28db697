"""Figures of a comparison: training curves with bands over seeds, and mean ranks."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64

from nsvm_cli.comparison.compare import Cell, Comparison, Ranking
from nsvm_cli.page.plotting import BLUE, GRAY, SERIES, new_figure, style_axis
from nsvm_cli.storage.metrics_file import read_metrics, read_times
from nsvm_cli.storage.run_directory import METRICS_FILE, TIMES_FILE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDS = {"step": "steps", "seconds of training": "train_seconds", "support vectors": "support_vectors"}
"""The horizontal axes of the curves, and the keys in ``result.json`` of their values after training."""

Course = Float64[np.ndarray, "seeds records 4"]
"""For each seed and each step at which all seeds recorded a score: the score and its place on each axis."""

SMALL, LETTER, LINE = 8, 0.075, 0.2
"""The size of small text in points, and the approximate width of a letter and height of a line in inches."""


def figures(rows: Sequence[Comparison], ranks: Ranking | None) -> dict[str, Figure]:
    """Return the figures ``curves`` and ``ranks`` that apply. Raise an InputError if metrics are damaged."""
    drawn = {"curves": curves(rows), "ranks": mean_ranks(ranks) if ranks else None}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def curves(rows: Sequence[Comparison]) -> Figure | None:
    """Draw the training curves of the best candidates, at most one for each colour in ``SERIES``.

    There is a row for each data set, and a column for each axis. Return None if all runs failed, or if a
    single candidate has recorded no curve.
    """
    ranks = defaultdict[str, list[float]](list)
    for row in (done := [row for row in rows if row.cell.runs]):
        ranks[row.cell.candidate].append(row.rank)
    names = sorted(ranks, key=lambda name: fmean(ranks[name]))
    colours = dict(zip(names, SERIES, strict=False))
    courses = [(row.cell, _course(row.cell)) for row in done if row.cell.candidate in colours]
    recorded = any(course.size for _, course in courses)
    if len(names) < 2 and not recorded:
        return None
    courses.sort(key=lambda pair: (pair[0].dataset, names.index(pair[0].candidate)))
    datasets = [[*group] for _, group in groupby(courses, lambda pair: pair[0].dataset)]
    ends = {title: name for title, name in ENDS.items() if any(cell.mean(name) > 0 for cell, _ in courses)}
    width, longest = 0.5 + 3.2 * len(ends), max(len(_shown(name)) for name in colours)
    columns = max(1, int(width / (0.6 + LETTER * longest)))
    with new_figure(width, 0.6 + 2.4 * len(datasets) + LINE * math.ceil(len(colours) / columns)) as figure:
        handles: dict[str, Any] = {}
        axes = figure.subplots(len(datasets), len(ends), squeeze=False, sharey="row")
        for line, cells in zip(axes, datasets, strict=True):
            for axis, (title, name) in zip(line, ends.items(), strict=True):
                for cell, course in cells:
                    handles[cell.candidate] = _plot(axis, cell, course, title, colours[cell.candidate])
                _scale(axis, [cell.mean(name) for cell, _ in cells])
                style_axis(axis, "", title)
            cell, _ = cells[0]
            line[0].set_title(_shown(cell.dataset), loc="left", fontsize=10)
            line[0].set_ylabel(f"{cell.split} {cell.unit}{' (0 if negative)' if cell.figure == 'r2' else ''}")
        parts = [f"the best {len(colours)} of {len(names)} settings"] if len(colours) < len(names) else []
        parts += ["lines: during training, points: after training" if recorded else "points: after training"]
        parts += ["means over the seeds, with bands and bars from the lowest score to the highest"]
        figure.suptitle("; ".join(parts), fontsize=SMALL, color=GRAY)
        style: dict[str, Any] = {"loc": "outside lower center", "frameon": False, "fontsize": SMALL}
        figure.legend([handles[name] for name in colours], map(_shown, colours), ncols=columns, **style)
    return figure


def _course(cell: Cell) -> Course:
    """Return the scores that the runs of a cell recorded during training; negative scores are 0."""
    name, scale, runs = f"{cell.split}_{cell.figure}", 1 if cell.samples is None else 100, []
    for run in cell.runs.values():
        file, times = run.path / METRICS_FILE, read_times(run.path / TIMES_FILE)
        points = {
            r["step"]: (max(0.0, scale * r[name]), r["step"], times.get(r["step"]), r.get("support_vectors"))
            for r in (read_metrics(file) if file.is_file() else [])
            if r.get(name) is not None
        }
        runs.append(points)
    steps = sorted(set.intersection(*map(set, runs)))
    course = np.array([[run[step] for step in steps] for run in runs], dtype=np.float64)
    return course.reshape(len(runs), len(steps), 1 + len(ENDS))


def _plot(axis: Axes, cell: Cell, course: Course, title: str, colour: str) -> Any:
    """Draw the mean score during training with its band, and the mean after training with its bar."""
    x, scores = course[..., 1 + [*ENDS].index(title)].mean(axis=0), course[..., 0]
    axis.plot(x, scores.mean(axis=0), linewidth=1.4, color=colour)
    axis.fill_between(x, scores.min(axis=0), scores.max(axis=0), color=colour, alpha=0.1, linewidth=0)
    final = np.maximum(0.0, [*cell.scores.values()])
    mean = final.mean().clip(final.min(), final.max())  # rounding may exceed equal scores
    bar = [[mean - final.min()], [final.max() - mean]]
    return axis.errorbar(cell.mean(ENDS[title]), mean, bar, fmt="o", markersize=4, capsize=2, color=colour)


def _scale(axis: Axes, lengths: Sequence[float]) -> None:
    """Make an axis logarithmic if the lengths of the curves differ by more than a factor of 10."""
    lengths = [length for length in lengths if not math.isnan(length)]
    if lengths and max(lengths) > 10 * min(lengths) > 0:
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter("")


def mean_ranks(ranking: Ranking) -> Figure:
    """Draw the mean ranks, with bars as long as the critical difference."""
    names = [f"{_shown(name)}  {rank:.2f}" for name, rank in ranking.ranks.items()]
    with new_figure(5.0 + LETTER * max(map(len, names)), 1.2 + LINE * len(names)) as figure:
        axis = figure.subplots()
        rows, half = range(len(names)), ranking.critical / 2
        axis.errorbar([*ranking.ranks.values()], rows, xerr=half, fmt="o", capsize=3, color=BLUE)
        axis.set(ylim=(len(names) - 0.5, -0.5))
        axis.set_yticks(rows, names)
        style_axis(axis, "", f"bars: critical difference, {2 * half:.2f}")
        figure.suptitle(f"mean ranks over {ranking.over}; {ranking.test}", fontsize=SMALL, color=GRAY)
    return figure


def _shown(name: str) -> str:
    """Shorten a name of more than 60 characters in the middle, since either end may distinguish settings."""
    return name if len(name) <= 60 else f"{name[:30]}…{name[-30:]}"
