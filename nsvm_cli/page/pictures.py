"""Pictures of a trained model: what training made of features and kernel matrix, and what it predicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from nsvm_cli.artifacts.diagnosis import some_of
from nsvm_cli.datasets import Data, Split
from nsvm_cli.errors import RunError
from nsvm_cli.models.nsvm import NSVM
from nsvm_cli.output import shortened
from nsvm_cli.page.document import Block, Blocks, Picture, Table
from nsvm_cli.page.plotting import BLUE, GRAY, SERIES, new_figure, style_axis, to_picture
from nsvm_cli.tasks import BINARY, Classification, Task
from nsvm_cli.words import FEW_CLASSES, counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS, MOST_ROWS, BINS = 1000, 200, 10
"""The most samples in a picture of points, and in one of a kernel matrix; the points of reliability."""

SIZE = (4.6, 3.9)
"""Inches; a page on a phone is about 4.8 wide."""

MARKERS, LINES, COLORMAP = "osD^vPX*<", ("-.", "-", "--"), "viridis"
"""Classes have markers or lines for those who cannot tell colours apart, fewer than there are colours."""

Curves = dict[tuple[str, str, str], tuple[np.ndarray, np.ndarray]]
"""The points of curves, across and up, by the title and the names of both directions."""


def label(task: Task, y: float) -> str:
    """Return a label, as the data have it, in words."""
    if not isinstance(task, Classification):
        return f"{y:.10g}"
    return shortened(task.classes[int(task.index(torch.tensor(y)))])


def features(model: NSVM, data: Data) -> Blocks:
    """Draw held-out samples in the plane of the two principal components of their features."""
    some, drawn = some_of(data.held_out, MOST_POINTS, model.settings.seed), list[Block]()
    count = counted(len(some), len(data.held_out), data.splits.held_out)
    yield f"The first two principal components of the features of {count}."
    for stage, z in _features(model, some):
        points, share = principal_components(z)
        title = f"{stage}: {share:.0%} of the variance"
        with new_figure(*SIZE) as figure:
            axis = figure.subplots()
            style_axis(axis, title, "first principal component", "second principal component")
            axis.set(xticks=[], yticks=[])
            _plot_points(model.task, some.y, points, axis)
        drawn.append(to_picture(figure, f"Features of {len(some)} samples, {title}"))
    yield drawn


def _features(model: NSVM, some: Split) -> Iterator[tuple[str, Float[Tensor, "m n"]]]:
    """Yield the features before and after training; those of the inputs if there is no theta."""
    before = {"before training": model.before_training()} if model.parameters else {}
    last = "after training" if before else "the inputs themselves"
    for stage, each in {**before, last: model}.items():
        z = each.features(some.x)
        if not z.isfinite().all():
            raise RunError("features of these samples are not finite")
        yield stage, z


def principal_components(z: Float[Tensor, "m n"]) -> tuple[Float64[np.ndarray, "m 2"], float]:
    """Return the first two principal components of features, and the share of the variance that they have."""
    z = z.double() - z.double().mean(0)
    U, S, _ = torch.linalg.svd(z, full_matrices=False)
    points = nn.functional.pad(U * S, (0, 1))[:, :2]
    return points.cpu().numpy(), float(S[:2].square().sum() / (S.square().sum() or 1.0))


def kernel_matrices(model: NSVM, data: Data) -> Blocks:
    """Draw the kernel matrix of some held-out samples, in the order of their classes or targets."""
    some, drawn = some_of(data.held_out, MOST_ROWS, model.settings.seed), list[Block]()
    order = some.y.argsort(stable=True)  # the codes of classes are in their order
    some = Split(some.x[order], some.y[order])
    count = counted(len(some), len(data.held_out), data.splits.held_out)
    kind = "classes" if isinstance(model.task, Classification) else "targets"
    yield f"K on {count}, in the order of their {kind}."
    for stage, z in _features(model, some):
        K = model.kernel(z, z).double().cpu().numpy()
        with new_figure(*SIZE) as figure:
            axis = figure.subplots()
            axis.set_title(stage, loc="left", fontsize=10)
            figure.colorbar(axis.imshow(K, cmap=COLORMAP, interpolation="none"), ax=axis, shrink=0.8)
            axis.set(xticks=[], yticks=[])
            if isinstance(model.task, Classification):
                _separate_classes(model.task, some.y, axis)
        drawn.append(to_picture(figure, f"Kernel matrix of {len(some)} samples, {stage}"))
    yield drawn


def _separate_classes(task: Task, y: Float[Tensor, " m"], axis: Axes) -> None:
    """Draw lines between the classes of a kernel matrix, and write their names beside it if they are few."""
    for border in (y.diff().nonzero().flatten() + 0.5).tolist():  # pixels have their centres at integers
        axis.axhline(border, color="white", linewidth=0.8)
        axis.axvline(border, color="white", linewidth=0.8)
    if len(task.classes) <= FEW_CLASSES:
        present = y.unique().tolist()
        centres = [float((y == y_r).nonzero().double().mean()) for y_r in present]
        axis.set_yticks(centres, [label(task, y_r) for y_r in present], fontsize=8)


def _plot_points(task: Task, y: Float[Tensor, " m"], points: Float64[np.ndarray, "m 2"], axis: Axes) -> None:
    """Plot points in the colours of their targets, or in those and the markers of their classes."""
    if not isinstance(task, Classification):
        drawn = axis.scatter(points[:, 0], points[:, 1], c=y.numpy(), s=22, cmap=COLORMAP)
        axis.figure.colorbar(drawn, ax=axis, label="target")
        return
    index = task.index(y).long().numpy()
    for r in np.unique(index):
        color, marker, name = SERIES[r % len(SERIES)], MARKERS[r % len(MARKERS)], shortened(task.classes[r])
        axis.plot(*points[index == r].T, marker, color=color, markersize=3.5, label=name)
    if len(task.classes) <= FEW_CLASSES:
        axis.figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)


def predictions(model: NSVM, data: Data) -> Blocks:
    """Draw the predictions of real targets against the targets of some held-out samples."""
    if isinstance(model.task, Classification):
        return
    some = some_of(data.held_out, MOST_POINTS, model.settings.seed)
    with new_figure(*SIZE) as figure:
        axis = figure.subplots()
        style_axis(axis, "prediction against target", "target", "prediction")
        axis.axline((float(some.y[0]),) * 2, slope=1, color=GRAY, linewidth=1)
        axis.plot(some.y, model.predict(some.x).cpu(), "o", color=BLUE, markersize=3.5, alpha=0.7)
    yield to_picture(figure, f"Prediction against target of {len(some)} samples")


def class_curves(model: NSVM, data: Data, values: Callable[[], Float[Tensor, " m *outputs"]]) -> Blocks:
    """Draw how decision values of held-out samples tell the second of two classes, or each, from the rest."""
    task, y = model.task, data.held_out.y
    if not isinstance(task, Classification):
        return
    if not 2 <= len(y.unique()) <= FEW_CLASSES:
        yield f"These curves are drawn where held-out samples are of 2 to {FEW_CLASSES} classes."
        return
    g, curves, rows = values(), dict[int, Curves](), list[list[str]]()
    p = model.probabilities(g)
    for r, (name, positive) in enumerate(task.strata(y.numpy())):
        if positive.any() and (r == 1 or g.ndim == 2):
            g_r, p_r = g[:, r] if g.ndim == 2 else g, None if p is None else p[:, r]
            curves[r], figures = _against_rest(positive, g_r, p_r)
            rows.append([shortened(name), *figures])
    what = f"{', '.join(row[0] for row in rows)} against the rest of {len(y)} {data.splits.held_out} samples"
    yield f"Curves of {what}. Dotted is the share of a class: the precision of always deciding for it."
    if p is not None:
        yield f"A point of reliability is for {len(y) / BINS:.0f} samples; p is the mean probability of all."
    drawn = [_draw_curves(task, title, curves, what) for title in curves[min(curves)]]
    head = ("class", "AUC", "AP", "share", "p")[: len(rows[0])]
    yield [*drawn, Table("AUC is that of ROC, AP the average precision", head, rows, range(1, 5))]


def _against_rest(positive: np.ndarray, g: Tensor, p: Tensor | None) -> tuple[Curves, list[str]]:
    """Return the curves of a class against the rest, and the figures that go with them."""
    from sklearn import calibration, metrics  # slow to import

    fpr, tpr, _ = metrics.roc_curve(positive, g.numpy())
    precision, recall, _ = metrics.precision_recall_curve(positive, g.numpy())
    curves: Curves = {
        ("ROC", "false positive rate", "recall"): (fpr, tpr),
        ("Precision-recall", "recall", "precision"): (recall, precision),
    }
    areas = BINARY.rank_scores(positive, g.numpy()).values()
    figures = [*map("{:.4f}".format, areas), f"{100 * positive.mean():.3g} %"]
    if p is not None:
        share, mean = calibration.calibration_curve(positive, p.numpy(), n_bins=BINS, strategy="quantile")
        curves["Reliability", "mean predicted probability", "observed share"] = mean, share
        figures.append(f"{100 * float(p.mean()):.3g} %")
    return curves, figures


def _draw_curves(task: Task, title: tuple[str, str, str], curves: dict[int, Curves], what: str) -> Picture:
    with new_figure(3.9, 3.5) as figure:
        axis = figure.subplots()
        style_axis(axis, *title)
        if title[0] != "Precision-recall":
            axis.axline((0, 0), slope=1, color=GRAY, linewidth=1)
        for r, of_class in curves.items():
            (across, up), color = of_class[title], SERIES[r % len(SERIES)]
            line = "." * (title[0] == "Reliability") + LINES[r % len(LINES)]
            axis.plot(across, up, line, color=color, label=shortened(task.classes[r]))
            if title[0] == "Precision-recall":
                axis.axhline(up[0], color=color, linewidth=1, linestyle=":")
        top = max(axis.get_xlim()[1], axis.get_ylim()[1])
        axis.set(xlim=(-0.05 * top, top), ylim=(-0.05 * top, top))
        figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return to_picture(figure, f"{title[0]} of {what}")
