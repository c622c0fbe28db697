"""A verdict in words on the figures of a diagnosis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor

EXTREME = 0.1
"""A distance below which a kernel matrix may be as good as the identity, or as constant."""

ORTHOGONAL = 0.9
"""The entropy from which a matrix near the identity is one of orthogonal samples. That of many classes,
within which samples are alike, is as near to the identity: C equal blocks are 1/sqrt(C) from it, with the
entropy log C / log k."""

STILL = 1e-3
"""A change of theta or of the kernel matrix below which training has not moved the features."""

STANDARD_ERRORS = 2.0
"""Standard errors by which means have to differ to be called different."""

Errors = Float[Tensor, " p"]


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


def verdict(figures: Mapping[str, Any]) -> dict[str, str]:
    """Return in a few words what is the matter, the worst first, and a sentence with the figures.

    A kernel matrix is to blame only if the errors are there: one near the identity that generalises, or one
    near all ones of which an SVM makes use, is no trouble.
    """
    matter = next(_matters(figures), None)
    if matter is None:
        frozen = _score(figures, "frozen")
        matter = "healthy", f"{_score(figures, 'test')} on held-out samples"
        if frozen and "frozen" in figures["worse"]:
            matter = "healthy", f"{matter[1]}, where an SVM on the initial features has {frozen}"
        elif frozen:
            matter = "healthy", f"{matter[1]}; an SVM on the initial features has {frozen}, as good or nearly"
    return dict(zip(("verdict", "why"), matter, strict=True))


def _matters(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is the matter, and why."""
    test, train, refit, frozen, fresh, guess = (
        _score(figures, name) for name in ("test", "train", "refit", "frozen", "refreshed", "guess")
    )
    better, svm = figures["better"], figures["support_vectors"] is not None
    I, ones = figures["distance_identity"], figures["distance_ones"]  # noqa: E741
    if svm and I < EXTREME and figures["entropy"] > ORTHOGONAL and figures["overfitted"]:
        yield (
            "identity-like kernel",
            f"the kernel matrix is {I:.2g} from the identity, with {train} on training and {test} on "
            "held-out samples: orthogonal samples fit any labels; lower kernel.gamma or network.scale, or "
            "set penalties.identity where theta is trained",
        )
    if svm and ones < EXTREME and ("guess" not in figures["worse"] or "rescaled" in better):
        rescaled = _score(figures, "rescaled")
        yield (
            "constant kernel",
            f"the kernel matrix is {ones:.2g} from all ones, with {test} where one answer for all has "
            f"{guess} and a kernel of larger differences {rescaled}; raise kernel.gamma or network.scale, or "
            "set penalties.ones where theta is trained",
        )
    if _still(figures):
        yield (
            "frozen features",
            f"training has not moved them; an SVM on them has {frozen or 'no score'} against {test}; raise "
            "optimizer.lr, if they are to be learnt",
        )
    if "refreshed" in better:
        yield (
            "stale features",
            f"with the features of the final theta the support vectors have {fresh} instead of {test}; set "
            "algorithm.refresh_every",
        )
    if "refit" in better:
        yield (
            "unfinished solver",
            f"an exact SVM on the same features has {refit} instead of {test}; take more steps",
        )
    if "frozen" in better:
        yield (
            "overfitted features",
            f"an SVM on the initial features has {frozen}, and the model {test}; lower optimizer.lr, or set "
            "optimizer.weight_decay or penalties",
        )


def _still(figures: Mapping[str, Any]) -> bool:
    """Return whether there are features that training was to move, and has not."""
    changes = (figures["theta_change"], figures["feature_change"])
    return any(change is not None and change < STILL for change in changes)


def _score(figures: Mapping[str, Any], name: str) -> str | None:
    """Return a score as text."""
    score = figures[f"{name}_{figures['metric']}"]
    return None if score is None else f"{score:.4f}"
