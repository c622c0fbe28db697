"""A stretch of Algorithm 1, compiled; see ``nsvm_cli.trainers.alg1``."""

from __future__ import annotations

from typing import Any

import numpy as np

from nsvm_cli.engines.numba.columns import (
    Columns,
    column_gradient,
    column_sums,
    column_values,
    columns_of,
    set_column,
)
from nsvm_cli.engines.numba.elements import add_matrix, inner, scale, set_row
from nsvm_cli.engines.numba.forms import (
    BAD_G,
    BAD_OBJECTIVE,
    DONE,
    Kernel,
    Network,
    Optimizer,
    Progress,
    Samples,
    ShiftedRBF,
)
from nsvm_cli.engines.numba.jit import by_type, jit
from nsvm_cli.engines.numba.kernels import COLUMNS, gradient, sums, values
from nsvm_cli.engines.numba.look_ahead import group, note_violation
from nsvm_cli.engines.numba.losses import decide
from nsvm_cli.engines.numba.masks import masks_for
from nsvm_cli.engines.numba.networks import features, forward, room_for, width
from nsvm_cli.engines.numba.optimizers import theta_step
from nsvm_cli.engines.numba.supports import acting, rows_of, scaled


def stretch(
    F: Network,
    o: Optimizer,
    K: Kernel,
    samples: Samples,
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
    columns = _columns(K, z_s[: filled[0]], len(z_s))
    while progress.t[0] < until:
        begin, end = group(progress, first, first + len(drawn) - 1, k)
        i = drawn[begin - first : end - first].copy().reshape(-1)
        x = rows_of(samples.x, i)
        z = features(F, x)
        s = _sums(K, z, z_s[: filled[0]], columns, alpha_s[: filled[0]])
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
                _set_column(K, columns, filled[0], z_t[v])
                filled[0] += 1
            note_violation(progress, t)
    return DONE


@jit
def _descend(
    F: Network,
    K: Kernel,
    o: Optimizer,
    progress: Progress,
    x_t: Any,
    i_t: Any,
    alpha_t: Any,
    z_s: Any,
    columns: Columns,
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
        value += _add_gradient(K, z, z_s, columns, begin, end, c, by_z)
    return theta_step(F, o, progress, passed, by_z, value, t)


@by_type
@jit
def _columns(K: Kernel, z_s: Any, room: int) -> Any:
    """Return the features of the terms as columns, with room for others, or None if K does without."""
    return columns_of(z_s, room)


@_columns.register(ShiftedRBF)
@jit
def _(K: ShiftedRBF, z_s: Any, room: int) -> Any:
    return None


@by_type
@jit
def _set_column(K: Kernel, columns: Columns, j: int, z: Any) -> None:
    set_column(columns, j, z)


@_set_column.register(ShiftedRBF)
@jit
def _(K: ShiftedRBF, columns: None, j: int, z: Any) -> None:
    pass


@by_type
@jit
def _sums(K: Kernel, z: Any, z_s: Any, columns: Columns, alpha_s: Any) -> Any:
    """Return sum_s alpha_s K(z_s, z_i) for every i."""
    return column_sums(K, z, columns, alpha_s)


@_sums.register(ShiftedRBF)
@jit
def _(K: ShiftedRBF, z: Any, z_s: Any, columns: None, alpha_s: Any) -> Any:
    return sums(K, z, z_s, alpha_s)


@by_type
@jit
def _add_gradient(
    K: Kernel, z: Any, z_s: Any, columns: Columns, begin: int, end: int, c: Any, by_z: Any
) -> Any:
    """Return sum_is c_is K(z_i, z_s) over these terms, and add its gradient with respect to z to ``by_z``."""
    K_ts = column_values(K, z, columns, begin // COLUMNS, end - begin)
    value = inner(K_ts, c)
    column_gradient(K, z, columns, begin // COLUMNS, K_ts, c, by_z)
    return value


@_add_gradient.register(ShiftedRBF)
@jit
def _(K: ShiftedRBF, z: Any, z_s: Any, columns: None, begin: int, end: int, c: Any, by_z: Any) -> Any:
    K_ts = values(K, z, z_s[begin:end])
    add_matrix(by_z, gradient(K, z, z_s[begin:end], K_ts, c))
    return inner(K_ts, c)
