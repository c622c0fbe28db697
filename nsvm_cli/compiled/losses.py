"""The hinge loss with two or more classes, compiled; see ``nsvm_cli.models.losses``."""

from __future__ import annotations

import math
from typing import Any

from nsvm_cli.compiled.forms import BINARY, CRAMMER_SINGER, Progress, Samples
from nsvm_cli.compiled.jit import compiled


@compiled
def step(loss: int, y: float, g: Any, out: Any) -> bool:
    """Write what an explicit step adds to alpha_i at decision values g, and return whether it is not 0."""
    C = len(g)
    if loss == BINARY:
        out[0] = y if y * g[0] < 1 else 0.0
        return bool(out[0] != 0)
    own, acts = int(y), False
    out[:] = 0.0
    if loss == CRAMMER_SINGER:
        rival = -1
        for r in range(C):
            if r != own and (rival < 0 or g[r] > g[rival]):
                rival = r
        if g[own] - g[rival] < 1:
            out[own], out[rival] = 1.0, -1.0
            acts = True
        return acts
    for r in range(C):
        sign = 1.0 if r == own else -1.0
        if sign * g[r] < 1:
            out[r] = sign
            acts = True
    return acts


@compiled
def is_correct(loss: int, y: float, g: Any) -> bool:
    """Return whether the prediction is the label."""
    if loss == BINARY:
        return bool((g[0] >= 0) == (y > 0))
    best = 0
    for r in range(1, len(g)):
        if g[r] > g[best]:
            best = r
    return best == int(y)


@compiled
def decide(samples: Samples, i: Any, s: Any, t: int, g: Any, steps: Any, progress: Progress) -> int:
    """Write g and what explicit steps add for the samples i of step t, count them, and return how many of
    them violate the margin, or -1 if a decision value is not finite.
    """
    violations = correct = 0
    for row in range(len(i)):
        for r in range(s.shape[1]):
            g[row, r] = s[row, r] / (samples.lam * (t - 1))
            if not math.isfinite(g[row, r]):
                return -1
        violations += step(samples.loss, samples.y[i[row]], g[row], steps[row])
        correct += is_correct(samples.loss, samples.y[i[row]], g[row])
    progress.decided[0] += len(i)
    progress.decided[1] += correct
    progress.decided[2] += violations
    progress.g[0] = g[0, 0]
    return violations
