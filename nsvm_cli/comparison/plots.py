"""Figures of a comparison: training curves with bands over seeds, a heat map, and mean ranks.

Each function returns a matplotlib ``Figure``: ``nsvm_cli.page.plotting.write_figure`` writes it to a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import ceil, isnan
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64

from nsvm_cli.page.plotting import BLUE, GRAY, SERIES, new_figure, style_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLES: Sequence[Mapping[str, Any]] = [
    {"color": colour, "linestyle": dashes, "marker": marker}
    for dashes, marker in (("-", "o"), ((0, (4, 1.5)), "D"))
    for colour in SERIES[:6]
]
"""How curves and the points at their ends are drawn: at most so many."""

RATIO = 10
"""An axis is logarithmic if the longest curve is so many times as long as the shortest."""

LONGEST = 60
"""Characters of a name that are shown."""

SMALL, LETTER, LINE = 8, 0.075, 0.2
"""A size of letters in points, and about their width, and the height of a line, in inches."""

GAP = 5
"""Points between a line and the words beside it."""


@dataclass(frozen=True)
class Course:
    """How the score of a candidate changed during training.

    Attributes:
        at: where the scores were recorded, on each axis by its title: means over the seeds, NaN where it is
            not known.
        scores: those of each seed.
        end: where training ended on each axis.
        final: the scores of each seed then.
    """

    name: str
    at: Mapping[str, Float64[np.ndarray, " records"]]
    scores: Float64[np.ndarray, "seeds records"]
    end: Mapping[str, float]
    final: Float64[np.ndarray, " seeds"]


@dataclass(frozen=True)
class Grid:
    """Scores of the combinations of two settings, NaN where there is none, and the values of these."""

    rows: Sequence[str]
    columns: Sequence[str]
    scores: Float64[np.ndarray, "rows columns"]


def curves(courses: Mapping[str, Sequence[Course]], score: str, about: Sequence[str] = ()) -> Figure:
    """Return the training curves of candidates: a row for each data set, a column for each axis.

    A line is the mean over the seeds, and its band reaches from the lowest seed to the highest. A point with
    a bar is that after training, also of those that recorded no curve.

    Args:
        courses: those of each data set, all with the same axes; of at most ``len(STYLES)`` candidates.
    """
    every = [*chain.from_iterable(courses.values())]
    styles = dict(zip(dict.fromkeys(course.name for course in every), STYLES, strict=False))
    width = 0.5 + 3.2 * len(every[0].at)
    columns = max(1, int(width / (0.6 + LETTER * _longest(styles))))
    height = 0.6 + 2.4 * len(courses) + LINE * ceil(len(styles) / columns)
    return new_figure((width, height), partial(_plot_curves, courses, styles, score, about, columns))


def _plot_curves(
    courses: Mapping[str, Sequence[Course]],
    styles: Mapping[str, Mapping[str, Any]],
    score: str,
    about: Sequence[str],
    columns: int,
    figure: Figure,
) -> None:
    from matplotlib.lines import Line2D

    titles = [*next(chain.from_iterable(courses.values())).at]
    axes = figure.subplots(len(courses), len(titles), squeeze=False, sharey="row")
    alpha = max(0.06, 0.4 / (1 + len(styles)))
    for row, (dataset, those) in zip(axes, courses.items(), strict=True):
        for axis, title in zip(row, titles, strict=True):
            for course in those:
                _plot_course(axis, course, title, styles[course.name], alpha)
            _scale(axis, [course.end[title] for course in those])
            style_axis(axis, _shown(dataset) if axis is row[0] else "")
            axis.set_xlabel(title)
            axis.grid(alpha=0.3)
        row[0].set_ylabel(score)
    recorded = any(course.scores.size for course in chain.from_iterable(courses.values()))
    what = "lines: during training, points: after it" if recorded else "points: after training"
    bands = "bands and bars" if recorded else "bars"
    words = [*about, what, f"means over the seeds, {bands} from the lowest seed to the highest"]
    figure.suptitle("; ".join(words), fontsize=SMALL, color=GRAY)
    width = 1.4 if recorded else 0
    handles = [
        Line2D([], [], linewidth=width, markersize=4, label=_shown(name), **style)
        for name, style in styles.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=SMALL)


def _plot_course(axis: Axes, course: Course, title: str, style: Mapping[str, Any], alpha: float) -> None:
    x, scores, final = course.at[title], course.scores, course.final
    low, high = scores.min(axis=0), scores.max(axis=0)
    axis.plot(x, scores.mean(axis=0), linewidth=1.4, markevery=[], **style)
    axis.fill_between(x, low, high, color=style["color"], alpha=alpha, linewidth=0)
    mean = final.mean()
    ends = [[mean - final.min()], [final.max() - mean]]
    fmt, color = style["marker"], style["color"]
    axis.errorbar(course.end[title], mean, ends, fmt=fmt, markersize=4, capsize=2, color=color)


def _scale(axis: Axes, lengths: Sequence[float]) -> None:
    """Let an axis be logarithmic if the lengths of the curves would not show well on a linear one."""
    from matplotlib.ticker import LogLocator

    lengths = [length for length in lengths if not isnan(length)]
    if max(lengths) > RATIO * min(lengths) > 0:
        axis.set_xscale("log")
        low, high = axis.get_xlim()
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter("")
    else:
        axis.locator_params(axis="x", nbins=5)


def heat_map(grids: Mapping[str, Grid], settings: tuple[str, str], score: str, digits: int) -> Figure:
    """Return the scores of all combinations of two settings, one map below the other for each data set.

    Args:
        grids: those of each data set.
    """
    sides = [LETTER * _longest(grid.rows) for grid in grids.values()]
    cells = [max(0.8, 0.2 + LETTER * _longest(grid.columns)) * len(grid.columns) for grid in grids.values()]
    width = max(4.5, 1.5 + max(sides) + max(cells), LETTER * len(score))
    height = sum(1.0 + 0.4 * len(grid.rows) for grid in grids.values()) + 2 * LINE
    return new_figure((width, height), partial(_plot_grids, grids, settings, score, digits))


def _plot_grids(
    grids: Mapping[str, Grid], settings: tuple[str, str], score: str, digits: int, figure: Figure
) -> None:
    heights = [len(grid.rows) for grid in grids.values()]
    axes = figure.subplots(len(grids), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axis, (dataset, grid) in zip(axes, grids.items(), strict=True):
        image = axis.imshow(grid.scores, aspect="auto", cmap="viridis")
        for (row, column), value in np.ndenumerate(grid.scores):
            if not np.isnan(value):
                color, words = "white" if image.norm(value) < 0.6 else "black", f"{value:.{digits}f}"
                axis.text(column, row, words, ha="center", va="center", fontsize=SMALL, color=color)
        style_axis(axis, _shown(dataset))
        axis.set_yticks(range(len(grid.rows)), [*map(_shown, grid.rows)])
        axis.set_xticks(range(len(grid.columns)), [*map(_shown, grid.columns)])
        axis.set_ylabel(settings[0])
        axis.set_xlabel(settings[1])
    figure.suptitle(score, fontsize=SMALL, color=GRAY)


def mean_ranks(ranks: Mapping[str, float], critical: float, caption: str) -> Figure:
    """Return a critical-difference diagram (Demsar, Statistical comparisons of classifiers over multiple data
    sets, 2006).

    Args:
        ranks: the mean rank of each candidate, the best first.
        critical: the difference from which on two of them differ; a bar joins those that do not.
        caption: what the ranks are means over, and the test.
    """
    width = 5.0 + 2 * LETTER * _longest(ranks)
    groups = groups_within(critical, [*ranks.values()])
    height = 1.4 + LINE * (ceil(len(ranks) / 2) + len(groups) / 2)
    return new_figure((width, height), partial(_plot_ranks, ranks, groups, critical, caption))


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


def _plot_ranks(
    ranks: Mapping[str, float],
    groups: Sequence[tuple[float, float]],
    critical: float,
    caption: str,
    figure: Figure,
) -> None:
    axis, k = figure.subplots(), len(ranks)
    axis.set_xlim(1, k)
    axis.xaxis.tick_top()
    axis.set_xticks(range(1, k + 1, ceil(k / 12)))
    axis.spines[["left", "right", "bottom"]].set_visible(False)
    axis.set_yticks([])
    axis.spines["top"].set_position(("data", 0))
    top = 1 + len(groups) / 2  # in lines below the axis
    axis.set_ylim(-top - ceil(k / 2), 2.5)
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
    figure.suptitle(caption, fontsize=SMALL, color=GRAY)


def _write_beside(axis: Axes, end: tuple[float, float], words: str, left: bool = False) -> None:
    """Write words beside the end of a line, with a gap that is no blank: SVG drops those at either end."""
    gap = (-GAP if left else GAP, 0)
    axis.annotate(
        words,
        end,
        gap,
        textcoords="offset points",
        ha="right" if left else "left",
        va="center",
        fontsize=SMALL,
        annotation_clip=False,
    )


def _longest(names: Iterable[str]) -> int:
    """Return the length of the longest name as it is shown."""
    return max(len(_shown(name)) for name in names)


def _shown(name: str) -> str:
    """Return both ends of a long name, as settings that differ may stand at either."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST // 2]}…{name[-LONGEST // 2 :]}"
