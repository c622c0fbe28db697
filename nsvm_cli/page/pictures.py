"""Pictures of a trained model: what training made of features and kernel matrix, and what it decides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from nsvm_cli.datasets import Split
from nsvm_cli.errors import RunError
from nsvm_cli.models.nsvm import NSVM
from nsvm_cli.output import shortened
from nsvm_cli.page.document import Picture
from nsvm_cli.page.plotting import BLUE, GRAY, SERIES, new_figure, style_axis, to_svg
from nsvm_cli.page.trained import Trained
from nsvm_cli.tasks import Classification
from nsvm_cli.terminal.confusion import MOST_CLASSES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_POINTS, MOST_IN_MATRIX = 1000, 200
"""The most samples in a picture of points, and in one of a kernel matrix."""

RESOLUTION = 200
"""Points along each side of the plane at which decisions are drawn."""

SIZE = (4.6, 3.9)
"""Inches; a page on a phone is about 4.8 wide."""

MARKERS = "osD^vPX*<>"
"""Classes differ in these too, for those who cannot tell colours apart."""

COLORMAP = "viridis"


def feature_pictures(trained: Trained) -> Iterator[Picture]:
    """Draw held-out samples in the plane of the two principal components of their features.

    Raises:
        RunError: a feature is not finite.
    """
    some = trained.some(MOST_POINTS)
    for stage, model in _stages(trained).items():
        points, share = principal_components(_finite(model.features(some.x)))
        title = f"{stage}: {share:.0%} of the variance"
        with new_figure(*SIZE) as figure:
            axis = figure.subplots()
            style_axis(axis, title, "first principal component", "second principal component")
            axis.set(xticks=[], yticks=[])
            _plot_points(trained, some, points, axis, figure)
        yield Picture(to_svg(figure, f"Features of {len(some)} samples, {title}"))


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


def _finite(values: Tensor) -> Tensor:
    if not values.isfinite().all():
        raise RunError("features or kernel values of these samples are not finite")
    return values


def kernel_pictures(trained: Trained) -> Iterator[Picture]:
    """Draw the kernel matrix of some held-out samples, in the order of their classes or targets.

    Raises:
        RunError: a kernel value is not finite.
    """
    some = trained.some(MOST_IN_MATRIX)
    order = some.y.argsort(stable=True)  # the codes of classes are in their order
    y = some.y[order]
    for stage, model in _stages(trained).items():
        z = model.features(some.x[order])
        K = _finite(model.kernel(z, z)).double().cpu().numpy()
        with new_figure(*SIZE) as figure:
            axis = figure.subplots()
            axis.set_title(stage, loc="left", fontsize=10)
            figure.colorbar(axis.imshow(K, cmap=COLORMAP, interpolation="none"), ax=axis, shrink=0.8)
            axis.set(xticks=[], yticks=[])
            if trained.classifies:
                _separate_classes(trained, y, axis)
        yield Picture(to_svg(figure, f"Kernel matrix of {len(some)} samples, {stage}"))


def _separate_classes(trained: Trained, y: Float[Tensor, " m"], axis: Axes) -> None:
    """Draw lines between the classes of a kernel matrix, and write their names beside it if they are few."""
    for border in (y.diff().nonzero().flatten() + 0.5).tolist():  # pixels have their centres at integers
        axis.axhline(border, color="white", linewidth=0.8)
        axis.axvline(border, color="white", linewidth=0.8)
    if len(trained.model.task.classes) <= MOST_CLASSES:
        present = y.unique().tolist()
        centres = [float((y == label).nonzero().double().mean()) for label in present]
        axis.set_yticks(centres, [*map(trained.label, present)], fontsize=8)


def decision_pictures(trained: Trained) -> Iterator[Picture]:
    """Draw what is decided for each point of the plane, if the data have two features that are numbers.

    Raises:
        RunError: a decision value is not finite.
    """
    columns, some = trained.columns, trained.some(MOST_POINTS)
    if trained.saved.facts.shape != (2,) or columns.numbers != 2:
        return
    low, high = some.x.amin(0), some.x.amax(0)
    margin = 0.05 * torch.where(high > low, high - low, 1.0)
    ends = zip((low - margin).tolist(), (high + margin).tolist(), strict=True)
    across, up = (torch.linspace(*side, RESOLUTION, dtype=torch.float64) for side in ends)
    values = trained.model.decision_function(torch.cartesian_prod(across, up)).cpu().numpy()
    g = values.reshape(RESOLUTION, RESOLUTION, *values.shape[1:]).swapaxes(0, 1)
    with new_figure(*SIZE) as figure:
        axis = figure.subplots()
        extent = (*across[[0, -1]].tolist(), *up[[0, -1]].tolist())
        _plot_decisions(trained, some.y, g, extent, axis)
        if trained.classifies and g.ndim == 2:
            axis.contour(across, up, g, levels=[0.0], colors="black", linewidths=1)
        _plot_points(trained, some, some.x.numpy(), axis, figure, extend="both")
        one, other = map(shortened, columns.names)
        axis.set_xlabel(one, fontsize=8)
        axis.set_ylabel(other, fontsize=8)
    yield Picture(to_svg(figure, "Decisions in the plane of the two features"))


def _plot_decisions(
    trained: Trained,
    y: Float[Tensor, " m"],
    g: Float[np.ndarray, "rows columns *outputs"],
    extent: tuple[float, ...],
    axis: Axes,
) -> None:
    task = trained.model.task
    where: dict[str, Any] = {"extent": extent, "origin": "lower", "aspect": "auto"}
    decided = task.decide(g)
    if isinstance(task, Classification):
        from matplotlib.colors import to_rgba_array

        colours = to_rgba_array(SERIES, 0.3)
        axis.imshow(colours[task.index(decided).astype(int) % len(colours)], interpolation="none", **where)
    else:
        axis.imshow(decided, cmap=COLORMAP, vmin=float(y.min()), vmax=float(y.max()), **where)


def _plot_points(
    trained: Trained,
    some: Split,
    points: Float64[np.ndarray, "m 2"],
    axis: Axes,
    figure: Figure,
    extend: str = "neither",
) -> None:
    """Draw points in the colours of their classes or targets, and those of mistakes in a ring.

    ``extend`` says at which ends the colours may stand for more than the targets: see matplotlib's colorbar.
    """
    task = trained.model.task
    if not isinstance(task, Classification):
        style: dict[str, Any] = {"cmap": COLORMAP, "edgecolors": "black", "linewidths": 0.5}
        drawn = axis.scatter(points[:, 0], points[:, 1], c=some.y.numpy(), s=22, **style)
        figure.colorbar(drawn, ax=axis, label="target", extend=extend)
        return
    index = task.index(some.y).long().numpy()
    for r in np.unique(index):
        marker = MARKERS[(r + r // len(SERIES)) % len(MARKERS)]  # another one the second time round
        style = {"color": SERIES[r % len(SERIES)], "marker": marker, "linestyle": ""}
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


def prediction_picture(trained: Trained) -> Picture:
    """Draw the predictions of real targets against the targets of some held-out samples.

    Raises:
        RunError: a prediction is not finite.
    """
    some = trained.some(MOST_POINTS)
    target, predicted = some.y.numpy(), trained.model.predict(some.x).double().cpu().numpy()
    with new_figure(*SIZE) as figure:
        axis = figure.subplots()
        style_axis(axis, "prediction against target", "target", "prediction")
        axis.axline((target[0], target[0]), slope=1, color=GRAY, linewidth=1)
        axis.plot(target, predicted, "o", color=BLUE, markersize=3.5, alpha=0.7)
        axis.grid(alpha=0.3)
    return Picture(to_svg(figure, f"Prediction against target of {len(some)} samples"))
