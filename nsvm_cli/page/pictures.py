"""Pictures of a trained model: what training made of features and kernel matrix, and what it predicts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from nsvm_cli.datasets import Split
from nsvm_cli.errors import RunError
from nsvm_cli.output import shortened
from nsvm_cli.page.document import Block, Blocks, Note
from nsvm_cli.page.plotting import BLUE, GRAY, SERIES, new_figure, style_axis, to_picture
from nsvm_cli.page.trained import Trained
from nsvm_cli.tasks import Classification
from nsvm_cli.terminal.confusion import MOST_CLASSES
from nsvm_cli.terminal.console import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_POINTS, MOST_ROWS = 1000, 200
"""The most samples in a picture of points, and in one of a kernel matrix."""

SIZE = (4.6, 3.9)
"""Inches; a page on a phone is about 4.8 wide."""

MARKERS, COLORMAP = "osD^vPX*<>", "viridis"
"""Classes have markers for those who cannot tell colours apart."""


def features(trained: Trained) -> Blocks:
    """Draw held-out samples in the plane of the two principal components of their features."""
    some, drawn = trained.some(trained.held_out, MOST_POINTS), list[Block]()
    count = counted(len(some), len(trained.held_out), trained.split)
    ring = "; a ring marks a mistake" if trained.classifies else ""
    yield Note(f"The first two principal components of the features of {count}{ring}.")
    for stage, z in _features(trained, some):
        points, share = principal_components(z)
        title = f"{stage}: {share:.0%} of the variance"
        with new_figure(*SIZE) as figure:
            axis = figure.subplots()
            style_axis(axis, title, "first principal component", "second principal component")
            axis.set(xticks=[], yticks=[])
            _plot_points(trained, some, points, axis, figure)
        drawn.append(to_picture(figure, f"Features of {len(some)} samples, {title}"))
    yield drawn


def _features(trained: Trained, some: Split) -> Iterator[tuple[str, Float[Tensor, "m n"]]]:
    """Yield the features before and after training; those of the inputs if there is no theta."""
    before = {"before training": trained.before} if trained.before else {}
    last = "after training" if before else "the inputs themselves"
    for stage, model in {**before, last: trained.model}.items():
        z = model.features(some.x)
        if not z.isfinite().all():
            raise RunError("features of these samples are not finite")
        yield stage, z


def principal_components(z: Float[Tensor, "m n"]) -> tuple[Float64[np.ndarray, "m 2"], float]:
    """Return the first two principal components of features, and the share of the variance that they have."""
    z = z.double() - z.double().mean(0)
    U, S, _ = torch.linalg.svd(z, full_matrices=False)
    points = nn.functional.pad(U * S, (0, 1))[:, :2]
    return points.cpu().numpy(), float(S[:2].square().sum() / (S.square().sum() or 1.0))


def kernel_matrices(trained: Trained) -> Blocks:
    """Draw the kernel matrix of some held-out samples, in the order of their classes or targets."""
    some, drawn = trained.some(trained.held_out, MOST_ROWS), list[Block]()
    order = some.y.argsort(stable=True)  # the codes of classes are in their order
    some = Split(some.x[order], some.y[order])
    count = counted(len(some), len(trained.held_out), trained.split)
    sorted_by = "classes, with lines between the classes" if trained.classifies else "targets"
    yield Note(f"K on {count}, in the order of their {sorted_by}.")
    for stage, z in _features(trained, some):
        K = trained.model.kernel(z, z).double().cpu().numpy()
        with new_figure(*SIZE) as figure:
            axis = figure.subplots()
            axis.set_title(stage, loc="left", fontsize=10)
            figure.colorbar(axis.imshow(K, cmap=COLORMAP, interpolation="none"), ax=axis, shrink=0.8)
            axis.set(xticks=[], yticks=[])
            if trained.classifies:
                _separate_classes(trained, some.y, axis)
        drawn.append(to_picture(figure, f"Kernel matrix of {len(some)} samples, {stage}"))
    yield drawn


def _separate_classes(trained: Trained, y: Float[Tensor, " m"], axis: Axes) -> None:
    """Draw lines between the classes of a kernel matrix, and write their names beside it if they are few."""
    for border in (y.diff().nonzero().flatten() + 0.5).tolist():  # pixels have their centres at integers
        axis.axhline(border, color="white", linewidth=0.8)
        axis.axvline(border, color="white", linewidth=0.8)
    if len(trained.model.task.classes) <= MOST_CLASSES:
        present = y.unique().tolist()
        centres = [float((y == label).nonzero().double().mean()) for label in present]
        axis.set_yticks(centres, [*map(trained.label, present)], fontsize=8)


def _plot_points(
    trained: Trained, some: Split, points: Float64[np.ndarray, "m 2"], axis: Axes, figure: Figure
) -> None:
    """Plot points in the colours of their classes or targets, and those of mistakes in a ring."""
    task = trained.model.task
    if not isinstance(task, Classification):
        style: dict[str, Any] = {"cmap": COLORMAP, "edgecolors": "black", "linewidths": 0.5}
        drawn = axis.scatter(points[:, 0], points[:, 1], c=some.y.numpy(), s=22, **style)
        figure.colorbar(drawn, ax=axis, label="target")
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


def predictions(trained: Trained) -> Blocks:
    """Draw the predictions of real targets against the targets of some held-out samples."""
    if trained.classifies:
        return
    some = trained.some(trained.held_out, MOST_POINTS)
    with new_figure(*SIZE) as figure:
        axis = figure.subplots()
        style_axis(axis, "prediction against target", "target", "prediction")
        axis.axline((float(some.y[0]),) * 2, slope=1, color=GRAY, linewidth=1)
        axis.plot(some.y, trained.model.predict(some.x).cpu(), "o", color=BLUE, markersize=3.5, alpha=0.7)
        axis.grid(alpha=0.3)
    yield to_picture(figure, f"Prediction against target of {len(some)} samples")
