"""A stretch of Algorithm 2, compiled; see ``nsvm_cli.trainers.alg2``."""

from __future__ import annotations

from typing import Any

import numpy as np

from nsvm_cli.engines.numba.elements import add_matrix, inner, set_row
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
from nsvm_cli.engines.numba.kernels import RBF, gradient, sums, values
from nsvm_cli.engines.numba.look_ahead import group, note_violation
from nsvm_cli.engines.numba.losses import decide
from nsvm_cli.engines.numba.masks import masks_for
from nsvm_cli.engines.numba.networks import ROWS, Passed, features, forward, room_for, width
from nsvm_cli.engines.numba.optimizers import theta_step
from nsvm_cli.engines.numba.supports import acting, add, alpha_of, rows_of, scaled


def stretch(
    F: Network,
    o: Optimizer,
    K: RBF,
    samples: TrainingSet,
    support: Support,
    x_j: Any,
    progress: Progress,
    drawn: Any,
    first: int,
    until: int,
) -> int:
    """Take the steps up to ``until``, whose samples, from step ``first`` on, are the rows of ``drawn``.

    ``x_j`` has the samples of the support, and room for those that may join.
    """
    k, C = drawn.shape[1], support.alpha.shape[1]
    g, steps = np.empty((k, C)), np.empty((k, C))
    passed, z_j, stale = room_for(F, len(x_j)), np.empty((len(x_j), width(F)), F.theta.dtype), True
    while progress.t[0] < until:
        j = support.order[: support.joined[0]]
        if stale:
            forward(F, x_j[: len(j)], passed, z_j[: len(j)], None, 0)
            stale = False
        begin, end = group(progress, first, first + len(drawn) - 1, k)
        i = drawn[begin - first : end - first].copy().reshape(-1)
        z = features(F, rows_of(samples.x, i))
        s = sums(K, z, z_j[: len(j)], alpha_of(support, j, z))
        violations, _ = decide(samples, i, s, begin, min(end, until + 1), g, steps, progress)
        if violations < 0:
            return BAD_G
        if violations > 0:
            t, acts = progress.t[0], acting(steps, violations)
            i_t = i[(t - begin) * k + acts]
            at, rows = _places(support, i_t)
            batch = np.empty(rows, np.int64)
            for v in range(len(j)):
                batch[v] = j[v]
            for v in range(violations):
                set_row(x_j, at[v], samples.x, i_t[v])
                batch[at[v]] = i_t[v]
            a = scaled(steps, acts, -1 / (samples.lam * (t - 1) * k), z)
            alpha_j = alpha_of(support, j, z)
            if not _descend(F, K, o, progress, x_j[:rows], batch, alpha_j, at, a, z_j[:rows], passed, t):
                return BAD_OBJECTIVE
            for v in range(violations):
                add(support, i_t[v], steps[acts[v]], k)
            note_violation(progress, t)
            stale = True
    return DONE


@jit
def _places(support: Support, i: Any) -> Any:
    """Return the rows of the batch that the violating samples i are in, those of the support or after it, and
    how many rows it has.
    """
    at, new = np.empty(len(i), np.int64), support.joined[0]
    for v in range(len(i)):
        if support.member[i[v]]:
            at[v] = 0
            while support.order[at[v]] != i[v]:
                at[v] += 1
        else:
            at[v] = new
            new += 1
    return at, new


@jit
def _descend(
    F: Network,
    K: RBF,
    o: Optimizer,
    progress: Progress,
    x_j: Any,
    batch: Any,
    alpha_j: Any,
    at: Any,
    a: Any,
    z_j: Any,
    passed: Passed,
    t: int,
) -> bool:
    """Descend on -alpha_i / (lambda (t-1)) sum_j alpha_j K(F_theta(x_j), F_theta(x_i)), summed over i.

    The batch is the support, followed by those i that do not belong to it; ``at`` has the rows of the i,
    and ``batch`` the index of each row.
    Return whether the objective is finite.
    """
    rows, s = len(x_j), len(alpha_j)
    # the support has passed already, though in a shorter last block if any i follow
    forward(F, x_j, passed, z_j, masks_for(F, t, batch), s if rows == s else s // ROWS * ROWS)
    z_i = rows_of(z_j, at)
    K_ji = values(K, z_j[:s], z_i)
    c = np.dot(alpha_j, a.T)
    by_z = np.zeros((rows, z_j.shape[1]), z_j.dtype)
    add_matrix(by_z, gradient(K, z_j[:s], z_i, K_ji, c))
    by_z_i = gradient(K, z_i, z_j[:s], K_ji.T.copy(), c.T.copy())
    for v in range(len(at)):
        for k in range(by_z.shape[1]):
            by_z[at[v], k] += by_z_i[v, k]
    return theta_step(F, o, progress, passed, by_z, inner(K_ji, c), t)
