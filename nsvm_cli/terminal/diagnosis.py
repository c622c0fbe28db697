"""The figures of ``nsvm diagnose`` with what they mean, for a terminal and for pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nsvm_cli.terminal.console import METRIC_FORMATS, Fact

SCORES = {
    "test": "of the model, on {split} samples",
    "train": "the same on training samples",
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
    "support_age": "steps since they joined, the median",
    "objective": "of the SVM, on training samples",
    "duality_gap": "the objective less a lower bound",
    "theta_change": "relative to its initial norm",
    "feature_change": "of the kernel: 0 none, 1 all of it",
}
"""What each figure means, in words that fit beside it in a terminal of 80 columns."""


def diagnosis_facts(figures: Mapping[str, Any]) -> list[Fact]:
    """Return the figures of a diagnosis, as far as there are any, with what each means."""
    name, written = METRIC_FORMATS[metric := figures["metric"]]
    split = figures["split"]
    facts = [
        (f"{split if of == 'test' else of} {name}", written(value), meaning.format(split=split))
        for of, meaning in SCORES.items()
        if (value := figures[f"{of}_{metric}"]) is not None
    ]
    for key, meaning in MEANINGS.items():
        if (value := figures[key]) is not None:
            numbers = value[:3] if isinstance(value, list) else [value]
            text = " ".join(
                f"{number:.2g}" if isinstance(value, list) else f"{number:.4g}" for number in numbers
            )
            label = key.replace("_test", f"_{split}").replace("_", " ")
            facts.append((label, text, meaning.format(split=split)))
    return facts
