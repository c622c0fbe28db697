"""A stretch of Part 1 of Algorithm 4, compiled; see ``nsvm_cli.trainers.alg4``. Part 2 is Algorithm 0."""

from __future__ import annotations

from typing import Any

from nsvm_cli.engines.numba.forms import (
    BAD_OBJECTIVE,
    DONE,
    Network,
    Optimizer,
    Progress,
    TrainingSet,
)
from nsvm_cli.engines.numba.kernels import RBF
from nsvm_cli.engines.numba.objectives import descend_on_batch
from nsvm_cli.engines.numba.supports import rows_of


def stretch(
    F: Network,
    o: Optimizer,
    K: RBF,
    samples: TrainingSet,
    progress: Progress,
    drawn: Any,
    first: int,
    until: int,
    classes: int,
    centred: bool,
    mean: Any,
    averaged: int,
) -> int:
    """Take the steps up to ``until``, whose samples, from step ``first`` on, are the rows of ``drawn``.

    ``mean`` is that of theta over the last ``averaged`` steps; see ``nsvm_cli.trainers.averaging``.
    """
    none = F.theta[:0].reshape((0, 1))
    while progress.t[0] < until:
        t = progress.t[0] + 1
        A = drawn[t - first].copy()
        x_A, y_A = rows_of(samples.x, A), samples.y[A]
        progress.t[0] = t
        if not descend_on_batch(F, K, o, progress, A, x_A, y_A, none, t, classes, centred, 0.0):
            return BAD_OBJECTIVE
        n = t - (o.T - averaged)
        if n > 0 and averaged > 0:
            for p in range(len(mean)):
                mean[p] += (F.theta[p] - mean[p]) / mean.dtype.type(n)
            if t == o.T:
                for p in range(len(mean)):
                    F.theta[p] = mean[p]
    return DONE
