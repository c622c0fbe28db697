"""The hinge loss with two or more classes, compiled; see ``nsvm_cli.models.losses``."""

from __future__ import annotations

import math
from typing import Any

from nsvm_cli.engines.numba.forms import Progress, TrainingSet
from nsvm_cli.engines.numba.jit import jit


@jit
def step(y: float, g: Any, row: int, out: Any) -> bool:
    """Write what an explicit step adds to alpha_i at decision values g_row to the same row of ``out``, and
    return whether it is not 0.
    """
    C = g.shape[1]
    if C == 1:
        out[row, 0] = y if y * g[row, 0] < 1 else 0.0
        return bool(out[row, 0] != 0)
    own, acts = int(y), False
    for r in range(C):
        out[row, r] = 0.0
    rival = -1
    for r in range(C):
        if r != own and (rival < 0 or g[row, r] > g[row, rival]):
            rival = r
    if g[row, own] - g[row, rival] < 1:
        out[row, own], out[row, rival] = 1.0, -1.0
        acts = True
    return acts


@jit
def is_correct(y: float, g: Any, row: int) -> bool:
    """Return whether the prediction at decision values g_row is the label."""
    if g.shape[1] == 1:
        return bool((g[row, 0] >= 0) == (y > 0))
    best = 0
    for r in range(1, g.shape[1]):
        if g[row, r] > g[row, best]:
            best = r
    return best == int(y)


@jit
def decide(
    samples: TrainingSet, i: Any, s: Any, begin: int, end: int, g: Any, steps: Any, progress: Progress
) -> Any:
    """Take the next steps before ``end``, up to one with samples that violate the margin.

    ``i`` and ``s`` have the samples of the steps from ``begin`` on, and their sums over the support. Write g
    and what explicit steps add in the last step taken, and count. Return how many of its samples violate the
    margin, -1 if a decision value is not finite, and how many are decided rightly.
    """
    k, C, y, decided = len(g), g.shape[1], samples.y, progress.decided
    t, violations, correct = progress.t[0], 0, 0
    while violations == 0 and t + 1 < end:
        t, correct = t + 1, 0
        for row in range(k):
            at = (t - begin) * k + row
            for r in range(C):
                g[row, r] = s[at, r] / (samples.lam * (t - 1))
                if not math.isfinite(g[row, r]):
                    progress.t[0] = t
                    return -1, 0
            violations += step(y[i[at]], g, row, steps)
            correct += is_correct(y[i[at]], g, row)
        decided[0] += k
        decided[1] += correct
    decided[2] += violations
    progress.t[0], progress.g[0] = t, g[0, 0]
    return violations, correct
