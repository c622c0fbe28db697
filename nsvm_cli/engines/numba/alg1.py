"""A stretch of Algorithm 1, compiled; see ``nsvm_cli.trainers.alg1``."""

from __future__ import annotations

from typing import Any

import numpy as np

from nsvm_cli.engines.numba.columns import (
    FeatureColumns,
    add_term_gradient,
    set_term,
    term_columns,
    term_sums,
)
from nsvm_cli.engines.numba.elements import scale, set_row
from nsvm_cli.engines.numba.forms import (
    BAD_G,
    BAD_OBJECTIVE,
    DONE,
    Network,
    Optimizer,
    Progress,
    TrainingSet,
)
from nsvm_cli.engines.numba.jit import jit
from nsvm_cli.engines.numba.kernels import COLUMNS, RBF
from nsvm_cli.engines.numba.look_ahead import group, note_violation
from nsvm_cli.engines.numba.losses import decide
from nsvm_cli.engines.numba.masks import masks_for
from nsvm_cli.engines.numba.networks import features, forward, room_for, width
from nsvm_cli.engines.numba.optimizers import theta_step
from nsvm_cli.engines.numba.supports import acting, rows_of, scaled


def stretch(
    F: Network,
    o: Optimizer,
    K: RBF,
    samples: TrainingSet,
    i_s: Any,
    z_s: Any,
    alpha_s: Any,
    filled: Any,
    progress: Progress,
    drawn: Any,
    first: int,
    until: int,
) -> int:
    """Take the steps up to ``until``, whose samples, from step ``first`` on, are the rows of ``drawn``.

    ``i_s``, ``z_s`` and ``alpha_s`` have ``filled`` terms, and room for those that may be added.
    """
    k, C = drawn.shape[1], alpha_s.shape[1]
    g, steps = np.empty((k, C)), np.empty((k, C))
    columns = term_columns(K, z_s[: filled[0]], len(z_s))
    while progress.t[0] < until:
        begin, end = group(progress, first, first + len(drawn) - 1, k)
        i = drawn[begin - first : end - first].copy().reshape(-1)
        x = rows_of(samples.x, i)
        z = features(F, x)
        s = term_sums(K, z, z_s[: filled[0]], columns, alpha_s[: filled[0]])
        violations, _ = decide(samples, i, s, begin, min(end, until + 1), g, steps, progress)
        if violations < 0:
            return BAD_G
        if violations > 0:
            t, at = progress.t[0], acting(steps, violations)
            rows = (t - begin) * k + at
            x_t, z_t, alpha_t = rows_of(x, rows), rows_of(z, rows), scaled(steps, at, 1 / k, z)
            terms = z_s[: filled[0]], columns, alpha_s[: filled[0]]
            if not _descend(F, K, o, progress, x_t, i[rows], alpha_t, *terms, samples.lam, t):
                return BAD_OBJECTIVE
            for v in range(violations):
                i_s[filled[0]] = i[rows[v]]
                set_row(z_s, filled[0], z_t, v)
                set_row(alpha_s, filled[0], alpha_t, v)
                set_term(columns, filled[0], z_t[v])
                filled[0] += 1
            note_violation(progress, t)
    return DONE


@jit
def _descend(
    F: Network,
    K: RBF,
    o: Optimizer,
    progress: Progress,
    x_t: Any,
    i_t: Any,
    alpha_t: Any,
    z_s: Any,
    columns: FeatureColumns | None,
    alpha_s: Any,
    lam: float,
    t: int,
) -> bool:
    """Descend on -alpha_t / (lambda (t-1)) sum_s alpha_s K(z_s, F_theta(x_t)), summed over violations.

    Return whether the objective is finite.
    """
    real, v = F.theta.dtype.type, len(x_t)
    passed, z = room_for(F, v), np.empty((v, width(F)), F.theta.dtype)
    forward(F, x_t, passed, z, masks_for(F, t, i_t), 0)
    a = alpha_t.copy()
    scale(a, real(-1 / (lam * (t - 1))))
    value, by_z = 0.0, np.zeros_like(z)
    for begin in range(0, len(z_s), COLUMNS):
        end = min(begin + COLUMNS, len(z_s))
        c = np.dot(a, alpha_s[begin:end].T)
        value += add_term_gradient(K, z, z_s, columns, begin, end, c, by_z)
    return theta_step(F, o, progress, passed, by_z, value, t)
