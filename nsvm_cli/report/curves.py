"""Plots of the training curves of a run."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from nsvm_cli.errors import InputError
from nsvm_cli.storage.files import read_regular, write_atomically
from nsvm_cli.storage.metrics_file import METRICS_BYTES
from nsvm_cli.storage.run_directory import CURVES

BLUE, GRAY = "#1f5fa8", "#777777"


WINDOW = 10
NOISY = ("objective", "violations per step")
"""Curves of single samples or batches, which are drawn with a moving average over ``WINDOW`` records."""


def draw_curves(run: Path) -> Path:
    """Draw the ``metrics.jsonl`` of a run directory as ``curves.png``, and return its path.

    Raises:
        InputError: it is not the directory of a run, or there are no metrics yet.
    """
    file = run / "metrics.jsonl"
    if not file.is_file():
        raise InputError(f"{run} has no metrics.jsonl: expected the directory of a run")
    try:
        whole_lines, _, _ = read_regular(file, METRICS_BYTES).decode().rpartition("\n")
    except ValueError as error:
        raise InputError(f"{file} cannot be read: {error}") from None
    records = [json.loads(line) for line in whole_lines.splitlines()]
    if not records:
        raise InputError(f"{file} is empty: expected a run with at least one record")
    write_atomically(run / CURVES, png(_curves(records, run.name)))
    return run / CURVES


def _curves(records: Sequence[Mapping[str, Any]], title: str) -> Figure:
    panels = {
        "objective": _series(records, "objective"),
        "violations per step": _rates(records),
        "support vectors": _series(records, "support_vectors"),
        "validation accuracy, %": [(t, 100 * v) for t, v in _series(records, "validation_accuracy")],
    }
    shown = {name: points for name, points in panels.items() if any(value for _, value in points)}
    figure = Figure(figsize=(7, 1.9 * len(shown) + 0.6), layout="constrained")
    figure.suptitle(title, fontsize=9, color=GRAY)
    axes: list[Axes] = list(figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0])
    for axis, (name, points) in zip(axes, shown.items(), strict=True):
        steps, values = zip(*points, strict=True)
        marker = "." if len(points) < WINDOW else ""
        if name in NOISY and len(points) > 2 * WINDOW:
            axis.plot(steps, values, color=BLUE, linewidth=0.7, alpha=0.35)
            axis.plot(steps[WINDOW - 1 :], moving_mean(values), color=BLUE, linewidth=1.6)
            name += f" (dark: mean of {WINDOW} records)"
        else:
            axis.plot(steps, values, color=BLUE, linewidth=1.2, marker=marker)
        usual = median(abs(value) for value in values)
        if max(abs(value) for value in values) > 50 * usual > 0:  # Algorithms 1 and 2 start at 1/lambda
            axis.set_yscale("symlog", linthresh=usual)
        style_axis(axis, name)
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel("step")
    return figure


def moving_mean(values: Sequence[float]) -> list[float]:
    """Return the means of every ``WINDOW`` consecutive values."""
    return [mean(values[n - WINDOW : n]) for n in range(WINDOW, len(values) + 1)]


def _series(records: Sequence[Mapping[str, Any]], key: str) -> list[tuple[int, float | int]]:
    return [(r["step"], r[key]) for r in records if r.get(key) is not None]


def _rates(records: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
    """Return the violations per step between each two records, at the later one."""
    ends = [{"step": 0, "violations": 0}, *records]
    return [
        (b["step"], (b["violations"] - a["violations"]) / (b["step"] - a["step"])) for a, b in pairwise(ends)
    ]


def style_axis(axis: Axes, title: str) -> None:
    """Apply the common style of all plots to an axis."""
    axis.set_title(title, loc="left", fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)


def png(figure: Figure) -> bytes:
    """Return a figure as the content of a PNG file."""
    buffer = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()
