"""What is decided: pictures of it in the plane of two features, and of predictions against real targets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from nsvm_cli.datasets import Split
from nsvm_cli.output import shortened
from nsvm_cli.page.document import Picture
from nsvm_cli.page.feature_maps import COLORMAP, MOST_POINTS, SIZE, plot_points
from nsvm_cli.page.plotting import BLUE, GRAY, SERIES, draw_svg, style_axis
from nsvm_cli.page.trained import Trained
from nsvm_cli.tasks import Classification

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GRID = 200
"""Points along each side of the grid on which decisions are drawn."""


def decision_pictures(trained: Trained) -> list[Picture]:
    """Draw what is decided for each point of the plane, if the data have two features that are numbers.

    Raises:
        RunError: a decision value is not finite.
    """
    if trained.saved.facts.shape != (2,) or trained.numbers != 2:
        return []
    some = trained.some(MOST_POINTS)
    low, high = some.x.amin(0), some.x.amax(0)
    margin = 0.05 * torch.where(high > low, high - low, 1.0)
    ends = zip((low - margin).tolist(), (high + margin).tolist(), strict=True)
    sides = [torch.linspace(start, end, GRID, dtype=torch.float64) for start, end in ends]
    at = torch.cartesian_prod(*sides)
    g = trained.model.decision_function(at).cpu()
    g = g.reshape(GRID, GRID, *g.shape[1:]).transpose(0, 1)
    plot = partial(_plot_decisions, trained, some, sides, g.numpy())
    return [Picture(draw_svg(SIZE, plot, "Decisions in the plane of the two features"))]


def prediction_picture(trained: Trained) -> Picture:
    """Draw the predictions of real targets against the targets of some held-out samples.

    Raises:
        RunError: a prediction is not finite.
    """
    some = trained.some(MOST_POINTS)
    predicted = trained.model.predict(some.x).double().cpu().numpy()
    label = f"Prediction against target of {len(some)} samples"
    return Picture(draw_svg(SIZE, partial(_plot_predictions, some.y.numpy(), predicted), label))


def _plot_decisions(
    trained: Trained,
    some: Split,
    sides: Sequence[Tensor],
    g: Float[np.ndarray, "rows columns *outputs"],
    figure: Figure,
) -> None:
    axis: Axes = figure.subplots()
    task, (across, up) = trained.model.task, sides
    ends = [*across[[0, -1]].tolist(), *up[[0, -1]].tolist()]
    where: dict[str, Any] = {"extent": ends, "origin": "lower", "aspect": "auto"}
    decided = task.decide(g)
    if isinstance(task, Classification):
        from matplotlib.colors import to_rgba_array

        colours = to_rgba_array(SERIES, 0.3)
        index = task.index(decided).astype(int)
        axis.imshow(colours[index % len(colours)], interpolation="none", **where)
        if g.ndim == 2:
            axis.contour(across, up, g, levels=[0.0], colors="black", linewidths=1)
    else:
        low, high = some.y.aminmax()
        axis.imshow(decided, cmap=COLORMAP, vmin=float(low), vmax=float(high), **where)
    plot_points(trained, some, some.x.numpy(), axis, figure, extend="both")
    one, other = map(shortened, trained.columns)
    axis.set_xlabel(one, fontsize=8)
    axis.set_ylabel(other, fontsize=8)


def _plot_predictions(
    target: Float64[np.ndarray, " m"], predicted: Float64[np.ndarray, " m"], figure: Figure
) -> None:
    axis: Axes = figure.subplots()
    style_axis(axis, "prediction against target")
    axis.axline((target[0], target[0]), slope=1, color=GRAY, linewidth=1)
    axis.plot(target, predicted, "o", color=BLUE, markersize=3.5, alpha=0.7)
    axis.set_xlabel("target", fontsize=8)
    axis.set_ylabel("prediction", fontsize=8)
    axis.grid(alpha=0.3)
