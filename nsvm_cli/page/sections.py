"""The sections of a report on one run: its result, its model and its settings."""

from __future__ import annotations

import functools
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Real
from torch import Tensor, nn

from nsvm_cli import words
from nsvm_cli.artifacts.diagnosis import diagnose, random_samples
from nsvm_cli.artifacts.prediction import explain
from nsvm_cli.config.settings import flat
from nsvm_cli.datasets import Data, Split
from nsvm_cli.datasets.base import over_blocks
from nsvm_cli.datasets.columns import remarks_on
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.models.nsvm import NSVM
from nsvm_cli.output import saying, shortened
from nsvm_cli.page.curves import panels_of, plot_panel
from nsvm_cli.page.document import Block, Blocks, Images, Picture, Section, Table, left_out, section
from nsvm_cli.page.plotting import BLUE, GRAY, SERIES, new_figure, style_axis, to_picture
from nsvm_cli.runs.open_model import load_trained
from nsvm_cli.storage.run_directory import RESULT, checkpoints_in, damage_errors, has_records, is_finished
from nsvm_cli.tasks import BINARY, Classification, Task
from nsvm_cli.trainers import TRAINERS
from nsvm_cli.words import FEW_CLASSES, Figures, counted

MOST_CHARACTERS, MOST_COLUMNS = 120, 30
"""Maximum number of characters of a value and of columns of a table."""

MOST_POINTS, MOST_HELD_OUT = 1000, 200
"""Maximum number of samples in a scatter plot and in a kernel matrix."""

BINS = 10
"""Number of points of a reliability curve."""

COLUMNS = ("figure", "value", "meaning")
"""The head of a table of metrics and other values."""

SIZE = (4.6, 3.9)
"""The width and height of a plot in inches; a page on a phone is about 4.8 inches wide."""

MARKERS, LINES, COLORMAP = "osD^vPX*<", ("-.", "-", "--"), "viridis"
"""Markers and lines of classes, for readers who cannot distinguish colours, and colours of real values."""

Curves = dict[tuple[str, str, str], tuple[np.ndarray, np.ndarray]]
"""The x and y coordinates of curves, by the title and the labels of both axes."""


def run_sections(
    run: Path, result: Figures, settings: Sequence[Section], runtime: Mapping[str, Any]
) -> list[Section]:
    """Return the sections on a run. ``result`` is empty if the run has not finished."""

    def of_result(make: Callable[[Figures], Blocks]) -> Blocks:
        with damage_errors(run / RESULT):
            yield from make(result) if result else ()

    sections = [
        *section("Result", of_result(_result)),
        *section("Training", _curves(run)),
        *section("Confusion", of_result(confusion_table)),
        *(model_sections(run, runtime) if result or checkpoints_in(run) else []),
        *settings,
        *section("Data and computation", of_result(data_and_computation), folded=True),
    ]
    first = ("Diagnosis", "Result", "Training", "Confusion", "Columns", "Settings")
    return sorted(sections, key=lambda part: [*first, part.title].index(part.title))


def _result(result: Figures) -> Blocks:
    yield words.scores_of(result)
    if sentence := words.baseline_warning(result):
        yield sentence
    elif sentence := words.generalisation(result):
        yield f"Overfitted: {sentence}."
    yield Table("Effects of training", COLUMNS, words.training_rows(result), range(1, 2))


def settings_tables(settings: Mapping[str, Any]) -> list[Block]:
    """Return the settings of a run as tables, one for each part."""
    parts: dict[str, dict[str, Any]] = {}
    for key, value in flat(settings).items():
        parts.setdefault(key.rpartition(".")[0] or "run", {})[key] = value
    return [pairs(part, values) for part, values in parts.items()]


def pairs(caption: str, values: Mapping[str, Any]) -> Table:
    """Return a table with the columns name and value."""
    texts = [value if isinstance(value, str) else json.dumps(value) for value in values.values()]
    names = [key.removeprefix(f"{caption}.") for key in values]
    rows = [(name, shortened(text, MOST_CHARACTERS)) for name, text in zip(names, texts, strict=True)]
    return Table(caption, ("name", "value"), rows)


def _curves(run: Path) -> Blocks:
    if is_finished(run) and not has_records(run):
        return
    drawn: list[Block] = []
    for panel in panels_of(run):
        with new_figure(4.6, 2.5) as figure:
            plot_panel(panel, figure.subplots())
        drawn.append(to_picture(figure, f"{panel.title}, over the steps of training"))
    yield drawn


