"""Results in words, for a terminal and for pages: scores, training, confusions and diagnoses."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import product
from typing import Any

Rows = list[tuple[str, ...]]
"""Rows of a table as text. Those about figures have the name, the value, and in a few words what it is."""

Figures = Mapping[str, Any]
"""The figures of a result, a record, an evaluation or a diagnosis, by their names."""


def percent(share: float | None, digits: int = 2) -> str:
    """Format a share of 1; empty if there is none."""
    return "" if share is None else f"{100 * share:.{digits}f} %"


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.4f}"


def _in_units(error: float) -> str:
    """Format an error in the units of the data: with four digits, or as many as it has before the point."""
    return f"{error:.0f}" if 1000 <= error < 1e12 else f"{error:#.4g}"


METRIC_FORMATS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "accuracy": ("accuracy", percent),
    "r2": ("R^2", _number),
    "balanced_accuracy": ("balanced accuracy", percent),
    "f1": ("F1", _number),
    "roc_auc": ("ROC AUC", _number),
    "average_precision": ("average precision", _number),
    "log_loss": ("log loss", _number),
    "brier_score": ("Brier score", _number),
    "rmse": ("RMSE", _in_units),
    "mae": ("MAE", _in_units),
}
"""How the metrics of tasks are named and written (see ``Task.metrics``), the usual ones first."""


def counted(some: int, whole: int, kind: str) -> str:
    """Return a number of samples in words, and of how many they are if not all."""
    return f"{f'{some} of' if some < whole else 'all'} {whole} {kind} samples"


def held_out(result: Figures) -> str:
    """Return the name of the split that a run was evaluated on."""
    return "validation" if result["data"]["samples"]["validation"] else "test"


def score_of(result: Figures, by: object = None) -> tuple[str, str, float] | None:
    """Return the score of a result on held-out data, ``by`` a metric if it has it, with split and metric."""
    metrics = sorted(METRIC_FORMATS, key=lambda metric: metric != by)
    for split, metric in product(("validation", "test"), metrics):
        if isinstance(value := result.get(f"{split}_{metric}"), (int, float)):
            return split, metric, value
    return None


def scores_of(result: Figures) -> dict[str, str]:
    """Return the figures of a result that a person looks at first, by their names."""
    rows, data = dict[str, str](), result["data"]
    for split in (held_out(result), "train"):
        rows |= split_scores(result, data["samples"][split], data["classes"], split)
    rows["training time"] = f"{result['train_seconds']:.1f} s"
    return rows | ({"stopped": str(result["stopped"])} if "stopped" in result else {})


def split_scores(figures: Figures, samples: int, classes: Sequence[str], split: str = "") -> dict[str, str]:
    """Return the scores on a split in words, by their names; in a result, these begin with the ``split``."""
    key, name = (f"{split}_", f"{split} ") if split else ("", "")
    if f"{key}r2" in figures:
        errors = {f"{name}{error.upper()}": _in_units(figures[f"{key}{error}"]) for error in ("rmse", "mae")}
        if (mean := figures.get(f"{key}mean_rmse")) is not None:
            errors[f"{name}RMSE of the mean"] = _in_units(mean)
        return {f"{name}R^2": _number(figures[f"{key}r2"]), **errors}
    accuracy = percent(figures[f"{key}accuracy"])
    rows = {f"{name}accuracy": accuracy, f"{name}errors": f"{figures[f'{key}errors']} of {samples}"}
    if split == "train":
        return rows
    metrics = ["log_loss", "brier_score"]
    if (majority := percent(figures.get(f"{key}majority_accuracy"))) not in ("", accuracy):
        rows[f"{name}accuracy of the majority"] = majority
    if (balanced := percent(figures.get(f"{key}balanced_accuracy"))) not in ("", accuracy):
        rows[f"{name}balanced accuracy"] = balanced
        metrics = ["f1", "roc_auc", "average_precision", *metrics]
    for metric in metrics:
        if (value := figures.get(f"{key}{metric}")) is not None:
            rows[f"{name}{metric_name(metric, classes)}"] = _number(value)
    return rows


def metric_name(metric: str, classes: Sequence[str]) -> str:
    """Return the name of a metric and, for F1 and average precision of two classes, that which it is of."""
    of = f" of {classes[1]}" if metric in ("f1", "average_precision") and len(classes) == 2 else ""
    return METRIC_FORMATS[metric][0] + of


def no_better(result: Figures) -> str:
    """Return a sentence about a result that is no better than one answer for all samples; empty if it is."""
    split = held_out(result)
    score, majority = (result.get(f"{split}_{of}accuracy") for of in ("", "majority_"))
    by_accuracy = result.get("metric", "accuracy") == "accuracy"  # which a rare class costs
    if by_accuracy and score is not None and majority is not None and score <= majority:
        return f"No better than always deciding for the most frequent class: {percent(majority)}."
    rmse, mean = (result.get(f"{split}_{of}rmse") for of in ("", "mean_"))
    if rmse is not None and mean is not None and rmse >= mean:
        return f"No better than always answering the mean, whose RMSE is {_in_units(mean)}."
    return ""


def decapitalised(sentence: str) -> str:
    """Return a sentence as it stands within another one."""
    return sentence[:1].lower() + sentence[1:]


def generalisation(result: Figures) -> str:
    """Return a sentence about a result whose training score is lost on held-out samples; empty if it is not.

    More than half of what could be better than one answer for all samples is lost then.
    """
    split = held_out(result)
    metric = "accuracy" if f"{split}_accuracy" in result else "r2"
    train, score = result.get(f"train_{metric}"), result.get(f"{split}_{metric}")
    guess = result.get(f"{split}_majority_accuracy", 0.0)
    if train is None or score is None or train - score <= (1 - guess) / 2:
        return ""
    shown = METRIC_FORMATS[metric][1]
    return f"{shown(train)} in training, {shown(score)} on the {split} set, {shown(guess)} for one answer"


TRAINING_FIGURES: tuple[tuple[str, Callable[[Any], str], str], ...] = (
    ("steps", str, "iterations of the algorithm"),
    ("violations", str, "drawn samples that were inside the margin"),
    ("support_vectors", str, "training samples that the decision is a sum over"),
    ("parameters", str, "weights of the network, the length of theta"),
    ("theta_change", lambda share: f"{100 * share:.3g} %", "how far theta has moved, relative to its norm"),
    ("feature_change", _number, "of the kernel matrix: 0 none, 1 all of it"),
)
"""What else is said of a model and its training: field, format and meaning."""


def training_rows(figures: Figures) -> Rows:
    """Return what else the figures of a result or an evaluation say of a model and its training."""
    rows: Rows = [
        (key.replace("_", " "), shown(figures[key]), meaning)
        for key, shown, meaning in TRAINING_FIGURES
        if figures.get(key) is not None
    ]
    if "alignment" in figures:
        meaning = "of the kernel with the labels, from -1 to 1"
        rows.append(("kernel alignment", _number(figures["alignment"]), meaning))
    return rows + _learnt_rows(figures)


def _learnt_rows(figures: Figures) -> Rows:
    """Return what the kernel has learnt, and its initial values if the figures have them."""
    start = figures.get("initial_kernel_parameters", {})
    rows: Rows = []
    for name, value in figures.get("kernel_parameters", {}).items():
        several = isinstance(value, list) and len(value) > 1
        shown, now = (f"{len(value)} values", f"{_ends(value)}, ") if several else (_ends(value), "")
        origin = f"{_ends(start[name])} at first" if start else "learnt"
        rows.append((f"kernel {name}", shown, now + origin))
    return rows


def _ends(value: float | list[float]) -> str:
    """Return a number, or the smallest and the largest of several."""
    numbers = value if isinstance(value, list) else [value]
    return " to ".join(dict.fromkeys(f"{end:.4g}" for end in (min(numbers), max(numbers))))


def column_rows(columns: Iterable[Any]) -> Rows:
    """Return how the columns of a table are read (see ``datasets.columns``), below a head."""
    rows: Rows = [("column", "kind", "missing", "cells")]
    for c in columns:
        more = f", {c.categories} values" if (c.categories or 0) > 1 else ""
        more = ", left out" if c.kind in ("id", "empty") else more
        cells = (f"{v:.10g}" if isinstance(v, float) else v for v in c.values if v is not None)
        rows.append((shlex.quote(c.name), f"{c.kind}{more}", str(c.missing or ""), "  ".join(cells)))
    return rows


RECORD_FIGURES: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    **{f"validation_{metric}": (f"validation {name}", f) for metric, (name, f) in METRIC_FORMATS.items()},
    "validation_accuracy": ("validation", percent),
    "violations": ("violations", str),
    "running_accuracy": ("running accuracy", percent),
    "support_vectors": ("support vectors", str),
    "full_objective": ("full objective", "{:.4g}".format),
    "duality_gap": ("duality gap", "{:.2g}".format),
    "objective": ("objective", "{:.3g}".format),
}
"""What a line shows of a record: name and format; the most important first."""


def figures_of(record: Figures) -> list[str]:
    """Return the figures of a record in words, the most important first."""
    of_svm = ("violations", "support_vectors")  # hidden while zero
    return [
        f"{name} {shown(value)}"
        for key, (name, shown) in RECORD_FIGURES.items()
        if (value := record.get(key)) is not None and (value or key not in of_svm)
    ]


def clock(seconds: int | float | None) -> str:
    """Return seconds as ``H:MM:SS``."""
    return "-:--:--" if seconds is None else str(timedelta(seconds=int(seconds)))


FEW_CLASSES = 12
"""The most classes that a matrix is shown for."""

MOST_PAIRS = 8
"""The most confusions that are listed where there is no room for a matrix."""

Confusion = Sequence[Sequence[int]]
"""Counts of samples by their class (row) and the class that was decided for (column)."""


def matrix_cells(confusion: Confusion, recall: Sequence[float | None], names: Sequence[str]) -> Rows:
    """Return the confusion matrix below its head, with a row for each class, a column for each decision."""
    rows = zip(names, confusion, recall, strict=True)
    head = ("", *names, "recall")
    return [head, *((name, *(str(n or ".") for n in row), percent(share, 1)) for name, row, share in rows)]


def frequent_cells(confusion: Confusion, recall: Sequence[float | None], names: Sequence[str]) -> Rows:
    """Return the most frequent confusions below their head, one a row."""
    pairs = [(n, i, j) for i, row in enumerate(confusion) for j, n in enumerate(row) if n and i != j]
    pairs = sorted(pairs, key=lambda pair: -pair[0])[:MOST_PAIRS]
    rows = [(names[i], names[j], f"{n} of {sum(confusion[i])}", percent(recall[i], 1)) for n, i, j in pairs]
    return [("class", "decision", "samples", "recall"), *rows]


SCORES = {
    "test": "on {held_out}",
    "train": "on {fitted}",
    "refit": "of an exact SVM, same features",
    "refreshed": "with features of the final theta",
    "frozen": "of an exact SVM, initial features",
    "rescaled": "if kernel values differed more",
    "guess": "of one answer for all samples",
}
MEANINGS = {
    "alignment_train": "of the kernel with training labels",
    "alignment_test": "the same on {split} samples",
    "entropy": "0 a constant kernel, 1 the identity",
    "distance_identity": "of the kernel; 1 for all ones",
    "distance_ones": "of the kernel; 1 for the identity",
    "support_vectors": "terms of the decision",
    "objective": "of the SVM, on training samples",
    "duality_gap": "the objective minus a lower bound",
    "theta_change": "relative to its initial norm",
    "feature_change": "of the kernel: 0 none, 1 all of it",
    "theta_zeros": "share of theta that is nearly 0",
}
"""What each figure means, in words that fit beside it in a terminal of 80 columns."""


def diagnosis_rows(figures: Figures) -> Rows:
    """Return the figures of a diagnosis that apply, with what each means."""
    name, written = METRIC_FORMATS[metric := figures["metric"]]
    split, counts = figures["split"], sample_counts(figures)
    rows = [(f"{of}_{metric}", f"{of} {name}", written, meaning) for of, meaning in SCORES.items()]
    rows += [(key, key.replace("_", " "), "{:.4g}".format, meaning) for key, meaning in MEANINGS.items()]
    return [
        (label.replace("test", split), shown(figures[key]), meaning.format(split=split, **counts))
        for key, label, shown, meaning in rows
        if figures[key] is not None
    ] + _learnt_rows(figures)


def sample_counts(figures: Figures) -> dict[str, str]:
    """Return in words which held-out and which training samples the figures of a diagnosis are of."""
    return {
        "held_out": counted(figures["samples"], figures["held_out_samples"], figures["split"]),
        "fitted": counted(figures["fitted_samples"], figures["train_samples"], "training"),
    }
