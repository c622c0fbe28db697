"""What training made of the features: pictures of them, and of their kernel matrix."""

from __future__ import annotations

from functools import partial
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
from nsvm_cli.page.plotting import SERIES, draw_svg, style_axis
from nsvm_cli.page.trained import Trained
from nsvm_cli.tasks import Classification
from nsvm_cli.terminal.confusion import MOST_CLASSES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_POINTS, MOST_IN_MATRIX = 1000, 200
"""The most samples in a picture of points, and in one of a kernel matrix."""

SIZE = (4.6, 3.9)
"""Inches; a page on a phone is about 4.8 wide."""

MARKERS = "osD^vPX*<>"
"""Classes differ in these too, for those who cannot tell colours apart."""

COLORMAP = "viridis"


def feature_pictures(trained: Trained) -> list[Picture]:
    """Draw held-out samples in the plane of the two principal components of their features.

    Raises:
        RunError: a feature is not finite.
    """
    some, pictures = trained.some(MOST_POINTS), []
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
    plot_points(trained, some, points, axis, figure)


def plot_points(
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


def _plot_matrix(
    trained: Trained, K: Float64[np.ndarray, "m m"], y: Float[Tensor, " m"], title: str, figure: Figure
) -> None:
    axis: Axes = figure.subplots()
    axis.set_title(title, loc="left", fontsize=10)
    drawn = axis.imshow(K, cmap=COLORMAP, interpolation="none")
    figure.colorbar(drawn, ax=axis, shrink=0.8)
    axis.set_xticks([])
    axis.set_yticks([])
    if trained.classifies:
        for border in (y.diff().nonzero().flatten() + 0.5).tolist():  # pixels have their centres at integers
            axis.axhline(border, color="white", linewidth=0.8)
            axis.axvline(border, color="white", linewidth=0.8)
    if trained.classifies and len(trained.model.task.classes) <= MOST_CLASSES:
        present = y.unique().tolist()
        centres = [float((y == label).nonzero().double().mean()) for label in present]
        axis.set_yticks(centres, [*map(trained.label, present)], fontsize=8)