def confusion_table(result: Figures) -> Blocks:
    """Show the confusion matrix or, for many classes, the most frequent confusions."""
    if "confusion" not in result:
        return
    confusion, split = result["confusion"], words.held_out(result).capitalize()
    names = [shortened(str(name)) for name in result["data"]["classes"]]
    if len(confusion) > FEW_CLASSES:
        head, *rows = words.frequent_cells(result, names)
        yield Table(f"{split} samples: the most frequent confusions", head, rows, range(2, 4))
    else:
        head, *rows = words.matrix_cells(result, names)
        shades = [[*(math.sqrt(count / (sum(row) or 1)) for count in row), 0.0] for row in confusion]
        caption = f"{split} samples: true classes in rows, decisions in columns"
        yield Table(caption, head, rows, range(1, len(head)), shades=shades)


def data_and_computation(result: Figures) -> Blocks:
    """Show metadata of the data set, the software and the hardware."""
    environment = {key: result[key] for key in ("device", "dtype", "engine", "threads")}
    yield [
        pairs("data", flat(result["data"])),
        pairs("computation", environment | flat(result["versions"])),
    ]


def model_sections(run: Path, runtime: Mapping[str, Any]) -> list[Section]:
    """Return the sections on the model of a run."""
    messages: list[str] = []
    try:
        with saying(messages.append):
            model, data = load_trained(run, runtime)
    except (InputError, RunError) as error:
        return [left_out("Model", "The sections on the model are", error)]
    values = functools.cache(lambda: model.decision_function(data.held_out.x).cpu())
    return [
        *section("Model", messages),
        *section("Columns", _columns(data)),
        *section("Diagnosis", _diagnosis(model, data)),
        *section("Predictions", predictions(model, data)),
        *section("ROC and precision-recall", class_curves(model, data, values)),
        *section("Worst mistakes", mistakes(model, data, values)),
        *section("Strongest support vectors", support_vectors(model, data)),
        *section("Kernel matrix", kernel_matrices(model, data)),
        *section("Features", features(model, data)),
    ]


def _columns(data: Data) -> Blocks:
    if data.columns is not None:
        head, *rows = words.column_rows(data.columns)
        texts = [[shortened(cell, MOST_CHARACTERS) for cell in row] for row in rows]
        yield Table("How each column of the table is read", head, texts, range(2, 3))
        yield from remarks_on(data.columns)


def _diagnosis(model: NSVM, data: Data) -> Blocks:
    if TRAINERS[model.settings.algorithm["name"]].trains_svm:
        figures = diagnose(model, data, 1000)  # fewer samples than by default, to be fast
        yield f"{figures['verdict'].capitalize()}: {figures['why']}."
        yield Table("Measurements", COLUMNS, words.diagnosis_rows(figures), range(1, 2))


def mistakes(model: NSVM, data: Data, values: Callable[[], Float[Tensor, " m *outputs"]]) -> Blocks:
    """Show the worst misclassified held-out samples.

    For these samples, the decision value of the predicted class exceeds the decision value of the true class
    by most.
    """
    task, split, name = model.task, data.held_out, data.splits.held_out
    if not isinstance(task, Classification):
        return
    g = values().double()
    true, decided = task.index(split.y).long(), task.index(task.decide(g)).long()
    g = torch.stack([-g, g], 1) if g.ndim == 1 else g
    margin = (g.gather(1, decided[:, None]) - g.gather(1, true[:, None]))[:, 0]
    wrong = (true != decided).nonzero().flatten()
    worst = wrong[margin[wrong].argsort(descending=True, stable=True)][:24]
    if not len(wrong):
        yield f"There are no mistakes: all {len(split)} {name} samples are classified correctly."
        return
    names = [*map(shortened, task.classes)]
    count = f"{len(worst)} of {len(wrong)} mistakes on the {name} set"
    numbers, rows = data.samples.numbers, data.splits.rows[name]
    prefixes = ["" if numbers is None else f"row {numbers[rows[i]]}: " for i in worst]
    texts = [f"{row}{names[true[i]]} → {names[decided[i]]}" for row, i in zip(prefixes, worst, strict=True)]
    yield _samples(model, data, f"The worst {count}: class → decision", split.x[worst], texts)


def _samples(model: NSVM, data: Data, caption: str, x: Iterable[Tensor], texts: Sequence[str]) -> Block:
    """Return samples and their texts as images or as rows of a table."""
    if _are_images(model):
        train = data.splits["train"].x
        bounds = float(over_blocks(train, torch.min).min()), float(over_blocks(train, torch.max).max())
        return Images(caption, [image(*pair, bounds) for pair in zip(x, texts, strict=True)])
    encoder, values = model.metadata.encoder, [sample.flatten().tolist() for sample in x]
    cells = [
        encoder.cells(row) if encoder else {f"feature {j}": f"{value:.10g}" for j, value in enumerate(row, 1)}
        for row in values
    ]
    head = ["", *[*cells[0]][:MOST_COLUMNS]]
    rows = [(text, *[*row.values()][:MOST_COLUMNS]) for text, row in zip(texts, cells, strict=True)]
    return Table(caption, head, rows, range(1, len(head)))


