"""The sections of a report on one run."""

from __future__ import annotations

import functools
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Real
from torch import Tensor

from nsvm_cli import words
from nsvm_cli.artifacts.diagnosis import diagnose, some_of
from nsvm_cli.artifacts.prediction import explain
from nsvm_cli.config.settings import flat
from nsvm_cli.datasets import Data
from nsvm_cli.datasets.columns import remarks_on
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.models.nsvm import NSVM
from nsvm_cli.output import shortened
from nsvm_cli.page import pictures
from nsvm_cli.page.curves import panels_of, plot_panel
from nsvm_cli.page.document import Block, Blocks, Images, Picture, Section, Table, left_out, section
from nsvm_cli.page.plotting import new_figure, to_picture
from nsvm_cli.runs.open_model import load_trained
from nsvm_cli.storage.run_directory import RESULT, checkpoints_in, has_records, is_finished, reading
from nsvm_cli.tasks import Classification
from nsvm_cli.trainers import TRAINERS
from nsvm_cli.words import Figures

MOST_CHARACTERS, MOST_COLUMNS, MOST_MISTAKES, EXPLAINED, MOST_IN_DIAGNOSIS = 120, 30, 24, 5, 1000
"""The most characters of a value, cells of a sample in a table, mistakes, and predictions explained that
are shown; and the most samples of a split for a diagnosis, so that it takes no longer than the rest."""

FIGURES = ("figure", "value", "meaning")
"""The head of a table of figures."""


FIRST = ("Diagnosis", "Result", "Training", "Confusion", "Columns", "Settings")
"""What a report of a run begins with."""


def run_sections(
    run: Path, result: Figures, settings: Sequence[Section], runtime: Mapping[str, Any]
) -> list[Section]:
    """Return what there is to show of a run: settings and curves, its model once it has a checkpoint, and
    its result, which is empty before it has finished. For ``runtime`` see ``load_trained``.
    """

    def of_result(make: Callable[[Figures], Blocks]) -> Blocks:
        with reading(run / RESULT):
            yield from make(result) if result else ()

    sections = [
        *section("Result", of_result(_result)),
        *section("Training", _curves(run)),
        *section("Confusion", of_result(confusion_table)),
        *(model_sections(run, runtime) if result or checkpoints_in(run) else []),
        *settings,
        *section("Data and computation", of_result(data_and_computation), folded=True),
    ]
    return sorted(sections, key=lambda part: [*FIRST, part.title].index(part.title))


def _result(result: Figures) -> Blocks:
    yield words.scores_of(result)
    if sentence := words.no_better(result):
        yield sentence
    elif sentence := words.generalisation(result):
        yield f"Overfitted: {sentence}."
    yield Table("What training did", FIGURES, words.training_rows(result), range(1, 2))


def settings_tables(settings: Mapping[str, Any]) -> list[Block]:
    """Return the settings of a run, a table for each part."""
    parts: dict[str, dict[str, Any]] = {}
    for key, value in flat(settings).items():
        parts.setdefault(key.rpartition(".")[0] or "run", {})[key] = value
    return [pairs(part, values) for part, values in parts.items()]


def pairs(caption: str, values: Mapping[str, Any]) -> Table:
    """Return values of a JSON file as a table of two columns."""
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
    """Show which classes were taken for which: all of them, or of many classes the most frequent."""
    if "confusion" not in result:
        return
    confusion, split = result["confusion"], words.held_out(result).capitalize()
    cells = confusion, result["recall"], [shortened(str(name)) for name in result["data"]["classes"]]
    if len(confusion) > words.FEW_CLASSES:
        head, *rows = words.frequent_cells(*cells)
        yield Table(f"{split} samples: the most frequent confusions", head, rows, range(2, 4))
    else:
        head, *rows = words.matrix_cells(*cells)
        shades = [[*(math.sqrt(count / (sum(row) or 1)) for count in row), 0.0] for row in confusion]
        caption = f"{split} samples: classes by row, decisions by column"
        yield Table(caption, head, rows, range(1, len(head)), shades=shades)


def data_and_computation(result: Figures) -> Blocks:
    """Show what was read, and what it was computed with."""
    how = {key: result[key] for key in ("device", "dtype", "engine", "threads")} | flat(result["versions"])
    yield [pairs("data", flat(result["data"])), pairs("computation", how)]


def model_sections(run: Path, runtime: Mapping[str, Any]) -> list[Section]:
    """Return what there is to show of the model of a run; see ``load_trained``."""
    said: list[str] = []
    try:
        model, data = load_trained(run, runtime, said.append)
    except (InputError, RunError) as error:
        return [left_out("Model", "Mistakes, support vectors, kernel matrix and features are", error)]
    values = functools.cache(lambda: model.decision_function(data.held_out.x).cpu())
    return [
        *section("Model", said),
        *section("Columns", _columns(data)),
        *section("Diagnosis", _diagnosis(model, data)),
        *section("Predictions", pictures.predictions(model, data)),
        *section("ROC and precision-recall", pictures.class_curves(model, data, values)),
        *section("Worst mistakes", mistakes(model, data, values)),
        *section("Strongest support vectors", support_vectors(model, data)),
        *section("Kernel matrix", pictures.kernel_matrices(model, data)),
        *section("Features", pictures.features(model, data)),
    ]


