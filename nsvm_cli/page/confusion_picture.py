"""A picture of the confusion matrix of a run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from nsvm_cli.output import shortened
from nsvm_cli.page.plotting import draw, style_axis
from nsvm_cli.storage.run_directory import CONFUSION, read_result
from nsvm_cli.terminal.confusion import MOST_CLASSES
from nsvm_cli.terminal.console import held_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_NAMES = 100
"""The most classes that have their names beside the matrix."""

DARK = 0.3
"""The share of a class from which its colour is too dark for black text."""


def draw_confusion(run: Path) -> Path | None:
    """Draw the confusion matrix of a finished run as ``confusion.png``, and return its path.

    None is returned, and nothing drawn, if the result has none: that of real targets, or of too many classes.

    Raises:
        InputError: the result cannot be read.
    """
    result = read_result(run)
    if "confusion" not in result:
        return None
    counts, names = np.array(result["confusion"]), [shortened(name) for name in result["data"]["classes"]]
    cell = 0.5 if len(names) <= MOST_CLASSES else 0.16
    side = max(2.0, cell * min(len(names), MOST_NAMES))
    of_name = 0.08 * max(map(len, names))
    size = (side + of_name + 1.7, side + of_name + 0.8)
    draw(run / CONFUSION, size, partial(_plot, counts, names, held_out(result)))
    return run / CONFUSION


def _plot(counts: Int[np.ndarray, "C C"], names: Sequence[str], split: str, figure: Figure) -> None:
    from matplotlib.colors import PowerNorm

    axis: Axes = figure.subplots()
    style_axis(axis, f"confusion on the {split} set")
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    # as square roots, so that the few samples off the diagonal are seen
    drawn = axis.imshow(shares, cmap="Blues", norm=PowerNorm(0.5, 0, 1), interpolation="none")
    few = len(names) <= MOST_CLASSES
    if few:
        for i, j in np.argwhere(counts):
            color = "white" if shares[i, j] > DARK else "black"
            axis.text(j, i, str(counts[i, j]), ha="center", va="center", fontsize=8, color=color)
    labels = [*names] if len(names) <= MOST_NAMES else []
    upright = not few or max(map(len, names)) > 5
    axis.set_xticks(range(len(labels)), labels, fontsize=8 if few else 7, rotation=90 if upright else 0)
    axis.set_yticks(range(len(labels)), labels, fontsize=8 if few else 7)
    axis.set_xlabel("decision", fontsize=8)
    axis.set_ylabel("class", fontsize=8)
    bar = figure.colorbar(drawn, ticks=[0, 0.01, 0.05, 0.2, 0.5, 1], format="{x:.0%}")
    bar.set_label("share of the class", fontsize=8)
    bar.ax.tick_params(labelsize=7)
