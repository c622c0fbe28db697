"""Results as text, for terminals and pages: tables of metrics, and sentences."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from nsvm_cli.metrics import (
    FIGURES,
    METRICS,
    Figure,
    figure_of,
    in_units,
    number,
    own_metrics,
    percent,
    short,
)

Rows = list[tuple[str, ...]]
"""Rows of a table as text. Each row of a table of metrics consists of a name, a value and a meaning."""

Figures = Mapping[str, Any]
"""The metrics and other values of a result, a record, an evaluation or a diagnosis, by their keys."""


def counted(some: int, whole: int, kind: str) -> str:
    """Return a number of samples as text, such as ``all 90 test samples`` or ``50 of 90 test samples``."""
    return f"{f'{some} of' if some < whole else 'all'} {whole} {kind} samples"


def held_out(result: Figures) -> str:
    """Return the name of the split that a run was evaluated on."""
    return "validation" if result["data"]["samples"]["validation"] else "test"


def score_of(result: Figures, by: object = None) -> tuple[str, str, float] | None:
    """Return the split, metric and value of a held-out score, of the metric ``by`` if possible, or None."""
    metrics = [by, *METRICS] if isinstance(by, str) else [*METRICS]
    for split, metric in product(("validation", "test"), metrics):
        if isinstance(value := result.get(f"{split}_{metric}"), (int, float)):
            return split, metric, value
    return None


def scores_of(result: Figures) -> dict[str, str]:
    """Return the scores and the training time of a result as text, by name."""
    rows, data = dict[str, str](), result["data"]
    for split in (held_out(result), "train"):
        rows |= split_scores(result, data["samples"][split], data["classes"], split)
    rows["training time"] = f"{result['train_seconds']:.1f} s"
    return rows | ({"stopped": str(result["stopped"])} if "stopped" in result else {})


def split_scores(figures: Figures, samples: int, classes: Sequence[str], split: str = "") -> dict[str, str]:
    """Return the scores whose keys begin with ``split`` (by default, all scores) as text, by name."""
    prefix, name = (f"{split}_", f"{split} ") if split else ("", "")
    scores = {key.removeprefix(prefix): value for key, value in figures.items() if key.startswith(prefix)}
    if "r2" in scores:
        keys = ["r2", "rmse", "mae", "mean_rmse"]
    else:
        keys, accuracy = ["accuracy", "errors"], percent(scores["accuracy"])
        scores["errors"] = f"{scores['errors']} of {samples}"
        if split != "train":
            further = ("majority_accuracy", "balanced_accuracy")
            keys += [key for key in further if percent(scores.get(key)) not in ("", accuracy)]
            keys += ["f1", "roc_auc", "average_precision"] * ("balanced_accuracy" in keys)
            keys += ["log_loss", "brier_score"]
    keys += own_metrics()
    return {
        f"{name}{metric_name(key, classes)}": figure_of(key).written(scores[key])
        for key in keys
        if key == "r2" or scores.get(key) is not None
    }


def metric_name(metric: str, classes: Sequence[str]) -> str:
    """Return the name of a metric; for F1 and average precision of two classes, add the second class."""
    has_class = metric in ("f1", "average_precision") and len(classes) == 2
    return figure_of(metric).name + (f" of {classes[1]}" if has_class else "")


def baseline_warning(result: Figures, split: str = "") -> str:
    """Return a warning if the model is not better than the constant baseline, otherwise an empty string."""
    split = split or held_out(result)
    score, majority = (result.get(f"{split}_{model}accuracy") for model in ("", "majority_"))
    # with other metrics, a model may trade accuracy for finding a rare class
    uses_accuracy = result.get("metric", "accuracy") == "accuracy"
    if uses_accuracy and score is not None and majority is not None and score <= majority:
        return f"No better than always predicting the most frequent class (accuracy {percent(majority)})."
    rmse, mean = (result.get(f"{split}_{model}rmse") for model in ("", "mean_"))
    if rmse is not None and mean is not None and rmse >= mean:
        return f"No better than always predicting the mean (RMSE {in_units(mean)})."
    return ""


def decapitalised(sentence: str) -> str:
    """Return a sentence with a lowercase first letter, for use after a colon."""
    return sentence[:1].lower() + sentence[1:]


def generalisation(result: Figures, split: str = "") -> str:
    """Return the scores of an overfitted result as text, or an empty string if the result is not overfitted.

    A result is overfitted if the held-out score is lower than the training score by more than half the
    difference between a perfect score and the constant baseline.
    """
    split = split or held_out(result)
    metric = "accuracy" if f"{split}_accuracy" in result else "r2"
    train, score = result.get(f"train_{metric}"), result.get(f"{split}_{metric}")
    guess = result.get(f"{split}_majority_accuracy", 0.0)
    if train is None or score is None or train - score <= (1 - guess) / 2:
        return ""
    written = METRICS[metric].written
    scores = f"{written(train)} on the training set, {written(score)} on the {split} set"
    return f"{scores}, {written(guess)} for a constant prediction"


TRAINING = ("steps", "violations", "support_vectors", "parameters", "theta_change", "feature_change")
"""The values of a model and its training that are shown below its scores."""


def training_rows(figures: Figures) -> Rows:
    """Return the table rows that describe a model and its training, from a result or an evaluation."""
    keys = [key for key in TRAINING if figures.get(key) is not None]
    keys += ["alignment"] * ("alignment" in figures)  # shown even if it is undefined
    rows = [(FIGURES[key].name, FIGURES[key].written(figures[key]), FIGURES[key].meaning) for key in keys]
    return rows + _learnt_rows(figures) + _tried_rows(figures)


def _tried_rows(figures: Figures) -> Rows:
    """Return a row for each algorithm, kernel and number of steps in ``tried``, with the best candidate."""
    best: dict[str, Figures] = {}
    for candidate in figures.get("tried", ()):
        names = [candidate[key] for key in ("algorithm", "kernel") if key in candidate]
        steps = [f"{candidate['steps']} steps"] if "steps" in candidate else []
        name = ", ".join(names + steps)
        best[name] = max(best.get(name, candidate), candidate, key=lambda candidate: candidate["score"])
    rows: Rows = []
    for name, candidate in best.items():
        meaning = f"in cross-validation with C={short(candidate['C'])}"
        chosen = ", chosen" * (candidate == figures["chosen"])
        rows.append((name, number(candidate["score"]), f"{meaning}{chosen}"))
    return rows


def _learnt_rows(figures: Figures) -> Rows:
    initial = figures.get("initial_kernel_parameters", {})
    rows: Rows = []
    for name, value in figures.get("kernel_parameters", {}).items():
        origin = f"initially {_range(initial[name])}" if initial else "learnt"
        if isinstance(value, list) and len(value) > 1:
            rows.append((f"kernel {name}", f"{len(value)} values", f"{_range(value)}, {origin}"))
        else:
            rows.append((f"kernel {name}", _range(value), origin))
    return rows


def _range(value: float | list[float]) -> str:
    """Format a number, or the smallest and the largest of several numbers."""
    numbers = value if isinstance(value, list) else [value]
    return " to ".join(dict.fromkeys(map(short, (min(numbers), max(numbers)))))


def column_rows(columns: Iterable[Any]) -> Rows:
    """Return a table that describes the columns of a data set (see ``datasets.columns``), with a header."""
    rows: Rows = [("column", "kind", "missing", "cells")]
    for c in columns:
        detail = f", {c.categories} values" if (c.categories or 0) > 1 else ""
        detail = ", excluded" if c.kind in ("id", "empty") else detail
        cells = (f"{v:.10g}" if isinstance(v, float) else v for v in c.values if v is not None)
        rows.append((shlex.quote(c.name), f"{c.kind}{detail}", str(c.missing or ""), "  ".join(cells)))
    return rows


def figures_of(record: Figures) -> list[str]:
    """Return the metrics of a record of training as text, the most important first."""
    of_svm, objectives = ("violations", "support_vectors"), ("full_objective", "duality_gap", "objective")
    keys = (*(f"validation_{metric}" for metric in METRICS), "violations", "running_accuracy")
    return [
        f"{figure_of(key).name} {figure_of(key).written(value)}"
        for key in (*keys, "support_vectors", *objectives)
        if (value := record.get(key)) is not None and (value or key not in of_svm)  # hidden while 0
    ]


FEW_CLASSES, MOST_PAIRS = 12, 8
"""Maximum numbers of classes in a confusion matrix, and of confusions in the list that may replace it."""


def matrix_cells(figures: Figures, names: Sequence[str]) -> Rows:
    """Return the confusion matrix as text: a header, and a row for each class with a column per decision."""
    rows = zip(names, figures["confusion"], figures["recall"], strict=True)
    head = ("", *names, "recall")
    return [head, *((name, *(str(n or ".") for n in row), percent(share, 1)) for name, row, share in rows)]


def frequent_cells(figures: Figures, names: Sequence[str]) -> Rows:
    """Return a list of the most frequent confusions as text, with a header and a row for each confusion."""
    confusion, recall = figures["confusion"], figures["recall"]
    pairs = [(n, i, j) for i, row in enumerate(confusion) for j, n in enumerate(row) if n and i != j]
    pairs = sorted(pairs, key=lambda pair: -pair[0])[:MOST_PAIRS]
    rows = [(names[i], names[j], f"{n} of {sum(confusion[i])}", percent(recall[i], 1)) for n, i, j in pairs]
    return [("class", "decision", "samples", "recall"), *rows]


SCORES = {
    "test": "on {held_out}",
    "train": "on {fitted}",
    "refit": "of an exact SVM on the same features",
    "refreshed": "with all features from the final theta",
    "frozen": "of an exact SVM on initial features",
    "rescaled": "if kernel values differed more",
    "guess": "of a constant prediction",
}
"""The scores of the model and of alternatives to it in a diagnosis, with their meanings."""


def diagnosis_rows(figures: Figures) -> Rows:
    """Return the name, the value and the meaning of each defined metric of a diagnosis, scores first."""
    score, split, counts = METRICS[metric := figures["metric"]], figures["split"], sample_counts(figures)
    entries: dict[str, Figure] = {
        f"{model}_{metric}": replace(score, name=f"{model} {score.name}", meaning=meaning)
        for model, meaning in SCORES.items()
    }
    entries |= {key: replace(FIGURES[key], written=short) for key in figures if key in FIGURES}
    return [
        (f.name.replace("test", split), f.written(figures[key]), f.meaning.format(split=split, **counts))
        for key, f in entries.items()
        if figures[key] is not None
    ] + _learnt_rows(figures)


def sample_counts(figures: Figures) -> dict[str, str]:
    """Return the numbers of held-out and training samples of a diagnosis as text."""
    return {
        "held_out": counted(figures["samples"], figures["held_out_samples"], figures["split"]),
        "fitted": counted(figures["fitted_samples"], figures["train_samples"], "training"),
    }
