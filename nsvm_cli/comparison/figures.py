"""Figures of a comparison: training curves with bands over seeds, and mean ranks.

Each is a matplotlib ``Figure``: ``nsvm_cli.page.plotting.write_figure`` writes it to a file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64

from nsvm_cli.comparison.cells import Cell
from nsvm_cli.comparison.compare import Comparison, Ranking
from nsvm_cli.comparison.intervals import PERCENT, R2
from nsvm_cli.page.plotting import BLUE, GRAY, SERIES, new_figure, style_axis
from nsvm_cli.storage.metrics_file import read_metrics, read_times
from nsvm_cli.storage.run_directory import METRICS, TIMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METRIC_TITLES = {PERCENT: ("accuracy", "accuracy, %"), R2: ("r2", "R²\n(0 where it is negative)")}
"""The metric of a score and what it is called, by the unit of the comparison."""

ENDS = {"step": "steps", "seconds of training": "train_seconds", "support vectors": "support_vectors"}
"""The axes of the curves, and the figure of a result that says where on each its training ended."""

STYLES: Sequence[Mapping[str, Any]] = [
    {"color": colour, "linestyle": dashes, "marker": marker}
    for dashes, marker in (("-", "o"), ((0, (4, 1.5)), "D"))
    for colour in SERIES[:6]
]
"""How curves and the points at their ends are drawn: at most so many."""

RATIO = 10
"""An axis is logarithmic if the longest curve is so many times as long as the shortest."""

MAX_NAME_LENGTH = 60
"""Characters of a name that are shown."""

SMALL, LETTER, LINE = 8, 0.075, 0.2
"""A size of letters in points, and about their width, and the height of a line, in inches."""

GAP = 5
"""Points between a line and the words beside it."""


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
    """Return the training curves of the best candidates, as many as can be told apart.

    There is a row for each data set, and a column for each axis. A line is the mean over the seeds, and its
    band reaches from the lowest seed to the highest. A point with a bar is that after training, also of those
    that recorded no curve. None if that is all that there is of a single candidate, or if all runs failed.
    """
    rows = [row for row in rows if row.cell.runs]
    names = _best_first(rows)
    styles = dict(zip(names, STYLES, strict=False))
    cells = [row.cell for row in rows if row.cell.candidate in styles]
    cells.sort(key=lambda cell: (cell.dataset, names.index(cell.candidate)))
    grouped = groupby(cells, lambda cell: cell.dataset)
    by_dataset = [[(cell, _course(cell)) for cell in group] for _, group in grouped]
    recorded = any(course.size for row in by_dataset for _, course in row)
    if len(names) < 2 and not recorded:
        return None
    ends = {title: name for title, name in ENDS.items() if any(cell.mean(name) > 0 for cell in cells)}
    width, alpha = 0.5 + 3.2 * len(ends), max(0.06, 0.4 / (1 + len(styles)))
    columns = max(1, int(width / (0.6 + LETTER * _longest(styles))))
    height = 0.6 + 2.4 * len(by_dataset) + LINE * math.ceil(len(styles) / columns)
    with new_figure(width, height) as figure:
        axes = figure.subplots(len(by_dataset), len(ends), squeeze=False, sharey="row")
        for row, courses in zip(axes, by_dataset, strict=True):
            for axis, (title, name) in zip(row, ends.items(), strict=True):
                for cell, course in courses:
                    points = course[..., [0, 1 + [*ENDS].index(title)]]
                    _plot_course(axis, points, styles[cell.candidate], alpha)
                    _plot_end(axis, cell.mean(name), cell, styles[cell.candidate])
                _scale(axis, [cell.mean(name) for cell, _ in courses])
                style_axis(axis, _shown(courses[0][0].dataset) if axis is row[0] else "")
                axis.set_xlabel(title)
                axis.grid(alpha=0.3)
            row[0].set_ylabel(f"{cells[0].split} {METRIC_TITLES[cells[0].scores.unit][1]}")
        words = [f"the best {len(styles)} of {len(names)} settings"] if len(styles) < len(names) else []
        words += ["lines: during training, points: after it" if recorded else "points: after training"]
        bands = "bands and bars" if recorded else "bars"
        words += [f"means over the seeds, {bands} from the lowest seed to the highest"]
        figure.suptitle("; ".join(words), fontsize=SMALL, color=GRAY)
        _add_legend(figure, styles, columns, 1.4 if recorded else 0.0)
    return figure


def _best_first(rows: Sequence[Comparison]) -> list[str]:
    """Return the candidates in the order of their mean ranks over the data sets."""
    ranks: dict[str, list[float]] = {}
    for row in rows:
        ranks.setdefault(row.cell.candidate, []).append(row.rank)
    return sorted(ranks, key=lambda name: fmean(ranks[name]))


def _course(cell: Cell) -> Float64[np.ndarray, "seeds records 4"]:
    """Return the scores at the steps where all seeds recorded one, each with its places on the axes."""
    name = f"{cell.split}_{METRIC_TITLES[cell.scores.unit][0]}"
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


def _plot_course(
    axis: Axes, points: Float64[np.ndarray, "seeds records 2"], style: Mapping[str, Any], alpha: float
) -> None:
    x, scores = points[..., 1].mean(axis=0), points[..., 0]
    axis.plot(x, scores.mean(axis=0), linewidth=1.4, markevery=[], **style)
    low, high = scores.min(axis=0), scores.max(axis=0)
    axis.fill_between(x, low, high, color=style["color"], alpha=alpha, linewidth=0)


def _plot_end(axis: Axes, x: float, cell: Cell, style: Mapping[str, Any]) -> None:
    final = np.maximum(0.0, cell.scores.each)
    mean, fmt, color = final.mean(), style["marker"], style["color"]
    bar = [[mean - final.min()], [final.max() - mean]]
    axis.errorbar(x, mean, bar, fmt=fmt, markersize=4, capsize=2, color=color)


def _add_legend(
    figure: Figure, styles: Mapping[str, Mapping[str, Any]], columns: int, linewidth: float
) -> None:
    from matplotlib.lines import Line2D

    look: dict[str, Any] = {"linewidth": linewidth, "markersize": 4}
    handles = [Line2D([], [], label=_shown(name), **look, **style) for name, style in styles.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=SMALL)


def _scale(axis: Axes, lengths: Sequence[float]) -> None:
    """Let an axis be logarithmic if the lengths of the curves would not show well on a linear one."""
    from matplotlib.ticker import LogLocator

    lengths = [length for length in lengths if not math.isnan(length)]
    if max(lengths) > RATIO * min(lengths) > 0:
        axis.set_xscale("log")
        low, high = axis.get_xlim()
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter("")
    else:
        axis.locator_params(axis="x", nbins=5)


def mean_ranks(ranking: Ranking) -> Figure:
    """Return a critical-difference diagram (Demsar, Statistical comparisons of classifiers over multiple data
    sets, 2006): a bar joins candidates whose mean ranks differ by less than the critical difference.
    """
    ranks, critical = ranking.ranks, ranking.critical
    groups, k = groups_within(critical, [*ranks.values()]), len(ranks)
    top = 1 + len(groups) / 2  # in lines below the axis
    height = 1.4 + LINE * (math.ceil(k / 2) + len(groups) / 2)
    with new_figure(5.0 + 2 * LETTER * _longest(ranks), height) as figure:
        axis = figure.subplots()
        axis.set(xlim=(1, k), ylim=(-top - math.ceil(k / 2), 2.5), yticks=[])
        axis.xaxis.tick_top()
        axis.set_xticks(range(1, k + 1, math.ceil(k / 12)))
        axis.spines[["left", "right", "bottom"]].set_visible(False)
        axis.spines["top"].set_position(("data", 0))
        axis.plot([1, 1 + critical], [2, 2], color="black", marker="|", clip_on=False)
        _write_beside(axis, (1 + critical, 2.0), f"critical difference {critical:.2f}")
        for n, (low, high) in enumerate(groups):
            axis.plot([low, high], [-0.5 - n / 2] * 2, color=BLUE, linewidth=4, solid_capstyle="butt")
        for n, (name, rank) in enumerate(ranks.items()):
            left = n < k / 2
            y, edge = -top - (n if left else k - 1 - n), (1 - 0.02 * k if left else 1.02 * k)
            axis.plot([rank, rank, edge], [0, y, y], color="black", linewidth=0.8, clip_on=False)
            words = f"{_shown(name)}  {rank:.2f}" if left else f"{rank:.2f}  {_shown(name)}"
            _write_beside(axis, (edge, y), words, left)
        caption = f"mean ranks over {ranking.over}; {ranking.test}"
        figure.suptitle(caption, fontsize=SMALL, color=GRAY)
    return figure


def groups_within(critical: float, ranks: Sequence[float]) -> list[tuple[float, float]]:
    """Return the ends of the largest groups of ascending ranks that all differ by less than the critical
    difference.
    """
    groups: list[tuple[float, float]] = []
    for first in ranks:
        last = max(rank for rank in ranks if rank - first < critical)
        if last > first and (not groups or last > groups[-1][1]):
            groups.append((first, last))
    return groups


def _write_beside(axis: Axes, end: tuple[float, float], words: str, left: bool = False) -> None:
    """Write words beside the end of a line, with a gap that is no blank: SVG drops those at either end."""
    gap, side = (-GAP if left else GAP, 0), "right" if left else "left"
    look: dict[str, Any] = {"ha": side, "va": "center", "fontsize": SMALL, "annotation_clip": False}
    axis.annotate(words, end, gap, textcoords="offset points", **look)


def _longest(names: Iterable[str]) -> int:
    """Return the length of the longest name as it is shown."""
    return max(len(_shown(name)) for name in names)


def _shown(name: str) -> str:
    """Return both ends of a long name, as settings that differ may stand at either."""
    half = MAX_NAME_LENGTH // 2
    return name if len(name) <= MAX_NAME_LENGTH else f"{name[:half]}…{name[-half:]}"
