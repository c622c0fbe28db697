"""A verdict in words on the figures of a diagnosis."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from nsvm_cli.terminal.diagnosis import sample_counts

EXTREME = 0.1
"""A distance below which a kernel matrix may be as good as the identity, or as constant."""

ORTHOGONAL = 0.9
"""The entropy from which a matrix near the identity is one of orthogonal samples. That of many classes,
within which samples are alike, is as near to the identity: C equal blocks are 1/sqrt(C) from it, with the
entropy log C / log k."""

STILL = 1e-3
"""A change of theta or of the kernel matrix below which training has not moved the features."""

MUCH = 0.1
"""The difference between two scores, as a share of what one answer for all lacks to 1, from which a kernel
matrix is to blame for it."""

STANDARD_ERRORS = 2.0
"""Standard errors by which means have to differ to be called different."""

SCORES = ("test", "train", "refit", "refreshed", "frozen", "rescaled", "guess")
"""Those that the sentences name."""

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
    """Return in a few words what is the matter, the worst first, and a sentence with the figures."""
    matter = next(matter for matter in MATTERS if matter.holds(figures))
    texts = {**{name: _score(figures, name) for name in SCORES}, **sample_counts(figures)}
    return {"verdict": matter.name, "why": matter.why.format(**figures, **texts)}


def _score(figures: Mapping[str, Any], name: str) -> str:
    """Return a score as text."""
    score = figures[f"{name}_{figures['metric']}"]
    return "no score" if score is None else f"{score:.4f}"


@dataclass(frozen=True)
class Matter:
    """What may be the matter: its name, whether it holds for some figures, and a sentence to fill in."""

    name: str
    holds: Callable[[Mapping[str, Any]], bool]
    why: str


def _like_identity(figures: Mapping[str, Any]) -> bool:
    """Return whether samples are orthogonal, and the SVM learns them by heart.

    A kernel matrix near the identity that generalises is no trouble.
    """
    near = figures["distance_identity"] < EXTREME and figures["entropy"] > ORTHOGONAL
    by_heart = figures["overfitted"] and _much_better(figures, "train", "test")
    return near and figures["support_vectors"] is not None and by_heart


def _constant(figures: Mapping[str, Any]) -> bool:
    """Return whether samples are alike, and no SVM can tell them apart.

    A kernel matrix near all ones whose differences an SVM makes use of, be it the exact one, is no trouble.
    """
    if figures["distance_ones"] >= EXTREME or figures["support_vectors"] is None:
        return False
    if not figures["beats_guess"] and not _much_better(figures, "refit", "test"):
        return True
    return all(_much_better(figures, "rescaled", other) for other in ("test", "refit"))


def _much_better(figures: Mapping[str, Any], one: str, other: str) -> bool:
    """Return whether a score is higher than another by ``MUCH``; not if one of them is missing."""
    a, b, guess = (figures[f"{name}_{figures['metric']}"] for name in (one, other, "guess"))
    return None not in (a, b, guess) and a - b > MUCH * (1 - guess)


def _still(figures: Mapping[str, Any]) -> bool:
    """Return whether there are features that training was to move, and has not, whatever theta did."""
    changes = (figures["feature_change"], figures["theta_change"])
    return next((change < STILL for change in changes if change is not None), False)


MATTERS = (
    Matter(
        "worse than the initial features",
        lambda figures: figures["worse_features"],
        "an exact SVM on the trained features has {refit} on {held_out}, and one on the initial features "
        "{frozen}; lower optimizer.lr, or set optimizer.weight_decay or penalties",
    ),
    Matter(
        "identity-like kernel",
        _like_identity,
        "the kernel matrix is {distance_identity:.2g} from the identity, with {train} on {fitted} and {test} "
        "on {held_out}: orthogonal samples fit any labels; lower kernel.gamma or network.scale, or set "
        "penalties.identity where theta is trained",
    ),
    Matter(
        "constant kernel",
        _constant,
        "the kernel matrix is {distance_ones:.2g} from all ones, with {test} on {held_out}, where one answer "
        "for all has {guess} and a kernel of larger differences {rescaled}; raise kernel.gamma or "
        "network.scale, or set penalties.ones where theta is trained",
    ),
    Matter(
        "frozen features",
        _still,
        "training has not moved them; an SVM on them has {frozen} on {held_out}, and the model {test}; raise "
        "optimizer.lr, if they are to be learnt",
    ),
    Matter(
        "healthy",
        lambda figures: _much_better(figures, "refit", "test"),
        "on {held_out} an exact SVM on the features of {fitted} has {refit}, but the model {test}; take more "
        "steps",
    ),
    Matter(
        "healthy",
        lambda figures: figures[f"frozen_{figures['metric']}"] is not None,
        "{test} on {held_out}; an exact SVM on the features of {fitted} has {refit}, and on the initial ones "
        "{frozen}",
    ),
    Matter("healthy", lambda figures: True, "{test} on {held_out}"),
)
"""The worst first, of which the first that holds is the verdict."""
