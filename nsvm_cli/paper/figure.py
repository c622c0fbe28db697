"""A plot of the results of a reproduction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsvm_cli.page.plotting import BLUE, GRAY, new_figure, style_axis, write_figure
from nsvm_cli.paper.statistics import PAPER, Group, Summary, groups

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

COLOURS = {
    "nsvm": BLUE,
    "svc_on_features": "#6aaed6",
    "frozen": "#8a6bbd",
    "network": "#d98032",
    "svc": "#3f8f4f",
    "svc_tuned": "#3f8f4f",
    "boosting": "#b8860b",
    "bayes": GRAY,
}


def draw_results(summaries: Sequence[Summary], full: bool, file: Path) -> None:
    """Draw every cell and its baselines: seeds as dots, means with their intervals, the paper's figures.

    Each row has the data sets of a table side by side.
    """
    rows = [_by_dataset(group) for group in groups(summaries)]
    handles: dict[str, Artist] = {}
    with new_figure(9.0, 3.6 * len(rows)) as figure:
        grid = figure.add_gridspec(len(rows), 1)
        for row, parts in enumerate(rows):
            places = grid[row].subgridspec(1, len(parts), width_ratios=[len(part.cells) for part in parts])
            for column, part in enumerate(parts):
                axis = figure.add_subplot(places[column])
                _draw_group(axis, part, full)
                style_axis(axis, part.unit)
                of_axis, labels = axis.get_legend_handles_labels()
                handles |= zip(labels, of_axis, strict=True)
        below: dict[str, Any] = {"loc": "outside lower center", "ncols": 3, "frameon": False}
        figure.legend(handles.values(), handles.keys(), fontsize=9, **below)
    write_figure(file, figure)


def _by_dataset(group: Group) -> list[Group]:
    parts: dict[str, Group] = {}
    for cell, by_method in group.cells.items():
        dataset = by_method["nsvm"].dataset
        parts.setdefault(dataset, Group(group.unit, {})).cells[cell] = by_method
    return [*parts.values()]


def _draw_group(axis: Axes, group: Group, full: bool) -> None:
    cells, methods = [*group.cells], ["nsvm", *group.baselines]
    summaries = [s for by_method in group.cells.values() for s in by_method.values()]
    papers = {cell: PAPER[cell] for cell in cells if full and cell in PAPER}
    axis.set_ylim(limits := _limits(summaries, [*papers.values()]))
    width = 0.8 / len(methods)
    for s in summaries:
        x, n = cells.index(s.cell), methods.index(s.method)
        at = x + (n + 0.5) * width - 0.4
        each = s.scores.each
        spread = [at + width * (k / max(1, len(each) - 1) - 0.5) / 2 for k in range(len(each))]
        axis.plot(spread, each, ".", color=COLOURS[s.method], alpha=0.35, markersize=4)
        known = not math.isnan(s.score.low)
        error = [[s.score.mean - s.score.low], [s.score.high - s.score.mean]] if known else None
        style: dict[str, Any] = {
            "color": COLOURS[s.method],
            "label": group.name(s.method),
            "markersize": 5,
        }
        axis.errorbar(at, s.score.mean, error, fmt="o", capsize=3, **style)
        _point_outside(axis, s, at, limits)
    for cell, score in papers.items():
        ends = (cells.index(cell) - 0.42, cells.index(cell) + 0.42)
        axis.hlines(score, *ends, "black", "dashed", linewidth=1, label="paper, one run")
    axis.set_xticks(range(len(cells)), cells)
    axis.grid(alpha=0.3, axis="y")


def _limits(summaries: Sequence[Summary], papers: Sequence[float]) -> tuple[float, float]:
    """Return the ends of the vertical axis, which are those of all scores but of frozen features.

    These may be so much worse that they would leave no room for the differences between the others. The
    intervals of very few seeds may extend beyond the ends too.
    """
    scores = [score for s in summaries if s.method != "frozen" for score in s.scores.each] + [*papers]
    room = 0.08 * (max(scores) - min(scores)) or 1.0
    return min(scores) - room, max(scores) + room


def _point_outside(axis: Axes, s: Summary, at: float, limits: tuple[float, float]) -> None:
    """Write a mean at the edge that it lies beyond, if it does."""
    low, high = limits
    shown = f"{s.score.mean:.{s.score.digits // 2}f}"
    if s.score.mean < low:
        axis.annotate(f"↓ {shown}", (at, low), va="bottom", ha="center", color=COLOURS[s.method])
    elif s.score.mean > high:
        axis.annotate(f"↑ {shown}", (at, high), va="top", ha="center", color=COLOURS[s.method])
