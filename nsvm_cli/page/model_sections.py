"""The sections of a report that show a trained model at work on its data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nsvm_cli.errors import InputError, RunError
from nsvm_cli.output import shortened
from nsvm_cli.page.diagnosis import diagnose
from nsvm_cli.page.document import Blocks, Grid, Image, Images, Note, Section, Table, left_out, section
from nsvm_cli.page.mistakes import which, worst_mistakes
from nsvm_cli.page.pictures import (
    MOST_IN_MATRIX,
    MOST_POINTS,
    decision_pictures,
    feature_pictures,
    kernel_pictures,
    prediction_picture,
)
from nsvm_cli.page.support_vectors import Prediction, predictions
from nsvm_cli.page.trained import Trained, load_trained, records_of
from nsvm_cli.tasks import Classification
from nsvm_cli.terminal.console import counted
from nsvm_cli.terminal.diagnosis import diagnosis_facts

MOST_ROWS = 12
"""The most samples in a table."""

MOST_IN_DIAGNOSIS = 1000
"""The most samples of a split that a diagnosis is based on, so that it takes no longer than the rest."""

SUBSCRIPTS = "₁₂₃₄₅₆"

Samples = Sequence[tuple[Sequence[str], np.ndarray]]
"""What a table says of samples before the cells of their columns, and the samples."""


def model_sections(run: Path, runtime: Mapping[str, Any]) -> list[Section]:
    """Return what there is to show of the model of a run; see ``load_trained``."""
    about: list[str] = []
    try:
        trained = load_trained(run, runtime, about.append)
    except (InputError, RunError) as error:
        return [left_out("Model", "Mistakes, support vectors, kernel matrix and features are", error)]
    parts: dict[str, Callable[[Trained], Blocks]] = {
        "Diagnosis": partial(_diagnosis, run),
        "Predictions": _predictions,
        "Worst mistakes": _mistakes,
        "Strongest support vectors": _support_vectors,
        "Kernel matrix": _kernel,
        "Features": _features,
        "Decisions": decision_pictures,
    }
    sections = [part for title, make in parts.items() for part in section(title, partial(make, trained))]
    return [*([Section("Model", [Note(line) for line in about])] if about else []), *sections]


def _diagnosis(run: Path, trained: Trained) -> Blocks:
    if trained.algorithm.trains_svm:
        figures = diagnose(trained, records_of(run), MOST_IN_DIAGNOSIS)
        yield Note(f"{figures['verdict'].capitalize()}: {figures['why']}.")
        yield Table("A look inside", ("figure", "value", "meaning"), diagnosis_facts(figures), range(1, 2))


def _predictions(trained: Trained) -> Blocks:
    if not trained.classifies:
        yield prediction_picture(trained)


def _mistakes(trained: Trained) -> Blocks:
    task, split = trained.model.task, trained.held_out
    if not isinstance(task, Classification):
        yield from _worst_predictions(trained)
        return
    mistakes, count = worst_mistakes(trained.model, task, split)
    shown = mistakes if trained.are_images else mistakes[:MOST_ROWS]
    caption = f"{which(len(shown), count).capitalize()} on the {trained.split} set"
    named = [(f"{shortened(one.true)} → {shortened(one.decided)}", one.sample) for one in shown]
    if not mistakes:
        yield Note(f"There are none: all {len(split)} {trained.split} samples are decided rightly.")
    elif trained.are_images:
        images = [Image(trained.image(x), name) for name, x in named]
        yield Images(f"{caption}: class → decision", images)
    else:
        yield _table(trained, caption, ["class → decision"], [([name], x) for name, x in named])
        yield from _about_cells(trained)


def _worst_predictions(trained: Trained) -> Blocks:
    split = trained.held_out
    predicted = trained.model.predict(split.x).cpu()
    worst = (predicted - split.y).abs().argsort(descending=True, stable=True)[:MOST_ROWS]
    rows = []
    for i in worst:
        y, decided = float(split.y[i]), float(predicted[i])
        rows.append(([trained.label(y), f"{decided:.7g}", f"{decided - y:+.4g}"], split.x[i].numpy()))
    caption = f"The {len(rows)} predictions on the {trained.split} set that are furthest from their targets"
    yield _table(trained, caption, ["target", "prediction", "error"], rows, numbers=range(3))
    yield from _about_cells(trained)


def _table(
    trained: Trained, caption: str, head: Sequence[str], samples: Samples, numbers: Iterable[int] = ()
) -> Table:
    columns = trained.columns
    lines = [(*said, *columns.cells(x.flatten())) for said, x in samples]
    more = range(len(head), len(head) + columns.numbers)
    return Table(caption, (*head, *columns.names), lines, {*numbers, *more})


def _about_cells(trained: Trained) -> Blocks:
    if trained.columns.fills_cells:
        yield Note(
            "An empty cell of numbers shows the median of its column, which the model takes in its place."
        )


def _support_vectors(trained: Trained) -> Blocks:
    if not trained.algorithm.trains_svm:
        return
    if not len(trained.model.expansion.z):
        yield Note("There are none.")
        return
    found = predictions(trained)
    what = (
        "A decision follows from sums" if trained.classifies else "A prediction is the mean target plus a sum"
    )
    yield Note(
        f"{what} over the support vectors xⱼ with terms proportional to αⱼ yⱼ K(xⱼ, x). For a few samples x, "
        "these are the xⱼ with the largest terms."
    )
    if trained.are_images:
        yield from (_term_images(trained, prediction) for prediction in found)
    else:
        yield Grid([_term_table(trained, prediction) for prediction in found])
        yield from _about_cells(trained)


def _caption(trained: Trained, prediction: Prediction) -> str:
    decided = f"predicted {prediction.decided:.7g}"
    if trained.classifies:
        decided = f"decided {trained.label(prediction.decided)}"
    shown, count = sum(value for value, _ in prediction.terms), len(trained.model.expansion.z)
    bias = " and the bias" if torch.as_tensor(trained.model.expansion.bias).any() else ""
    score = f"score {prediction.total:+.3g}, the sum of all {count} terms{bias}"
    return f"{trained.label(prediction.y)}, {decided}: {score}; these add up to {shown:+.3g}"


def _term_images(trained: Trained, prediction: Prediction) -> Images:
    train = trained.data.splits["train"]
    images = [Image(trained.image(prediction.x.numpy()), "x")]
    for value, row in prediction.terms:
        label = trained.label(float(train.y[row]))
        images.append(Image(trained.image(train.x[row].numpy()), f"{label}: {value:+.3g}"))
    return Images(_caption(trained, prediction), images, first=True)


def _term_table(trained: Trained, prediction: Prediction) -> Table:
    train, label = trained.data.splits["train"], "class" if trained.classifies else "target"
    rows = [(["x", "", trained.label(prediction.y)], prediction.x.numpy())]
    for n, (value, row) in enumerate(prediction.terms):
        said = [f"x{SUBSCRIPTS[n]}", f"{value:+.3g}", trained.label(float(train.y[row]))]
        rows.append((said, train.x[row].numpy()))
    return _table(trained, _caption(trained, prediction), ["", "term", label], rows, numbers=[1])


def _kernel(trained: Trained) -> Blocks:
    order = "classes" if trained.classifies else "targets"
    borders = ", with lines between the classes" if trained.classifies else ""
    yield Note(f"K on {_some(trained, MOST_IN_MATRIX)}, in the order of their {order}{borders}.")
    yield Grid([*kernel_pictures(trained)])


def _features(trained: Trained) -> Blocks:
    ring = "; a ring marks a mistake" if trained.classifies else ""
    some = _some(trained, MOST_POINTS)
    yield Note(f"The first two principal components of the features of {some}{ring}.")
    yield Grid([*feature_pictures(trained)])


def _some(trained: Trained, most: int) -> str:
    return counted(most, len(trained.held_out), trained.split)