def _are_images(model: NSVM) -> bool:
    shape = model.metadata.shape  # (channels, height, width), grey or in colour
    return len(shape) == 3 and shape[0] in (1, 3)


def image(x: Real[Tensor, "channels height width"], text: str, bounds: tuple[float, float]) -> Picture:
    """Return a sample as a picture that is black at the lower bound and white at the upper bound."""
    from PIL import Image  # slow to import, and not needed for tables

    low, high = bounds
    scaled = (np.moveaxis(x.double().numpy(), 0, -1) - low) / (high - low or 1.0)
    pixels = np.rint(255 * scaled.clip(0, 1)).astype(np.uint8)
    png = io.BytesIO()
    Image.fromarray(pixels.squeeze(-1) if len(x) == 1 else pixels).save(png, "png", optimize=True)
    return Picture(png.getvalue(), text)


def support_vectors(model: NSVM, data: Data) -> Blocks:
    """Explain a few predictions by the support vectors with the largest terms in the decision value."""
    e, task, train = model.expansion, model.task, data.splits["train"]
    if not TRAINERS[model.settings.algorithm["name"]].trains_svm or not len(e.z):
        return
    classifies = isinstance(task, Classification)
    formula = "decision is based on sums" if classifies else "prediction is the mean target plus a sum"
    yield (
        f"A {formula} over the support vectors xⱼ. The terms are proportional to αⱼ yⱼ K(xⱼ, x). For a few "
        "samples x, the support vectors with the largest terms are shown."
    )
    subset = random_samples(data.held_out, 5, model.settings.seed)
    blocks: list[Block] = []
    for x, y, (decided, total, terms) in zip(subset.x, subset.y, explain(model, subset.x), strict=True):
        answer = f"decided {label(task, decided)}" if classifies else f"predicted {decided:.7g}"
        largest = sum(value for value, _ in terms)
        caption = f"{label(task, float(y))}, {answer}: score {total:+.3g}, shown terms {largest:+.3g}"
        texts = [f"{label(task, float(train.y[j]))}: {value:+.3g}" for value, j in terms]
        rows = [x, *(train.x[j] for _, j in terms)]
        blocks.append(_samples(model, data, caption, rows, ["x", *texts]))
    yield from blocks if _are_images(model) else [blocks]


def label(task: Task, y: float) -> str:
    """Return the name of the class with code ``y``, or the real target ``y`` as text."""
    if not isinstance(task, Classification):
        return f"{y:.10g}"
    return shortened(task.classes[int(task.index(torch.tensor(y)))])


def features(model: NSVM, data: Data) -> Blocks:
    """Draw the two principal components of the features of held-out samples."""
    subset, drawn = random_samples(data.held_out, MOST_POINTS, model.settings.seed), list[Block]()
    count = counted(len(subset), len(data.held_out), data.splits.held_out)
    yield f"The plots show the first two principal components of the features of {count}."
    for stage, z in _features(model, subset):
        points, share = principal_components(z)
        title = f"{stage}: {share:.0%} of the variance"
        with new_figure(*SIZE) as figure:
            axis = figure.subplots()
            style_axis(axis, title, "first principal component", "second principal component")
            axis.set(xticks=[], yticks=[])
            if isinstance(task := model.task, Classification):
                index = task.index(subset.y).long().numpy()
                for r in np.unique(index):
                    name, color = shortened(task.classes[r]), SERIES[r % len(SERIES)]
                    across, up = points[index == r].T
                    axis.plot(across, up, MARKERS[r % len(MARKERS)], color=color, markersize=3.5, label=name)
                if len(task.classes) <= FEW_CLASSES:
                    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
            else:
                drawing = axis.scatter(points[:, 0], points[:, 1], c=subset.y.numpy(), s=22, cmap=COLORMAP)
                figure.colorbar(drawing, ax=axis, label="target")
        drawn.append(to_picture(figure, f"Features of {len(subset)} samples, {title}"))
    yield drawn


def _features(model: NSVM, subset: Split) -> Iterator[tuple[str, Float[Tensor, "m n"]]]:
    """Yield titles and the features before and after training or, without a theta, the inputs."""
    initial = {"before training": model.before_training()} if model.parameters else {}
    last = "after training" if initial else "the inputs themselves"
    for stage, staged_model in {**initial, last: model}.items():
        yield stage, staged_model.features(subset.x)


def principal_components(z: Float[Tensor, "m n"]) -> tuple[Float64[np.ndarray, "m 2"], float]:
    """Return the first two principal components, and the fraction of the variance that they explain."""
    z = z.double() - z.double().mean(0)
    U, S, _ = torch.linalg.svd(z, full_matrices=False)
    points = nn.functional.pad(U * S, (0, 1))[:, :2]
    return points.cpu().numpy(), float(S[:2].square().sum() / (S.square().sum() or 1.0))


