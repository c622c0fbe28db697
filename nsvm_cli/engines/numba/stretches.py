"""Compiled training loops (stretches), which take the steps of Algorithms 0 to 4 up to step ``until``.

The argument ``drawn`` holds the sample indices of the steps in its rows, beginning with step ``first``.
Algorithms 1 and 2 evaluate groups of steps
together, like ``nsvm_cli.engines.look_ahead``. A group begins after a violation, or with a block of steps
that are drawn together. The steps at which a caller pauses therefore do not affect rounding.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nsvm_cli.engines.numba.arrays import add_matrix, inner, rows_of, scale, scaled_rows, set_row
from nsvm_cli.engines.numba.forms import Progress, Run, Support
from nsvm_cli.engines.numba.jit import jit
from nsvm_cli.engines.numba.kernels import (
    COLUMNS,
    FeatureColumns,
    add_term_gradient,
    centre,
    column_sums,
    columns_of,
    gradient,
    set_column,
    sums,
    values,
)
from nsvm_cli.engines.numba.networks import ROWS, feature_columns, features, forward, room_for
from nsvm_cli.engines.numba.objectives import descend_on_batch, theta_step
from nsvm_cli.models.losses import Hinge

LONGEST = 64
"""Maximum number of samples that are evaluated together."""

slope = jit(Hinge.slope)


@jit
def increments(y: float, w: float, g: Any, row: int, out: Any) -> Any:
    """Write to row ``row`` of ``out`` the increments of alpha for a sample with label y and weight w.

    g_row holds the sample's decision values. Return whether the increments are not 0, and whether the
    prediction, the first class with the largest g, is correct. For several classes, the loss is the loss of
    Crammer and Singer.
    """
    C = g.shape[1]
    if C == 1:
        out[row, 0] = slope(y * g[row, 0]) * y * w
        return out[row, 0] != 0, (g[row, 0] >= 0) == (y > 0)
    label, rival = int(y), -1
    for r in range(C):
        out[row, r] = 0.0
        if r != label and (rival < 0 or g[row, r] > g[row, rival]):
            rival = r
    margin = g[row, label] - g[row, rival]
    amount = slope(margin) * w
    out[row, label], out[row, rival] = amount, -amount
    return amount != 0, margin > 0 or (margin == 0 and label < rival)


@jit
def decide(run: Run, i: Any, s: Any, begin: int, end: int, g: Any, steps: Any) -> int:
    """Take the next steps before ``end``, up to and including the first step with a margin violation.

    ``i`` and ``s`` hold the samples of the steps from ``begin`` on, and their scores (see ``look_ahead``).
    Write g and the increments (``steps``) of the last step taken, and return its number of violations.
    """
    k, C, y, progress = len(g), g.shape[1], run.y, run.progress
    t, violations, decided = progress.t[0], 0, progress.decided
    while violations == 0 and t + 1 < end:
        t, correct = t + 1, 0
        for row in range(k):
            at = (t - begin) * k + row
            for r in range(C):
                g[row, r] = s[at, r] / (run.lam * (t - 1))
                if not math.isfinite(g[row, r]):
                    progress.t[0] = t
                    raise FloatingPointError("the decision value g")
            weight = run.w[i[at]] if len(run.w) > 0 else 1.0
            violates, is_correct = increments(y[i[at]], weight, g, row, steps)
            violations += violates
            correct += is_correct
        decided[0] += k
        decided[1] += correct
    decided[2] += violations
    progress.t[0], progress.g[0] = t, g[0, 0]
    if violations > 0:
        progress.mean_gap[0] += (t - progress.last_violation[0] - progress.mean_gap[0]) / 8
        progress.last_violation[0] = t
    return violations


@jit
def group(progress: Progress, drawn: Any, first: int) -> Any:
    """Return the next group of steps: its first step, the step after its last step, and its samples."""
    gap, k = progress.mean_gap[0], drawn.shape[1]
    steps = max(1, int(min(1.5 * math.sqrt(gap) + gap / 3, LONGEST)) // k)
    if k == 1 and steps > 2:
        steps += -steps % 4  # products are computed for four samples at a time
    begin = max(first, progress.last_violation[0] + 1)
    begin += (progress.t[0] + 1 - begin) // steps * steps
    end = min(begin + steps, first + len(drawn))
    return begin, end, drawn[begin - first : end - first].copy().reshape(-1)


@jit
def violating_rows(steps: Any, count: int) -> Any:
    """Return the indices of the ``count`` rows of ``steps`` that are not 0."""
    rows, filled = np.empty(count, np.int64), 0
    for row in range(len(steps)):
        if steps[row].any():
            rows[filled] = row
            filled += 1
    return rows


@jit
def add(support: Support, i: int, steps: Any, k: int) -> bool:
    """Add 1/k of the increments ``steps`` to alpha_i, and return whether sample i joins the support."""
    joins = not support.member[i] and steps.any()
    if joins:
        support.order[support.joined[0]] = i
        support.joined[0] += 1
        support.member[i] = True
    for r in range(len(steps)):
        support.alpha[i, r] += steps[r] / k
    return joins


def pegasos(
    run: Run, support: Support, z_support: Any, s: Any, group_start: Any, drawn: Any, first: int, until: int
) -> None:
    """Take steps of Algorithm 0.

    ``z_support`` holds the features of the support, with room for new samples. ``s`` holds the scores of a
    group of steps, and its bits depend on the order of updates. A caller that pauses within a group therefore
    keeps ``s`` and ``group_start``, which is the first step of the group, or 0 between groups.
    """
    K, progress, k, C = run.K, run.progress, drawn.shape[1], support.alpha.shape[1]
    steps_of_group = max(1, LONGEST // k)
    g, steps = np.empty((k, C)), np.empty((k, C))
    while progress.t[0] < until:
        begin = first + (progress.t[0] + 1 - first) // steps_of_group * steps_of_group
        end = min(begin + steps_of_group, first + len(drawn))
        i = drawn[begin - first : end - first].copy().reshape(-1)
        z = rows_of(run.x, i)
        K_ii = values(K, z, z)
        if group_start[0] != begin:
            group_start[0] = begin
            j = support.order[: support.joined[0]]
            s_i = sums(K, z, z_support[: len(j)], scaled_rows(support.alpha, j, 1.0, z))
            for row in range(len(i)):
                set_row(s, row, s_i, row)
        while progress.t[0] + 1 < min(end, until + 1):
            violations = decide(run, i, s, begin, min(end, until + 1), g, steps)
            row = (progress.t[0] - begin) * k
            if violations > 0:
                for at in range(k):
                    if steps[at].any():
                        if add(support, i[row + at], steps[at], k):
                            set_row(z_support, support.joined[0] - 1, z, row + at)
                        for r in range(C):
                            for other in range(len(i)):
                                s[other, r] += K_ii[row + at, other] * (steps[at, r] / k)
        if progress.t[0] + 1 == end:
            group_start[0] = 0


def alg1(run: Run, i_s: Any, z_s: Any, alpha_s: Any, filled: Any, drawn: Any, first: int, until: int) -> None:
    """Take steps of Algorithm 1. ``i_s``, ``z_s`` and ``alpha_s`` hold ``filled`` terms and room for more."""
    F, K, progress, k, C = run.F, run.K, run.progress, drawn.shape[1], alpha_s.shape[1]
    g, steps = np.empty((k, C)), np.empty((k, C))
    columns = columns_of(z_s[: filled[0] if K.normalized else 0], len(z_s) if K.normalized else 0)
    while progress.t[0] < until:
        begin, end, i = group(progress, drawn, first)
        x = rows_of(run.x, i)
        z = features(F, x)
        if K.normalized:
            s = column_sums(K, z, columns, alpha_s[: filled[0]])
        else:
            s = sums(K, z, z_s[: filled[0]], alpha_s[: filled[0]])
        violations = decide(run, i, s, begin, min(end, until + 1), g, steps)
        if violations > 0:
            t, at = progress.t[0], violating_rows(steps, violations)
            rows = (t - begin) * k + at
            x_t, z_t, alpha_t = rows_of(x, rows), rows_of(z, rows), scaled_rows(steps, at, 1 / k, z)
            terms = z_s[: filled[0]], columns, alpha_s[: filled[0]]
            _descend_on_terms(run, t, x_t, i[rows], alpha_t, *terms)
            for v in range(violations):
                i_s[filled[0]] = i[rows[v]]
                set_row(z_s, filled[0], z_t, v)
                set_row(alpha_s, filled[0], alpha_t, v)
                if K.normalized:
                    set_column(columns, filled[0], z_t[v])
                filled[0] += 1


@jit
def _descend_on_terms(
    run: Run, t: int, x_t: Any, i_t: Any, alpha_t: Any, z_s: Any, columns: FeatureColumns, alpha_s: Any
) -> None:
    """Take a step in theta. The objective of Algorithm 1, summed over all violating samples x_t, is::

    -alpha_t / (lambda (t-1)) sum_s alpha_s K(z_s, F_theta(x_t))
    """
    F, real, v = run.F, run.x.dtype.type, len(x_t)
    passed, z = room_for(F, v), np.empty((v, F.width), F.theta.dtype)
    forward(F, x_t, passed, z, t, i_t, 0)
    a = alpha_t.copy()
    scale(a, real(-1 / (run.lam * (t - 1))))
    value, grad_z = 0.0, np.zeros_like(z)
    for begin in range(0, len(z_s), COLUMNS):
        end = min(begin + COLUMNS, len(z_s))
        c = np.dot(a, alpha_s[begin:end].T)
        value += add_term_gradient(run.K, z, z_s, columns, begin, end, c, grad_z)
    theta_step(run, t, passed, grad_z, value)


def alg2(run: Run, support: Support, x_j: Any, drawn: Any, first: int, until: int) -> None:
    """Take steps of Algorithm 2. ``x_j`` holds the samples of the support, with room for new samples."""
    F, K, progress, k, C = run.F, run.K, run.progress, drawn.shape[1], support.alpha.shape[1]
    g, steps = np.empty((k, C)), np.empty((k, C))
    passed, z_j, stale = room_for(F, len(x_j)), np.empty((len(x_j), F.width), F.theta.dtype), True
    while progress.t[0] < until:
        j = support.order[: support.joined[0]]
        if stale:
            forward(F, x_j[: len(j)], passed, z_j[: len(j)], 0, j, 0)
            stale = False
        begin, end, i = group(progress, drawn, first)
        z = features(F, rows_of(run.x, i))
        s = sums(K, z, z_j[: len(j)], scaled_rows(support.alpha, j, 1.0, z))
        violations = decide(run, i, s, begin, min(end, until + 1), g, steps)
        if violations > 0:
            t, violating = progress.t[0], violating_rows(steps, violations)
            i_t = i[(t - begin) * k + violating]
            a = scaled_rows(steps, violating, -1 / (run.lam * (t - 1) * k), z)
            alpha_j = scaled_rows(support.alpha, j, 1.0, z)  # before the update
            for v in range(violations):
                if add(support, i_t[v], steps[violating[v]], k):
                    set_row(x_j, support.joined[0] - 1, run.x, i_t[v])
            at, batch = _places(support, i_t), support.order[: support.joined[0]]
            _descend_on_support(run, t, x_j[: len(batch)], batch, alpha_j, at, a, z_j[: len(batch)], passed)
            stale = True


@jit
def _places(support: Support, i: Any) -> Any:
    """Return the positions of samples i in the support, which must contain them."""
    at = np.zeros(len(i), np.int64)
    for v in range(len(i)):
        while support.order[at[v]] != i[v]:
            at[v] += 1
    return at


@jit
def _descend_on_support(
    run: Run, t: int, x_j: Any, batch: Any, alpha_j: Any, at: Any, a: Any, z_j: Any, passed: Any
) -> None:
    """Take a step in theta on the objective of Algorithm 2, a sum over all violating samples x_i::

        sum_i a_i sum_j alpha_j K(F_theta(x_j), F_theta(x_i))

    Here a_i is -1/(lambda (t-1) k) times the increment of alpha_i.
    """
    # the batch is the support, which ends with new samples without alpha_j; ``at`` holds the rows of all x_i
    F, K, rows, s = run.F, run.K, len(x_j), len(alpha_j)
    # the support has passed already, except for its last block if that is lengthened by new samples
    forward(F, x_j, passed, z_j, t, batch, s if rows == s else s // ROWS * ROWS)
    z_i = rows_of(z_j, at)
    K_ji = values(K, z_j[:s], z_i)
    c = np.dot(alpha_j, a.T)
    grad_z = np.zeros((rows, z_j.shape[1]), z_j.dtype)
    add_matrix(grad_z, gradient(K, z_j[:s], z_i, K_ji, c))
    grad_z_i = gradient(K, z_i, z_j[:s], K_ji.T.copy(), c.T.copy())
    for v in range(len(at)):
        for k in range(grad_z.shape[1]):
            grad_z[at[v], k] += grad_z_i[v, k]
    theta_step(run, t, passed, grad_z, inner(K_ji, c))


def alg3(run: Run, support: Support, mu: float, centred: bool, drawn: Any, first: int, until: int) -> None:
    """Take steps of Algorithm 3."""
    progress, k, C = run.progress, drawn.shape[1], support.alpha.shape[1]
    g, steps = np.empty((k, C)), np.empty((k, C))
    while progress.t[0] < until:
        t = progress.t[0] + 1
        A = drawn[t - first].copy()
        decide(run, A, _batch_sums(run, support, A), t, t + 1, g, steps)
        for v in range(k):
            add(support, A[v], steps[v], k)
        descend_on_batch(run, t, A, scaled_rows(support.alpha, A, 1.0, run.x), mu, C, centred)


@jit
def _batch_sums(run: Run, support: Support, A: Any) -> Any:
    """Return sum_j alpha_j K(F_theta(x_j), F_theta(x_i)) for every i in A."""
    F, K, alpha, x = run.F, run.K, support.alpha, run.x
    z_A, out = features(F, rows_of(x, A)), np.zeros((len(A), alpha.shape[1]), x.dtype)
    passed, z = room_for(F, COLUMNS), columns_of(z_A[:0], COLUMNS)
    for begin in range(0, support.joined[0], COLUMNS):
        j = support.order[begin : min(begin + COLUMNS, support.joined[0])]
        feature_columns(F, x, j, passed, z.z[0])
        add_matrix(out, column_sums(K, centre(K, z_A, z, len(j)), z, scaled_rows(alpha, j, 1.0, x)))
    return out


def alg4(
    run: Run, classes: int, centred: bool, mean: Any, unaveraged: int, drawn: Any, first: int, until: int
) -> None:
    """Take steps of Part 1 of Algorithm 4. ``mean`` is theta's mean after step ``unaveraged``, or empty."""
    theta, progress = run.F.theta, run.progress
    while progress.t[0] < until:
        progress.t[0] = t = progress.t[0] + 1
        descend_on_batch(run, t, drawn[t - first].copy(), None, 0.0, classes, centred)
        n = t - unaveraged
        if n > 0:
            for p in range(len(mean)):
                mean[p] += (theta[p] - mean[p]) / theta.dtype.type(n)
