"""Plots of the training curves of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from nsvm_cli.config.settings import parse_settings
from nsvm_cli.errors import InputError
from nsvm_cli.output import shortened
from nsvm_cli.page.plotting import BLUE, GRAY, ORANGE, new_figure, style_axis, write_figure
from nsvm_cli.storage.metrics_file import read_metrics
from nsvm_cli.storage.run_directory import (
    CURVES,
    METRICS,
    RESULT,
    is_finished,
    read_config,
    read_result,
    reading,
)
from nsvm_cli.terminal.console import percent, score_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Records = Sequence[Mapping[str, Any]]
Points = Sequence[tuple[int, float | int]]

WINDOW = 11
"""Records in the moving average over a noisy curve."""

MARKED_POINTS = 2 * WINDOW
"""Points of a curve that are drawn as they are, and marked."""

LOG_TICKS = 5
"""About as many labels as a panel with a logarithmic axis has room for."""


@dataclass(frozen=True)
class Curve:
    """A line in a panel; a ``noisy`` one is drawn pale, with its moving average."""

    points: Points
    noisy: bool = False
    label: str | None = None
    color: str = BLUE


@dataclass(frozen=True)
class Panel:
    """Curves of one quantity over the steps of one part of the algorithm."""

    title: str
    curves: Sequence[Curve]
    first: int = 0
    last: int = field(kw_only=True)


def draw_curves(run: Path) -> Path:
    """Draw the ``metrics.jsonl`` of a run directory as ``curves.png``, and return its path.

    Raises:
        InputError: it is not the directory of a run, or its metrics are damaged or there are none yet.
    """
    panels = panels_of(run)
    title = _title(run)
    with new_figure(7.0, 1.9 * len(panels) + 0.6) as figure:
        plot_panels(panels, title, figure)
    return write_figure(run / CURVES, figure)


def panels_of(run: Path) -> list[Panel]:
    """Return what there is to draw of the ``metrics.jsonl`` of a run directory.

    Raises:
        InputError: it is not the directory of a run, or its metrics are damaged or there are none yet.
    """
    with reading(run / RESULT):
        score = score_of(read_result(run)) if is_finished(run) else None
        end = (score[0], 100 * float(score[2])) if score and score[1] == "accuracy" else None
    if not (panels := _panels(_records(run), end)):
        raise InputError(f"{run / METRICS} holds nothing but zeros: expected a record of later steps")
    return panels


def _records(run: Path) -> list[dict[str, Any]]:
    file = run / METRICS
    if not file.is_file():
        raise InputError(f"{run} has no metrics.jsonl: expected the directory of a run")
    records = read_metrics(file)
    if not records:
        raise InputError(f"{file} is empty: expected a run with at least one record")
    return records


def _title(run: Path) -> str:
    """Return what was trained and, once it is finished, its score."""
    settings = parse_settings(read_config(run))
    algorithm, dataset = (shortened(str(part["name"]), 25) for part in (settings.algorithm, settings.dataset))
    title = f"{algorithm} on {dataset}, seed {settings.seed}"
    if not is_finished(run):
        return f"{title}: not finished"
    with reading(run / RESULT):
        if (score := score_of(read_result(run))) is None:  # R^2 is undefined
            return title
        split, metric, value = score
        return f"{title}: {SCORE_TITLES[metric](value)}{'' if split == 'test' else ' (validation)'}"


SCORE_TITLES: Mapping[str, Callable[[float], str]] = {"accuracy": percent, "r2": "R² = {:.4f}".format}
"""How the metric of a task is written in a title."""


def _panels(records: Records, end: tuple[str, float] | None) -> list[Panel]:
    """Return the panels of each part of the algorithm, over the steps of that part.

    Args:
        end: the split that the model was evaluated on after the last step, and its accuracy there.
    """
    ordered = sorted(records, key=_part)  # a file of others may have them mixed
    parts = [(part, list(of_part)) for part, of_part in groupby(ordered, _part)]
    panels, first = [], 0
    for part, of_part in parts:
        prefix, last = f"Part {part}: " if len(parts) > 1 else "", of_part[-1]["step"]
        at_end = end if of_part is parts[-1][1] else None
        for title, curves in _curves(of_part, at_end).items():
            shown = [curve for curve in curves if any(value for _, value in curve.points)]
            if shown:
                panels.append(Panel(f"{prefix}{title}", shown, first, last=last))
        first = last
    return panels


def _part(record: Mapping[str, Any]) -> int:
    return int(record.get("part") or 0)


def _curves(records: Records, end: tuple[str, float] | None) -> dict[str, list[Curve]]:
    """Return the curves of each panel; those without a value other than 0 are not shown."""
    rates, running = (_percent(records, key) for key in ("violation_rate", "running_accuracy"))
    validation, last = _percent(records, "validation_accuracy"), records[-1]["step"]
    held_out = Curve(validation, label="validation", color=ORANGE)
    if end is not None and running and not validation:
        split, accuracy = end
        held_out = Curve([(last, accuracy)], label=f"{split}, after training", color=ORANGE)
    return {
        "objective": [Curve(_series(records, "objective"), noisy=True)],
        "full objective": [Curve(_series(records, "full_objective"))],
        "violations, % of the samples drawn": [Curve(rates, noisy=True)],
        "support vectors": [Curve(_series(records, "support_vectors"))],
        "accuracy, %": [
            Curve(running, noisy=True, label="training samples, before they are learnt"),
            held_out,
        ],
        "R² on validation data": [Curve(_series(records, "validation_r2"), color=ORANGE)],
    }


def _series(records: Records, key: str) -> Points:
    return [(r["step"], r[key]) for r in records if r.get(key) is not None]


def _percent(records: Records, key: str) -> Points:
    return [(step, 100 * value) for step, value in _series(records, key)]


def plot_panels(panels: Sequence[Panel], title: str, figure: Figure) -> None:
    """Plot panels one below the other."""
    figure.suptitle(title, fontsize=11)
    axes: list[Axes] = list(figure.subplots(len(panels), 1, squeeze=False)[:, 0])
    for n, (axis, panel) in enumerate(zip(axes, panels, strict=True)):
        for curve in panel.curves:
            _plot_curve(axis, curve)
        style_axis(axis, panel.title)
        axis.set_xlim(panel.first, panel.last + 0.01 * (panel.last - panel.first))
        axis.grid(alpha=0.3)
        if panel is panels[-1] or panels[n + 1].first != panel.first:
            axis.set_xlabel("step")
        else:
            axis.tick_params(labelbottom=False)
        if any(curve.label for curve in panel.curves):
            axis.legend(frameon=False, fontsize=8, loc="best")
    if any(curve.noisy and len(curve.points) > MARKED_POINTS for panel in panels for curve in panel.curves):
        figure.supxlabel(f"thick: the mean of {WINDOW} records around each", fontsize=8, color=GRAY)


def _plot_curve(axis: Axes, curve: Curve) -> None:
    steps, values = zip(*curve.points, strict=True)
    marker = "o" if len(values) == 1 else "." if len(values) <= MARKED_POINTS else ""
    if curve.noisy and len(values) > MARKED_POINTS:
        axis.plot(steps, values, color=curve.color, linewidth=0.7, alpha=0.35)
        axis.plot(steps, moving_mean(values), color=curve.color, linewidth=1.6, label=curve.label)
    else:
        width = 1.2 if len(values) > 1 else 0.0  # a point has no line in the legend either
        axis.plot(steps, values, color=curve.color, linewidth=width, marker=marker, label=curve.label)
    if all(isinstance(value, int) for value in values):
        axis.locator_params(axis="y", integer=True)
    sizes = [abs(value) for value in values]
    usual, largest = median(sizes), max(sizes)
    if largest > 50 * usual > 0:  # Algorithms 1 and 2 start at 1/lambda
        linear = 10 ** math.ceil(math.log10(usual))
        # the more decades, the wider the linear part, whose labels would overlap otherwise
        axis.set_yscale("symlog", linthresh=linear, linscale=max(1, math.log10(largest / linear) / 3))
        locator: Any = axis.yaxis.get_major_locator()
        locator.set_params(numticks=LOG_TICKS)
        axis.yaxis.set_major_formatter("{x:g}")


def moving_mean(values: Sequence[float]) -> list[float]:
    """Return the mean of ``WINDOW`` values around each, and of fewer near the ends.

    The first ones have as many values on both sides, so that a steep start is not averaged away.
    """
    halves = [min(WINDOW // 2, n) for n in range(len(values))]
    return [mean(values[n - half : n + half + 1]) for n, half in enumerate(halves)]