def kernel_matrices(model: NSVM, data: Data) -> Blocks:
    """Draw the kernel matrix of held-out samples, sorted by class or target."""
    subset, drawn = random_samples(data.held_out, MOST_HELD_OUT, model.settings.seed), list[Block]()
    order = subset.y.argsort(stable=True)  # the codes of classes ascend in the order of the classes
    subset = Split(subset.x[order], subset.y[order])
    count = counted(len(subset), len(data.held_out), data.splits.held_out)
    task, y, classifies = model.task, subset.y, isinstance(model.task, Classification)
    yield f"The plots show the kernel matrix of {count}, sorted by {'class' if classifies else 'target'}."
    for stage, z in _features(model, subset):
        K = model.kernel(z, z).double().cpu().numpy()
        with new_figure(*SIZE) as figure:
            axis = figure.subplots()
            axis.set_title(stage, loc="left", fontsize=10)
            figure.colorbar(axis.imshow(K, cmap=COLORMAP, interpolation="none"), ax=axis, shrink=0.8)
            axis.set(xticks=[], yticks=[])
            for border in (y.diff().nonzero().flatten() + 0.5).tolist() if classifies else ():
                axis.axhline(border, color="white", linewidth=0.8)  # centres of pixels are integers
                axis.axvline(border, color="white", linewidth=0.8)
            if classifies and len(task.classes) <= FEW_CLASSES:
                present = y.unique().tolist()
                centres = [float((y == y_r).nonzero().double().mean()) for y_r in present]
                axis.set_yticks(centres, [label(task, y_r) for y_r in present], fontsize=8)
        drawn.append(to_picture(figure, f"Kernel matrix of {len(subset)} samples, {stage}"))
    yield drawn


def predictions(model: NSVM, data: Data) -> Blocks:
    """Draw predictions of held-out samples against their targets, if the targets are real numbers."""
    if isinstance(model.task, Classification):
        return
    subset = random_samples(data.held_out, MOST_POINTS, model.settings.seed)
    with new_figure(*SIZE) as figure:
        axis = figure.subplots()
        style_axis(axis, "prediction against target", "target", "prediction")
        axis.axline((float(subset.y[0]),) * 2, slope=1, color=GRAY, linewidth=1)
        axis.plot(subset.y, model.predict(subset.x).cpu(), "o", color=BLUE, markersize=3.5, alpha=0.7)
    yield to_picture(figure, f"Prediction against target of {len(subset)} samples")


def class_curves(model: NSVM, data: Data, values: Callable[[], Float[Tensor, " m *outputs"]]) -> Blocks:
    """Draw ROC, precision-recall and reliability curves of each class or, for two classes, of the second."""
    task, y = model.task, data.held_out.y
    if not isinstance(task, Classification):
        return
    if not 2 <= len(y.unique()) <= FEW_CLASSES:
        yield f"These curves are drawn only if held-out samples belong to 2 to {FEW_CLASSES} classes."
        return
    g, curves, rows = values(), dict[int, Curves](), list[list[str]]()
    p = model.probabilities(g)
    for r, (name, positive) in enumerate(task.strata(y.numpy())):
        if positive.any() and (r == 1 or g.ndim == 2):
            g_r, p_r = g[:, r] if g.ndim == 2 else g, None if p is None else p[:, r]
            curves[r], figures = _against_rest(positive, g_r, p_r)
            rows.append([shortened(name), *figures])
    names = ", ".join(row[0] for row in rows)
    subject = f"{names} against the rest of {len(y)} {data.splits.held_out} samples"
    yield (
        f"The curves show {subject}. A dotted line is the share of a class, which is the precision of always "
        "predicting this class."
    )
    if p is not None:
        yield (
            f"Each point of a reliability curve is the mean of {len(y) / BINS:.0f} samples. In the table, p "
            "is the mean predicted probability over all samples."
        )
    drawn = [_draw_curves(task, title, curves, subject) for title in curves[min(curves)]]
    head = ("class", "AUC", "AP", "share", "p")[: len(rows[0])]
    caption = "AUC: area under the ROC curve; AP: average precision; share: fraction of the samples"
    yield [*drawn, Table(caption, head, rows, range(1, 5))]


def _against_rest(positive: np.ndarray, g: Tensor, p: Tensor | None) -> tuple[Curves, list[str]]:
    """Return the curves of a class against the rest, and the class's row of the table.

    The row contains the AUC, the average precision, the share of the class and, if ``p`` holds probabilities,
    their mean.
    """
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


def _draw_curves(task: Task, title: tuple[str, str, str], curves: dict[int, Curves], subject: str) -> Picture:
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
    return to_picture(figure, f"{title[0]} of {subject}")
