"""The figures of ``nsvm diagnose`` with what they mean, for a terminal and for pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nsvm_cli.terminal.console import METRIC_FORMATS, Fact, counted

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
    "spectrum": "largest eigenvalues, of a sum of 1",
    "support_vectors": "terms of the decision",
    "support_share": "share of the training samples",
    "objective": "of the SVM, on training samples",
    "duality_gap": "the objective minus a lower bound",
    "theta_change": "relative to its initial norm",
    "feature_change": "of the kernel: 0 none, 1 all of it",
    "theta_zeros": "share of theta that is nearly 0",
    "matrix_samples": "training samples in the matrix",
}
"""What each figure means, in words that fit beside it in a terminal of 80 columns."""


def diagnosis_facts(figures: Mapping[str, Any]) -> list[Fact]:
    """Return the figures of a diagnosis with what each means; where one is missing, why."""
    name, written = METRIC_FORMATS[metric := figures["metric"]]
    split, missing = figures["split"], figures["missing"]
    rows = [(f"{of}_{metric}", f"{of} {name}", written, meaning) for of, meaning in SCORES.items()]
    rows += [(key, key.replace("_", " "), _number, meaning) for key, meaning in MEANINGS.items()]
    counts = sample_counts(figures)
    return [
        (
            label.replace("test", split),
            "-" if figures[key] is None else shown(figures[key]),
            missing.get(key, meaning).format(split=split, **counts),
        )
        for key, label, shown, meaning in rows
        if figures[key] is not None or key in missing
    ]


def sample_counts(figures: Mapping[str, Any]) -> dict[str, str]:
    """Return in words which held-out and which training samples the figures of a diagnosis are of."""
    return {
        "held_out": counted(figures["samples"], figures["held_out_samples"], figures["split"]),
        "fitted": counted(figures["fitted_samples"], figures["train_samples"], "training"),
    }


def _number(value: int | float | list[float]) -> str:
    """Return a figure as text, or the first three of several."""
    return " ".join(f"{one:.2g}" for one in value[:3]) if isinstance(value, list) else f"{value:.4g}"
