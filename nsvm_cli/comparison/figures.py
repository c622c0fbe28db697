"""Figures of a comparison: training curves with bands over seeds, and mean ranks.

Each is a matplotlib ``Figure``: ``nsvm_cli.page.plotting.write_figure`` writes it to a file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64

from nsvm_cli.comparison.cells import R2, Cell
from nsvm_cli.comparison.compare import Comparison, Ranking
from nsvm_cli.page.plotting import BLUE, GRAY, SERIES, new_figure, style_axis
from nsvm_cli.storage.metrics_file import read_metrics, read_times
from nsvm_cli.storage.run_directory import METRICS, TIMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDS = {"step": "steps", "seconds of training": "train_seconds", "support vectors": "support_vectors"}
"""The axes of the curves, and the figure of a result that says where on each its training ended."""

RATIO = 10
"""An axis is logarithmic if the longest curve is so many times as long as the shortest."""

LONGEST = 60
"""Characters of a name that are shown."""

SMALL, LETTER, LINE = 8, 0.075, 0.2
"""A size of letters in points, and about their width, and the height of a line, in inches."""


def figures(rows: Sequence[Comparison], ranks: Ranking | None) -> dict[str, Figure]:
    """Return the figures that apply to a comparison.

    These are ``curves``, if there are several candidates or the runs recorded their score on held-out data;
    and ``ranks``, if there are any.

    Raises:
        InputError: the metrics of a run are damaged.
    """
    drawn = {"curves": curves(rows), "ranks": mean_ranks(ranks) if ranks else None}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def curves(rows: Sequence[Comparison]) -> Figure | None:
    """Return the training curves of the best candidates, one for each colour.

    There is a row for each data set, and a column for each axis. A line is the mean over the seeds, and its
    band reaches from the lowest seed to the highest. A point with a bar is that after training, also of those
    that recorded no curve. None if that is all that there is of a single candidate, or if all runs failed.
    """
    cells = [row.cell for row in sorted(rows, key=lambda row: row.rank) if row.cell.runs]
    names = _best_first(rows)
    colours = dict(zip(names, SERIES, strict=False))
    courses = {(cell.dataset, cell.candidate): (cell, _course(cell)) for cell in cells}
    recorded = any(course.size for _, course in courses.values())
    if len(names) < 2 and not recorded:
        return None
    datasets = sorted({cell.dataset for cell in cells})
    ends = {title: name for title, name in ENDS.items() if any(cell.mean(name) > 0 for cell in cells)}
    width, longest = 0.5 + 3.2 * len(ends), max(len(_shown(name)) for name in colours)
    columns = max(1, int(width / (0.6 + LETTER * longest)))
    with new_figure(width, 0.6 + 2.4 * len(datasets) + LINE * math.ceil(len(colours) / columns)) as figure:
        axes = figure.subplots(len(datasets), len(ends), squeeze=False, sharey="row")
        handles: dict[str, Any] = {}
        for (dataset, (title, name)), axis in zip(product(datasets, ends.items()), axes.flat, strict=True):
            shown = [(*courses[key], key[1]) for n in colours if (key := (dataset, n)) in courses]
            for cell, course, candidate in shown:
                points = course[..., [0, 1 + [*ENDS].index(title)]]
                handles[candidate] = _plot(axis, points, cell, cell.mean(name), colours[candidate])
            _scale(axis, [cell.mean(name) for cell, *_ in shown])
            style_axis(axis, "" if axis not in axes[:, 0] else _shown(dataset))
            axis.set_xlabel(title)
            axis.grid(alpha=0.3)
            if axis in axes[:, 0]:
                unit = shown[0][0].unit
                axis.set_ylabel(f"{cells[0].split} {unit if unit != R2 else f'{R2} (0 if negative)'}")
        words = [f"the best {len(colours)} of {len(names)} settings"] if len(colours) < len(names) else []
        words += ["lines: during training, points: after it" if recorded else "points: after training"]
        words += ["means over the seeds, bands and bars from the lowest seed to the highest"]
        figure.suptitle("; ".join(words), fontsize=SMALL, color=GRAY)
        look: dict[str, Any] = {"loc": "outside lower center", "frameon": False, "fontsize": SMALL}
        labels = [name for name in colours if name in handles]
        figure.legend([handles[name] for name in labels], map(_shown, labels), ncols=columns, **look)
    return figure


def _best_first(rows: Sequence[Comparison]) -> list[str]:
    """Return the candidates that have runs in the order of their mean ranks over the data sets."""
    ranks: dict[str, list[float]] = {}
    for row in rows:
        if row.cell.runs:
            ranks.setdefault(row.cell.candidate, []).append(row.rank)
    return sorted(ranks, key=lambda name: fmean(ranks[name]))


def _course(cell: Cell) -> Float64[np.ndarray, "seeds records 4"]:
    """Return the scores at the steps where all seeds recorded one, each with its places on the axes."""
    name = f"{cell.split}_{'r2' if cell.unit == R2 else 'accuracy'}"
    runs = [_recorded(run.path, name) for run in cell.runs.values()]
    steps = sorted(set.intersection(*map(set, runs)))
    found = np.array([[run[step] for step in steps] for run in runs], dtype=np.float64)
    return found.reshape(len(runs), len(steps), 1 + len(ENDS))


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


def _plot(
    axis: Axes, points: Float64[np.ndarray, "seeds records 2"], cell: Cell, end: float, colour: str
) -> Any:
    """Draw the mean during training with its band, and that after training with its bar."""
    x, scores = points[..., 1].mean(axis=0), points[..., 0]
    axis.plot(x, scores.mean(axis=0), linewidth=1.4, color=colour)
    axis.fill_between(x, scores.min(axis=0), scores.max(axis=0), color=colour, alpha=0.1, linewidth=0)
    final = np.maximum(0.0, [*cell.scores.values()])
    mean = final.mean()
    bar = [[mean - final.min()], [final.max() - mean]]
    return axis.errorbar(end, mean, bar, fmt="o", markersize=4, capsize=2, color=colour)


def _scale(axis: Axes, lengths: Sequence[float]) -> None:
    """Let an axis be logarithmic if the lengths of the curves would not show well on a linear one."""
    lengths = [length for length in lengths if not math.isnan(length)]
    if lengths and max(lengths) > RATIO * min(lengths) > 0:
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter("")


def mean_ranks(ranking: Ranking) -> Figure:
    """Return a critical-difference diagram: the mean ranks, in bars as long as the critical difference.

    Two candidates differ if their bars do not overlap (Nemenyi's test; Demsar, Statistical comparisons of
    classifiers over multiple data sets, 2006).
    """
    names = [f"{_shown(name)}  {rank:.2f}" for name, rank in ranking.ranks.items()]
    with new_figure(5.0 + LETTER * max(map(len, names)), 1.2 + LINE * len(names)) as figure:
        axis = figure.subplots()
        places, half = range(len(names)), ranking.critical / 2
        axis.errorbar([*ranking.ranks.values()], places, xerr=half, fmt="o", capsize=3, color=BLUE)
        axis.set(ylim=(len(names) - 0.5, -0.5), xlabel=f"bars: critical difference, {2 * half:.2f}")
        axis.set_yticks(places, names)
        axis.grid(alpha=0.3)
        style_axis(axis, "")
        caption = f"mean ranks over {ranking.over}; {ranking.test}"
        figure.suptitle(caption, fontsize=SMALL, color=GRAY)
    return figure


def _shown(name: str) -> str:
    """Return both ends of a long name, as settings that differ may stand at either."""
    half = LONGEST // 2
    return name if len(name) <= LONGEST else f"{name[:half]}…{name[-half:]}"
