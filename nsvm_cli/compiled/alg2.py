"""A stretch of Algorithm 2, compiled; see ``nsvm_cli.trainers.alg2``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nsvm_cli.compiled.forms import (
    BAD_G,
    BAD_OBJECTIVE,
    DONE,
    NEEDS_MASKS,
    Kernel,
    Masks,
    Network,
    Optimizer,
    Progress,
    Samples,
    Support,
)
from nsvm_cli.compiled.jit import compiled
from nsvm_cli.compiled.kernels import gradient, sums, values
from nsvm_cli.compiled.look_ahead import group, note_violation
from nsvm_cli.compiled.losses import decide
from nsvm_cli.compiled.masks import masks_for, waits_for_masks
from nsvm_cli.compiled.networks import backward, forward, room_for
from nsvm_cli.compiled.optimizers import descend
from nsvm_cli.compiled.supports import add, alpha_of, rows_of


@compiled
def stretch(
    F: Network,
    o: Optimizer,
    masks: Masks,
    K: Kernel,
    samples: Samples,
    support: Support,
    x_j: Any,
    z_j: Any,
    H: Any,
    progress: Progress,
    drawn: Any,
    first: int,
    until: int,
) -> int:
    """Take the steps up to ``until``, whose samples, from step ``first`` on, are the rows of ``drawn``.

    ``x_j`` has the samples of the support; it and ``z_j`` have room for those that may join, and ``H`` for
    what the layers put out at them.
    """
    k, C, n, room = drawn.shape[1], support.alpha.shape[1], z_j.shape[1], len(z_j)
    g, steps, no_masks = np.empty((k, C)), np.empty((k, C)), z_j.reshape(-1)[:0]
    stale = True
    while progress.t[0] < until:
        j = support.order[: support.joined[0]]
        if stale:
            forward(F, x_j, H, room, z_j, no_masks, 0, len(j))
            stale = False
        begin, end = group(progress, first, first + len(drawn) - 1, k)
        i = drawn[begin - first : end - first].copy().reshape(-1)
        x, z, H_i = rows_of(samples.x, i), np.empty((len(i), n), z_j.dtype), room_for(F, len(i))
        forward(F, x, H_i, len(i), z, no_masks, 0, len(i))
        s = sums(K, z, z_j[: len(j)], alpha_of(support, j, z))
        for t in range(progress.t[0] + 1, min(end, until + 1)):
            row = (t - begin) * k
            before = progress.decided[0], progress.decided[1], progress.decided[2]
            violations = decide(samples, i[row : row + k], s[row : row + k], t, g, steps, progress)
            if violations < 0:
                progress.t[0] = t
                return BAD_G
            if violations > 0:
                i_t, at = np.empty(violations, np.int64), np.empty(violations, np.int64)
                new = _places(support, i[row : row + k], steps, i_t, at)
                if waits_for_masks(F, masks):  # this step is then taken again
                    progress.decided[0], progress.decided[1], progress.decided[2] = before
                    masks.ready[0] = -(len(j) + new)
                    return NEEDS_MASKS
                for v in range(violations):
                    x_j[at[v]] = samples.x[i_t[v]]
                a = _amounts(steps, violations, z, -1 / (samples.lam * (t - 1) * k))
                alpha_j = alpha_of(support, j, z)
                if not _descend(F, K, o, masks, progress, x_j, alpha_j, at, a, z_j, H, len(j) + new, t):
                    progress.t[0] = t
                    return BAD_OBJECTIVE
                for v in range(k):
                    if steps[v].any():
                        add(support, i[row + v], steps[v], k)
                note_violation(progress, t)
                stale = True
            progress.t[0] = t
            if violations > 0:
                break
    return DONE


@compiled
def _places(support: Support, i: Any, steps: Any, i_t: Any, at: Any) -> int:
    """Write the violating samples, and the rows of the batch that they are in: those of the support, or after
    it. Return how many are after it.
    """
    found = new = 0
    for v in range(len(i)):
        if steps[v].any():
            i_t[found] = i[v]
            if support.member[i[v]]:
                row = 0
                while support.order[row] != i[v]:
                    row += 1
                at[found] = row
            else:
                at[found] = support.joined[0] + new
                new += 1
            found += 1
    return new


@compiled
def _amounts(steps: Any, violations: int, like: Any, factor: float) -> Any:
    """Return the steps of the violating samples, times a factor."""
    out, found = np.empty((violations, steps.shape[1]), like.dtype), 0
    for v in range(len(steps)):
        if steps[v].any():
            for r in range(steps.shape[1]):
                out[found, r] = steps[v, r] * factor
            found += 1
    return out


@compiled
def _descend(
    F: Network,
    K: Kernel,
    o: Optimizer,
    masks: Masks,
    progress: Progress,
    x_j: Any,
    alpha_j: Any,
    at: Any,
    a: Any,
    z_j: Any,
    H: Any,
    rows: int,
    t: int,
) -> bool:
    """Descend on -alpha_i / (lambda (t-1)) sum_j alpha_j K(F_theta(x_j), F_theta(x_i)), summed over i.

    The batch is the support, followed by those i that do not belong to it; ``at`` has the rows of the i.
    Return whether the objective is finite.
    """
    room, s = len(z_j), len(alpha_j)
    drawn = masks_for(F, masks, rows)
    # without masks the support has passed already
    forward(F, x_j[:rows], H, room, z_j, drawn, 0 if len(drawn) > 0 else s, rows)
    z_i = rows_of(z_j, at)
    K_ji = values(K, z_j[:s], z_i)
    c = np.dot(alpha_j, a.T)
    value = (K_ji * c).sum()
    if not math.isfinite(value):
        return False
    by_z = np.zeros((rows, z_j.shape[1]), z_j.dtype)
    by_z[:s] = gradient(K, z_j[:s], z_i, K_ji, c)
    by_z_i = gradient(K, z_i, z_j[:s], K_ji.T.copy(), c.T.copy())
    for v in range(len(at)):
        by_z[at[v]] += by_z_i[v]
    by_theta = np.zeros_like(F.theta)
    backward(F, x_j, H, room, z_j, by_z, len(drawn) > 0, 0, rows, by_theta)
    descend(o, F.theta, by_theta, t)
    progress.objectives[0] += value
    progress.objectives[1] += 1
    progress.objectives[2] = value
    return True
