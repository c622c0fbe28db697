"""Plots of the training curves of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from nsvm_cli.config.settings import parse_settings
from nsvm_cli.errors import InputError, message_of
from nsvm_cli.metrics import METRICS
from nsvm_cli.output import flash, say, shortened
from nsvm_cli.page.plotting import BLUE, ORANGE, new_figure, style_axis, write_figure
from nsvm_cli.storage.metrics_file import read_metrics
from nsvm_cli.storage.run_directory import (
    CURVES,
    METRICS_FILE,
    RESULT,
    has_records,
    is_finished,
    read_config,
    read_json,
)
from nsvm_cli.words import Figures, score_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WINDOW = 11
"""Number of records in a moving average."""


@dataclass(frozen=True)
class Curve:
    """A line in a panel. A ``noisy`` line is drawn pale, below its moving average."""

    points: Sequence[tuple[int, float | int]]
    noisy: bool = False
    label: str | None = None
    color: str = BLUE


@dataclass(frozen=True)
class Panel:
    """Curves of one quantity over the steps of one part of the algorithm."""

    title: str
    curves: Sequence[Curve]
    first: int
    last: int


def draw_curves(run: Path) -> Path:
    """Draw the ``metrics.jsonl`` of a run directory, and return the path of the drawing, ``curves.png``."""
    panels, settings = panels_of(run), parse_settings(read_config(run))
    algorithm, dataset = (shortened(str(part["name"]), 25) for part in (settings.algorithm, settings.dataset))
    end = "" if is_finished(run) else ": not finished"
    height = 2.2 * len(panels) + 0.3
    with new_figure(7.0, height) as figure:
        figure.set_layout_engine(None)  # fixed margins halve the time
        figure.subplots_adjust(0.11, 0.5 / height, 0.98, 1 - 0.65 / height, hspace=0.55)
        figure.suptitle(f"{algorithm} on {dataset}, seed {settings.seed}{end}", fontsize=11)
        axes = figure.subplots(len(panels), squeeze=False)[:, 0]
        for axis, panel in zip(axes, panels, strict=True):
            plot_panel(panel, axis)
    return write_figure(run / CURVES, figure)


def draw_missing(directories: Sequence[Path]) -> None:
    """Draw the missing ``curves.png`` of finished runs with ``curves=true``. Errors become warnings."""
    for number, directory in enumerate(directories, 1):
        try:
            is_missing = not (directory / CURVES).exists() and read_config(directory).get("curves")
            if is_missing and has_records(directory):
                flash(f"drawing curves: {number}/{len(directories)}")
                draw_curves(directory)
        except Exception as error:
            say(f"nsvm: warning: the curves could not be drawn: {' '.join(message_of(error).split())}")


def panels_of(run: Path) -> list[Panel]:
    """Return the panels that show the ``metrics.jsonl`` of a run directory.

    Raises:
        InputError: the folder is not a run directory, or its metrics are damaged or still empty.
    """
    file = run / METRICS_FILE
    if not file.is_file():
        raise InputError(f"{run} has no metrics.jsonl: expected a run directory")
    score = score_of(read_json(run / RESULT)) if is_finished(run) else None
    groups = groupby(read_metrics(file), lambda record: int(record.get("part") or 0))
    parts = [(part, [*records]) for part, records in groups]
    panels, first = [], 0
    for part, records in parts:
        prefix, last = f"Part {part}: " if len(parts) > 1 else "", records[-1]["step"]
        for title, curves in _curves(records, score if records is parts[-1][1] else None).items():
            if nonzero := [curve for curve in curves if any(value for _, value in curve.points)]:
                panels.append(Panel(f"{prefix}{title}", nonzero, first, last))
        first = last
    if not panels:
        raise InputError(f"{file} contains nothing to draw yet: expected a record with a nonzero value")
    return panels


def _curves(records: Sequence[Figures], score: tuple[str, str, float] | None) -> dict[str, list[Curve]]:
    """Return the curves of each panel, by title. ``score`` is the final score, drawn as a point."""

    def curve(key: str, unit: int = 1, noisy: bool = False, **style: str) -> Curve:
        points = [(r["step"], unit * r[key]) for r in records if r.get(key) is not None]
        return Curve(points, noisy and len(points) > 2 * WINDOW, **style)

    label = "training samples, before training on them"
    running = curve("running_accuracy", 100, noisy=True, label=label)
    held_out = curve("validation_accuracy", 100, label="validation", color=ORANGE)
    if score and score[1] == "accuracy" and running.points and not held_out.points:
        final = [(records[-1]["step"], 100 * score[2])]
        held_out = Curve(final, label=f"{score[0]}, after training", color=ORANGE)
    return {
        "objective": [curve("objective", noisy=True)],
        "full objective": [curve("full_objective")],
        "duality gap": [curve("duality_gap")],
        "violations, % of the samples drawn": [curve("violation_rate", 100, noisy=True)],
        "support vectors": [curve("support_vectors")],
        "accuracy, %": [running, held_out],
        **{
            f"{f.name.replace('^2', '²')} on validation data": [curve(f"validation_{metric}", color=ORANGE)]
            for metric, f in METRICS.items()
            if metric != "accuracy"
        },
    }


def plot_panel(panel: Panel, axis: Axes) -> None:
    for curve in panel.curves:
        _plot_curve(axis, curve)
    noisy = any(curve.noisy for curve in panel.curves)
    style_axis(axis, panel.title, f"step (thick lines: means of {WINDOW} records)" if noisy else "step")
    axis.set_xlim(panel.first, panel.last + 0.01 * (panel.last - panel.first))
    if any(curve.label for curve in panel.curves):
        axis.legend(frameon=False, fontsize=8, loc="best")


def _plot_curve(axis: Axes, curve: Curve) -> None:
    steps, values = zip(*curve.points, strict=True)
    style: dict[str, Any] = {"color": curve.color, "label": curve.label, "linewidth": 1.2}
    if curve.noisy:
        axis.plot(steps, values, color=curve.color, linewidth=0.7, alpha=0.35)
        # the window is short at first, where curves are steep
        halves = [min(WINDOW // 2, n) for n in range(len(values))]
        means = [mean(values[n - half : n + half + 1]) for n, half in enumerate(halves)]
        axis.plot(steps, means, **style | {"linewidth": 1.6})
    elif len(values) == 1:  # a single point has a marker in the legend, too
        axis.plot(steps, values, "o", **style)
    else:
        axis.plot(steps, values, marker="." if len(values) <= 2 * WINDOW else "", **style)
    if all(isinstance(value, int) for value in values):
        axis.locator_params(axis="y", integer=True)
    usual, largest = median(map(abs, values)), max(map(abs, values))
    if largest > 50 * usual > 0:  # Algorithms 1 and 2 start at 1/lambda
        linear = 10 ** math.ceil(math.log10(usual))
        # a wider linear part, so that labels do not overlap
        axis.set_yscale("symlog", linthresh=linear, linscale=max(1, math.log10(largest / linear) / 3))
        axis.locator_params(axis="y", numticks=5)  # a panel has no room for more ticks
        axis.yaxis.set_major_formatter("{x:g}")
