"""Pictures: the training curves of a run, and the results of a reproduction."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from nsvm_cli.errors import InputError
from nsvm_cli.run_directory import write_atomically
from nsvm_cli.summary import PAPER, PEERS, Summary

BLUE, GRAY = "#1f5fa8", "#777777"
COLOURS = {
    "nsvm": BLUE,
    "svc_on_features": "#6aaed6",
    "network": "#d98032",
    "svc": "#3f8f4f",
    "bayes": GRAY,
}


def draw_curves(run: Path) -> Path:
    """Writes ``curves.png`` into a run directory, from its ``metrics.jsonl``.

    Raises:
        InputError: it is not the directory of a run.
    """
    file = run / "metrics.jsonl"
    if not file.is_file():
        raise InputError(f"{run} has no metrics.jsonl: expected the directory of a run")
    records = [json.loads(line) for line in file.read_text().splitlines()]
    if not records:
        raise InputError(f"{file} is empty: this run has nothing to draw yet")
    write_atomically(run / "curves.png", _png(_curves(records, run.name)))
    return run / "curves.png"


def _curves(records: Sequence[Mapping[str, Any]], title: str) -> Figure:
    panels = {
        "objective": _series(records, "objective"),
        "violations per step": _rates(records),
        "support vectors": _series(records, "support_vectors"),
        "validation accuracy, %": [(t, 100 * v) for t, v in _series(records, "validation_accuracy")],
    }
    shown = {name: points for name, points in panels.items() if points}
    figure = Figure(figsize=(7, 1.9 * len(shown) + 0.6), layout="constrained")
    figure.suptitle(title, fontsize=9, color=GRAY)
    axes: list[Axes] = list(figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0])
    for axis, (name, points) in zip(axes, shown.items(), strict=True):
        steps, values = zip(*points, strict=True)
        axis.plot(steps, values, color=BLUE, linewidth=1.2, marker="." if len(points) == 1 else "")
        usual = median(abs(value) for value in values)
        if max(abs(value) for value in values) > 50 * usual > 0:  # Algorithms 1 and 2 begin at 1/lambda
            axis.set_yscale("symlog", linthresh=usual)
        _tidy(axis, name)
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel("step")
    return figure


def _series(records: Sequence[Mapping[str, Any]], key: str) -> list[tuple[int, float]]:
    return [(r["step"], r[key]) for r in records if r.get(key) is not None]


def _rates(records: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
    """Violations per step between two records, at the later one."""
    ends = [{"step": 0, "violations": 0}, *records]
    return [
        (b["step"], (b["violations"] - a["violations"]) / (b["step"] - a["step"])) for a, b in pairwise(ends)
    ]


def draw_results(summaries: Sequence[Summary], full: bool, file: Path) -> None:
    """Every cell and its peers: seeds as dots, means with their intervals, the paper's figures."""
    units = list(dict.fromkeys(s.unit for s in summaries))
    figure = Figure(figsize=(9, 3.6 * len(units)), layout="constrained")
    axes: list[Axes] = list(figure.subplots(len(units), 1, squeeze=False)[:, 0])
    for axis, unit in zip(axes, units, strict=True):
        _draw_unit(axis, [s for s in summaries if s.unit == unit], full)
        _tidy(axis, unit)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    write_atomically(file, _png(figure))


def _draw_unit(axis: Axes, summaries: Sequence[Summary], full: bool) -> None:
    cells = list(dict.fromkeys(s.cell for s in summaries))
    methods = [m for m in COLOURS if any(s.method == m for s in summaries)]
    names = {"nsvm": "neural SVM", **PEERS}
    width = 0.8 / len(methods)
    for s in summaries:
        x, n = cells.index(s.cell), methods.index(s.method)
        at = x + (n + 0.5) * width - 0.4
        spread = [at + width * (k / max(1, len(s.scores) - 1) - 0.5) / 2 for k in range(len(s.scores))]
        axis.plot(spread, s.scores, ".", color=COLOURS[s.method], alpha=0.35, markersize=4)
        known = not math.isnan(s.score.low)
        error = [[s.score.mean - s.score.low], [s.score.high - s.score.mean]] if known else None
        label = names[s.method] if x == 0 else ""
        axis.errorbar(
            at, s.score.mean, error, fmt="o", color=COLOURS[s.method], label=label, markersize=5, capsize=3
        )
    for x, cell in enumerate(cells if full else []):
        label = "paper, one run" if x == 0 else ""
        axis.hlines(PAPER[cell], x - 0.42, x + 0.42, "black", "dashed", linewidth=1, label=label)
    axis.set_xticks(range(len(cells)), cells)
    axis.grid(alpha=0.3, axis="y")


def _tidy(axis: Axes, title: str) -> None:
    axis.set_title(title, loc="left", fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()