def _columns(data: Data) -> Blocks:
    if data.columns is not None:
        head, *rows = words.column_rows(data.columns)
        texts = [[shortened(cell, MOST_CHARACTERS) for cell in row] for row in rows]
        yield Table("How each column of the table is read", head, texts, range(2, 3))
        yield from remarks_on(data.columns)


def _diagnosis(model: NSVM, data: Data) -> Blocks:
    if TRAINERS[model.settings.algorithm["name"]].trains_svm:
        figures = diagnose(model, data, MOST_IN_DIAGNOSIS)
        yield f"{figures['verdict'].capitalize()}: {figures['why']}."
        yield Table("A look inside", FIGURES, words.diagnosis_rows(figures), range(1, 2))


def mistakes(model: NSVM, data: Data, values: Callable[[], Float[Tensor, " m *outputs"]]) -> Blocks:
    """Show the held-out samples of largest g_decided - g_true (with two classes, 2 |g|), the worst first."""
    task, split, name = model.task, data.held_out, data.splits.held_out
    if not isinstance(task, Classification):
        return
    g = values().double()
    true, decided = task.index(split.y).long(), task.index(task.decide(g)).long()
    g = torch.stack([-g, g], 1) if g.ndim == 1 else g
    margin = (g.gather(1, decided[:, None]) - g.gather(1, true[:, None]))[:, 0]
    wrong = (true != decided).nonzero().flatten()
    worst = wrong[margin[wrong].argsort(descending=True, stable=True)][:MOST_MISTAKES]
    if not len(wrong):
        yield f"There are none: all {len(split)} {name} samples are decided rightly."
        return
    names = [*map(shortened, task.classes)]
    count = f"{len(worst)} of {len(wrong)} mistakes on the {name} set"
    numbers, rows = data.samples.numbers, data.splits.rows[name]
    places = ["" if numbers is None else f"row {numbers[rows[i]]}: " for i in worst]
    texts = [f"{at}{names[true[i]]} → {names[decided[i]]}" for at, i in zip(places, worst, strict=True)]
    yield _samples(model, data, f"The worst {count}: class → decision", split.x[worst], texts)


def _samples(model: NSVM, data: Data, caption: str, x: Iterable[Tensor], texts: Sequence[str]) -> Block:
    """Return samples with a text beside each: as images, or as rows of a table."""
    if _are_images(model):
        seen = data.splits["train"].x
        bounds = float(seen.min()), float(seen.max())
        return Images(caption, [image(*shown, bounds) for shown in zip(x, texts, strict=True)])
    encoder, values = model.facts.encoder, [sample.flatten().tolist() for sample in x]
    cells = [
        encoder.cells(row) if encoder else {f"feature {j}": f"{value:.10g}" for j, value in enumerate(row, 1)}
        for row in values
    ]
    head = ["", *[*cells[0]][:MOST_COLUMNS]]
    rows = [(text, *[*row.values()][:MOST_COLUMNS]) for text, row in zip(texts, cells, strict=True)]
    return Table(caption, head, rows, range(1, len(head)))


def _are_images(model: NSVM) -> bool:
    shape = model.facts.shape  # (channels, height, width), grey or in colour
    return len(shape) == 3 and shape[0] in (1, 3)


def image(x: Real[Tensor, "channels height width"], text: str, bounds: tuple[float, float]) -> Picture:
    """Return a sample as a picture that is black at the lower bound, and white at the upper one."""
    from PIL import Image  # slow to import, and not needed for tables

    low, high = bounds
    scaled = (np.moveaxis(x.double().numpy(), 0, -1) - low) / (high - low or 1.0)
    pixels = np.rint(255 * scaled.clip(0, 1)).astype(np.uint8)
    png = io.BytesIO()
    Image.fromarray(pixels.squeeze(-1) if len(x) == 1 else pixels).save(png, "png", optimize=True)
    return Picture(png.getvalue(), text)


def support_vectors(model: NSVM, data: Data) -> Blocks:
    """Explain a few predictions by the support vectors with the largest terms."""
    e, task, train = model.expansion, model.task, data.splits["train"]
    if not TRAINERS[model.settings.algorithm["name"]].trains_svm or not len(e.z):
        return
    classifies = isinstance(task, Classification)
    what = "decision follows from sums" if classifies else "prediction is the mean target plus a sum"
    yield (
        f"A {what} over the support vectors xⱼ with terms proportional to αⱼ yⱼ K(xⱼ, x). For a few samples "
        "x, these are the xⱼ with the largest terms."
    )
    some = some_of(data.held_out, EXPLAINED, model.settings.seed)
    blocks: list[Block] = []
    for x, y, (decided, total, terms) in zip(some.x, some.y, explain(model, some.x), strict=True):
        answer = f"decided {pictures.label(task, decided)}" if classifies else f"predicted {decided:.7g}"
        shown = sum(value for value, _ in terms)
        label = pictures.label(task, float(y))
        caption = f"{label}, {answer}: score {total:+.3g}, of which these are {shown:+.3g}"
        texts = [f"{pictures.label(task, float(train.y[j]))}: {value:+.3g}" for value, j in terms]
        rows = [x, *(train.x[j] for _, j in terms)]
        blocks.append(_samples(model, data, caption, rows, ["x", *texts]))
    yield from blocks if _are_images(model) else [blocks]
