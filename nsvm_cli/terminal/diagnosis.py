"""The figures of ``nsvm diagnose`` with what they mean, for a terminal and for pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nsvm_cli.terminal.console import METRIC_FORMATS, Fact

MEANINGS = {
    "alignment_train": "of the kernel with the labels of training samples, from -1 to 1",
    "alignment_test": "the same on held-out samples: much less means that theta is overfitted",
    "entropy": "von Neumann's, of the kernel matrix: 0 constant, 1 the identity",
    "distance_identity": "of the kernel matrix from the identity; 1 for all ones",
    "distance_ones": "of the kernel matrix from all ones; 1 for the identity",
    "spectrum": "the largest eigenvalues of the kernel matrix, as shares of their sum",
    "support_vectors": "training samples that the decision is a sum over",
    "support_share": "of the training samples that are support vectors",
    "objective": "lambda/2 ||f||^2 and the mean loss on the training samples",
    "duality_gap": "how far the objective may be from its least value, on the same features",
    "theta_change": "how far theta has moved, relative to its norm",
    "feature_change": "of the kernel matrix since before training: 0 none, 1 all of it",
}
SCORES = {
    "test": "of the model, on held-out samples",
    "refit": "of an exact SVM on the same features: what the solver costs",
    "refreshed": "with the features of the final theta: what stale ones cost",
    "frozen": "of an exact SVM on the initial features: what training them gained",
}


def diagnosis_facts(figures: Mapping[str, Any]) -> list[Fact]:
    """Return the figures of a diagnosis, as far as there are any, with what each means."""
    name, written = METRIC_FORMATS[metric := figures["metric"]]
    scores = {f"{of} {name}": (figures[f"{of}_{metric}"], meaning) for of, meaning in SCORES.items()}
    facts = [(key, written(value), meaning) for key, (value, meaning) in scores.items() if value is not None]
    for key, meaning in MEANINGS.items():
        if (value := figures[key]) is not None:
            numbers = value[:3] if isinstance(value, list) else [value]
            text = " ".join(f"{number:.4g}" for number in numbers)
            facts.append((key.replace("_", " "), text, meaning))
    return facts
