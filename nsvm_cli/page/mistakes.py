"""The worst mistakes of a run: held-out samples decided wrongly by the largest margin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Real

from nsvm_cli.datasets import Split
from nsvm_cli.models.nsvm import NSVM
from nsvm_cli.tasks import Classification

MAX_IMAGES = 24
"""The most samples that are shown."""


@dataclass(frozen=True)
class Mistake:
    """A sample, its class, and the class that was decided for."""

    sample: Real[np.ndarray, "..."]
    true: str
    decided: str


def which(shown: int, count: int) -> str:
    """Say which mistakes are shown."""
    return f"the worst {shown} of {count} mistakes" if count > 1 else "the only mistake"


def worst_mistakes(model: NSVM, task: Classification, split: Split) -> tuple[list[Mistake], int]:
    """Return the mistakes with the largest g_decided - g_true, the worst first, and the number of all.

    With two classes that is 2 |g|.
    """
    g = model.decision_function(split.x).double().cpu().numpy()
    true, decided = (task.index(y).astype(np.int64) for y in (split.y.numpy(), task.decide(g)))
    if g.ndim == 1:
        g = np.stack([-g, g], axis=1)
    wrong = np.flatnonzero(true != decided)
    margin = g[wrong, decided[wrong]] - g[wrong, true[wrong]]
    worst = wrong[np.argsort(-margin, kind="stable")][:MAX_IMAGES]
    names = task.classes
    mistakes = [Mistake(split.x[i].numpy(), names[true[i]], names[decided[i]]) for i in worst]
    return mistakes, len(wrong)
