"""A picture of the confusion matrix of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from nsvm_cli.output import shortened
from nsvm_cli.page.plotting import new_figure, style_axis, write_figure
from nsvm_cli.storage.run_directory import CONFUSION, read_result
from nsvm_cli.terminal.confusion import MOST_CLASSES
from nsvm_cli.terminal.console import held_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

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
    few = len(names) <= MOST_CLASSES
    side = max(2.0, (0.5 if few else 0.16) * min(len(names), MOST_NAMES))
    of_name = 0.08 * max(map(len, names))
    with new_figure(side + of_name + 1.7, side + of_name + 0.8) as figure:
        axis = figure.subplots()
        style_axis(axis, f"confusion on the {held_out(result)} set", "decision", "class")
        drawn = _plot(counts, axis, few)
        labels, size = names if len(names) <= MOST_NAMES else [], 8 if few else 7
        upright = not few or max(map(len, names)) > 5
        axis.set_xticks(range(len(labels)), labels, fontsize=size, rotation=90 if upright else 0)
        axis.set_yticks(range(len(labels)), labels, fontsize=size)
        bar = figure.colorbar(drawn, ticks=[0, 0.01, 0.05, 0.2, 0.5, 1], format="{x:.0%}")
        bar.set_label("share of the class", fontsize=8)
        bar.ax.tick_params(labelsize=7)
    return write_figure(run / CONFUSION, figure)


def _plot(counts: Int[np.ndarray, "C C"], axis: Axes, few: bool) -> AxesImage:
    """Draw the shares of the classes, and their counts if the classes are few."""
    from matplotlib.colors import PowerNorm

    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    for i, j in np.argwhere(counts) if few else ():
        color = "white" if shares[i, j] > DARK else "black"
        axis.text(j, i, str(counts[i, j]), ha="center", va="center", fontsize=8, color=color)
    # as square roots, so that the few samples off the diagonal are seen
    return axis.imshow(shares, cmap="Blues", norm=PowerNorm(0.5, 0, 1), interpolation="none")
