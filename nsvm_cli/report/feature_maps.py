"""What training made of the features: pictures of them, of their kernel matrix, and of what is decided."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from nsvm_cli.datasets import Split
from nsvm_cli.errors import RunError
from nsvm_cli.models.nsvm import NSVM
from nsvm_cli.report.confusion import MOST_CLASSES
from nsvm_cli.report.page import Picture
from nsvm_cli.report.plotting import BLUE, GRAY, shortened, style_axis
from nsvm_cli.report.svg import SERIES, draw_svg
from nsvm_cli.report.trained import Trained
from nsvm_cli.tasks import Classification

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST, MOST_IN_MATRIX = 1000, 200
"""The most samples in a picture of points, and in one of a kernel matrix."""

GRID = 200
"""Points along each side of the grid on which decisions are drawn."""

SIZE = (4.6, 3.9)
"""Inches; a page on a phone is about 4.8 wide."""

MARKERS = "osD^vPX*<>"
"""Classes differ in these too, for those who cannot tell colours apart."""

COLOURS = "viridis"


def feature_pictures(trained: Trained) -> list[Picture]:
    """Draw held-out samples in the plane of the two principal components of their features.

    Raises:
        RunError: a feature is not finite.
    """
    some, pictures = trained.some(MOST), []
    for stage, model in _stages(trained).items():
        points, share = principal_components(_finite(model.features(some.x)))
        title = f"{stage}: {share:.0%} of the variance"
        plot = partial(_plot_features, trained, some, points, title)
        pictures.append(Picture(draw_svg(SIZE, plot, f"Features of {len(some)} samples, {title}")))
    return pictures


def _stages(trained: Trained) -> dict[str, NSVM]:
    """Return the model before and after training; a single one if there is no theta."""
    if trained.before is None:
        return {"the inputs themselves": trained.model}
    return {"before training": trained.before, "after training": trained.model}


def principal_components(z: Float[Tensor, "m n"]) -> tuple[Float64[np.ndarray, "m 2"], float]:
    """Return the first two principal components of features, and the share of the variance that they have.

    They are those of the m x m matrix of inner products, which n does not enlarge.
    """
    z = z.double()
    z = z - z.mean(0)
    z = z / (z.abs().max() or 1.0)
    variances, directions = torch.linalg.eigh(z @ z.mT)
    variances = variances.clamp_min(0)
    points = torch.zeros(len(z), 2, dtype=torch.float64)
    points[:, : min(2, len(z))] = (directions * variances.sqrt()).cpu()[:, -2:].flip(1)
    return points.numpy(), float(variances[-2:].sum() / (variances.sum() or 1.0))


def kernel_pictures(trained: Trained) -> list[Picture]:
    """Draw the kernel matrix of some held-out samples, in the order of their classes or targets.

    Raises:
        RunError: a kernel value is not finite.
    """
    some, pictures = trained.some(MOST_IN_MATRIX), []
    order = some.y.argsort(stable=True)  # the codes of classes are in their order
    for stage, model in _stages(trained).items():
        z = model.features(some.x[order])
        K = _finite(model.kernel(z, z)).double().cpu().numpy()
        plot = partial(_plot_matrix, trained, K, some.y[order], stage)
        pictures.append(Picture(draw_svg(SIZE, plot, f"Kernel matrix of {len(some)} samples, {stage}")))
    return pictures


def decision_pictures(trained: Trained) -> list[Picture]:
    """Draw what is decided for each point of the plane, if the data have two features that are numbers.

    Raises:
        RunError: a decision value is not finite.
    """
    if trained.saved.facts.shape != (2,) or trained.numbers != 2:
        return []
    some = trained.some(MOST)
    low, high = some.x.amin(0), some.x.amax(0)
    margin = 0.05 * torch.where(high > low, high - low, 1.0)
    ends = zip((low - margin).tolist(), (high + margin).tolist(), strict=True)
    sides = [torch.linspace(start, end, GRID) for start, end in ends]
    at = torch.cartesian_prod(*sides).double()
    g = trained.model.decision_function(at).cpu()
    g = g.reshape(GRID, GRID, *g.shape[1:]).transpose(0, 1)
    plot = partial(_plot_decisions, trained, some, sides, g.numpy())
    return [Picture(draw_svg(SIZE, plot, "Decisions in the plane of the two features"))]


def prediction_picture(trained: Trained) -> Picture:
    """Draw the predictions of real targets against the targets of some held-out samples.

    Raises:
        RunError: a prediction is not finite.
    """
    some = trained.some(MOST)
    predicted = trained.model.predict(some.x).double().cpu().numpy()
    label = f"Prediction against target of {len(some)} samples"
    return Picture(draw_svg(SIZE, partial(_plot_predictions, some.y.numpy(), predicted), label))


def _finite(values: Tensor) -> Tensor:
    if not values.isfinite().all():
        raise RunError("features or kernel values of these samples are not finite")
    return values


def _plot_features(
    trained: Trained, some: Split, points: Float64[np.ndarray, "m 2"], title: str, figure: Figure
) -> None:
    axis: Axes = figure.subplots()
    style_axis(axis, title)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_xlabel("first principal component", fontsize=8)
    axis.set_ylabel("second principal component", fontsize=8)
    _plot_points(trained, some, points, axis, figure)


def _plot_points(
    trained: Trained, some: Split, points: Float64[np.ndarray, "m 2"], axis: Axes, figure: Figure
) -> None:
    """Draw points in the colours of their classes or targets, and those of mistakes in a ring."""
    task = trained.model.task
    if not isinstance(task, Classification):
        style: dict[str, Any] = {"cmap": COLOURS, "edgecolors": "black", "linewidths": 0.5}
        drawn = axis.scatter(points[:, 0], points[:, 1], c=some.y.numpy(), s=22, **style)
        figure.colorbar(drawn, ax=axis, label="target")
        return
    index = task.index(some.y).long().numpy()
    for r in np.unique(index):
        style = {"color": [*SERIES][r % len(SERIES)], "marker": MARKERS[r % len(MARKERS)], "linestyle": ""}
        axis.plot(*points[index == r].T, markersize=3.5, label=shortened(task.classes[r]), **style)
    wrong = (trained.model.predict(some.x).cpu() != some.y).numpy()
    if wrong.any():
        ring: dict[str, Any] = {"markerfacecolor": "none", "markeredgecolor": "black", "markersize": 9}
        axis.plot(*points[wrong].T, "o", label="mistake", **ring)
    handles, labels = axis.get_legend_handles_labels()
    if len(labels) <= MOST_CLASSES + 1:
        columns = max(1, min(len(labels), 60 // (max(map(len, labels)) + 5)))
        close: dict[str, Any] = {"frameon": False, "columnspacing": 1.2, "handletextpad": 0.1}
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=8, **close)


def _plot_matrix(
    trained: Trained, K: Float64[np.ndarray, "m m"], y: Float[Tensor, " m"], title: str, figure: Figure
) -> None:
    axis: Axes = figure.subplots()
    axis.set_title(title, loc="left", fontsize=10)
    drawn = axis.imshow(K, cmap=COLOURS, interpolation="none")
    figure.colorbar(drawn, ax=axis, shrink=0.8)
    axis.set_xticks([])
    axis.set_yticks([])
    if trained.classifies and len(trained.model.task.classes) <= MOST_CLASSES:
        present = y.unique().tolist()
        centres = [float((y == label).nonzero().double().mean()) for label in present]
        axis.set_yticks(centres, [*map(trained.label, present)], fontsize=8)


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

        colours = to_rgba_array([*SERIES], 0.3)
        index = task.index(decided).astype(int)
        axis.imshow(colours[index % len(colours)], interpolation="none", **where)
        if g.ndim == 2:
            axis.contour(across, up, g, levels=[0.0], colors="black", linewidths=1)
    else:
        low, high = some.y.aminmax()
        axis.imshow(decided, cmap=COLOURS, alpha=0.6, vmin=float(low), vmax=float(high), **where)
    _plot_points(trained, some, some.x.numpy(), axis, figure)
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
