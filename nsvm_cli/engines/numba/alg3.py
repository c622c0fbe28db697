"""A stretch of Algorithm 3, compiled; see ``nsvm_cli.trainers.alg3``."""

from __future__ import annotations

from typing import Any

import numpy as np

from nsvm_cli.engines.numba.columns import centre, column_sums, columns_of
from nsvm_cli.engines.numba.elements import add_matrix
from nsvm_cli.engines.numba.forms import (
    BAD_G,
    BAD_OBJECTIVE,
    DONE,
    Network,
    Optimizer,
    Progress,
    Support,
    TrainingSet,
)
from nsvm_cli.engines.numba.jit import jit
from nsvm_cli.engines.numba.kernels import COLUMNS, RBF
from nsvm_cli.engines.numba.losses import decide
from nsvm_cli.engines.numba.networks import feature_columns, features, room_for
from nsvm_cli.engines.numba.objectives import descend_on_batch
from nsvm_cli.engines.numba.supports import add, alpha_of, rows_of


def stretch(
    F: Network,
    o: Optimizer,
    K: RBF,
    samples: TrainingSet,
    support: Support,
    progress: Progress,
    drawn: Any,
    first: int,
    until: int,
    mu: float,
    centred: bool,
) -> int:
    """Take the steps up to ``until``, whose samples, from step ``first`` on, are the rows of ``drawn``."""
    k, C = drawn.shape[1], support.alpha.shape[1]
    g, steps = np.empty((k, C)), np.empty((k, C))
    while progress.t[0] < until:
        t = progress.t[0] + 1
        A = drawn[t - first].copy()
        x_A = rows_of(samples.x, A)
        s = _sums(F, K, samples, support, x_A)
        violations, _ = decide(samples, A, s, t, t + 1, g, steps, progress)
        if violations < 0:
            return BAD_G
        for v in range(k):
            add(support, A[v], steps[v], k)
        alpha_A, y_A = alpha_of(support, A, F.theta), samples.y[A]
        if not descend_on_batch(F, K, o, progress, A, x_A, y_A, alpha_A, t, C, centred, mu):
            return BAD_OBJECTIVE
    return DONE


@jit
def _sums(F: Network, K: RBF, samples: TrainingSet, support: Support, x_A: Any) -> Any:
    """Return sum_j alpha_j K(F_theta(x_j), F_theta(x_i)) for every i in A."""
    z_A, out = features(F, x_A), np.zeros((len(x_A), support.alpha.shape[1]), F.theta.dtype)
    passed, z = room_for(F, COLUMNS), columns_of(z_A[:0], COLUMNS)
    for begin in range(0, support.joined[0], COLUMNS):
        j = support.order[begin : min(begin + COLUMNS, support.joined[0])]
        feature_columns(F, samples.x, j, passed, z.z[0])
        add_matrix(out, column_sums(K, centre(K, z_A, z, len(j)), z, alpha_of(support, j, F.theta)))
    return out
