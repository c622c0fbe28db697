"""A verdict in words on the figures of a diagnosis."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor

from nsvm_cli.words import SCORES, sample_counts

EXTREME = 0.1
"""A distance below which a kernel matrix may be as good as the identity, or as constant."""

ORTHOGONAL = 0.9
"""The entropy from which a matrix near the identity is one of orthogonal samples. That of many classes,
within which samples are alike, is as near to the identity: C equal blocks are 1/sqrt(C) from it, with the
entropy log C / log k."""

STILL = 1e-3
"""A change of theta or of the kernel matrix below which training has not moved the features."""

MUCH, STANDARD_ERRORS = 0.1, 2.0
"""How far scores have to differ for a kernel matrix to be to blame, as a share of what one answer for all
lacks to 1; and standard errors by which means have to differ to be called different."""

Errors = Float[Tensor, " p"]
Scores = Mapping[str, float | None]


def better(one: Errors, other: Errors) -> bool:
    """Return whether errors are smaller than others on the same samples, by more than chance.

    Of classes this is McNemar's test: that many samples are decided rightly by only the one or the other.
    """
    d = other - one
    return float(d.sum()) > STANDARD_ERRORS * math.sqrt(float(d.square().sum()))


def overfitted(train: Errors, held_out: Float[Tensor, " q"]) -> bool:
    """Return whether errors on held-out samples are larger than on training samples, by more than chance."""
    variance = sum(float(e.var(correction=0)) / len(e) for e in (train, held_out))
    return float(held_out.mean() - train.mean()) > STANDARD_ERRORS * math.sqrt(variance)


SENTENCES = {
    "worse than the initial features": "an exact SVM on the trained features has {refit} on {held_out}, and "
    "one on the initial features {frozen}; lower optimizer.lr, or set optimizer.weight_decay or penalties",
    "identity-like kernel": "the kernel matrix is {distance_identity:.2g} from the identity, with {train} on "
    "{fitted} and {test} on {held_out}: orthogonal samples fit any labels; lower kernel.gamma or "
    "network.scale, or set penalties.identity where theta is trained",
    "constant kernel": "the kernel matrix is {distance_ones:.2g} from all ones, with {test} on {held_out}, "
    "where one answer for all has {guess} and a kernel of larger differences {rescaled}; raise kernel.gamma "
    "or network.scale, or set penalties.ones where theta is trained",
    "frozen features": "training has not moved them; an SVM on them has {frozen} on {held_out}, and the "
    "model {test}; raise optimizer.lr, if they are to be learnt",
}
UNFINISHED = "{test} on {held_out}, but an exact SVM on the features of {fitted} has {refit}; take more steps"
COMPARED = "; an exact SVM on the features of {fitted} has {refit}, and on the initial ones {frozen}"
"""What is said of each verdict, and of a healthy model that an exact SVM surpasses or that has features to
compare with."""


def verdict(figures: Mapping[str, Any]) -> dict[str, str]:
    """Return in a few words what is the matter, the worst first, and a sentence with the figures."""
    scores = {name: figures[f"{name}_{figures['metric']}"] for name in SCORES}
    name = _worst(figures, scores)
    compared = "" if scores["frozen"] is None else COMPARED
    healthy = UNFINISHED if _much_better(scores, "refit", "test") else "{test} on {held_out}" + compared
    texts = {name: "no score" if score is None else f"{score:.4f}" for name, score in scores.items()}
    why = SENTENCES.get(name, healthy).format(**figures, **texts, **sample_counts(figures))
    return {"verdict": name, "why": why}


def _worst(figures: Mapping[str, Any], scores: Scores) -> str:
    """Return the worst that is the matter.

    A kernel matrix near the identity is no trouble if it generalises, nor is one near all ones whose
    differences an SVM makes use of, be it the exact one.
    """
    svm = figures["support_vectors"] is not None
    orthogonal = figures["distance_identity"] < EXTREME and figures["entropy"] > ORTHOGONAL
    useless = not figures["beats_guess"] and not _much_better(scores, "refit", "test")
    too_flat = all(_much_better(scores, "rescaled", other) for other in ("test", "refit"))
    changes = [figures[name] for name in ("feature_change", "theta_change") if figures[name] is not None]
    if figures["worse_features"]:
        return "worse than the initial features"
    if svm and orthogonal and figures["overfitted"] and _much_better(scores, "train", "test"):
        return "identity-like kernel"
    if svm and figures["distance_ones"] < EXTREME and (useless or too_flat):
        return "constant kernel"
    return "frozen features" if changes and changes[0] < STILL else "healthy"


def _much_better(scores: Scores, one: str, other: str) -> bool:
    """Return whether a score is higher than another by ``MUCH``; not if one of them is missing."""
    a, b, guess = scores[one], scores[other], scores["guess"]
    return a is not None and b is not None and guess is not None and a - b > MUCH * (1 - guess)
