"""A stretch of Algorithm 0, compiled; see ``nsvm_cli.trainers.pegasos``."""

from __future__ import annotations

from typing import Any

import numpy as np

from nsvm_cli.engines.numba.elements import set_row
from nsvm_cli.engines.numba.forms import BAD_G, DONE, Progress, Support, TrainingSet
from nsvm_cli.engines.numba.kernels import RBF, sums, values
from nsvm_cli.engines.numba.look_ahead import note_violation
from nsvm_cli.engines.numba.losses import decide
from nsvm_cli.engines.numba.supports import add, alpha_of, rows_of

GROUP = 64
"""Samples whose s is computed together."""


def stretch(
    K: RBF,
    samples: TrainingSet,
    support: Support,
    z_support: Any,
    progress: Progress,
    drawn: Any,
    first: int,
    until: int,
    s: Any,
    held: Any,
) -> int:
    """Take the steps up to ``until``, whose samples, from step ``first`` on, are the rows of ``drawn``.

    ``samples.x`` are features. ``z_support`` has those of the support, and room for those that may join. The
    steps of a group share one evaluation of ``s``, which violations within the group then change. Its bits
    depend on the order of these changes, so a caller that pauses within a group keeps it, and ``held``: the
    first step of that group, or 0.
    """
    k, C = drawn.shape[1], support.alpha.shape[1]
    steps_of_group = max(1, GROUP // k)
    g, steps = np.empty((k, C)), np.empty((k, C))
    while progress.t[0] < until:
        begin = first + (progress.t[0] + 1 - first) // steps_of_group * steps_of_group
        end = min(begin + steps_of_group, first + len(drawn))
        i = drawn[begin - first : end - first].copy().reshape(-1)
        z = rows_of(samples.x, i)
        K_ii = values(K, z, z)
        if held[0] != begin:
            held[0] = begin
            j = support.order[: support.joined[0]]
            s_i = sums(K, z, z_support[: len(j)], alpha_of(support, j, z))
            for row in range(len(i)):
                set_row(s, row, s_i, row)
        while progress.t[0] + 1 < min(end, until + 1):
            violations, _ = decide(samples, i, s, begin, min(end, until + 1), g, steps, progress)
            if violations < 0:
                return BAD_G
            t, row = progress.t[0], (progress.t[0] - begin) * k
            if violations > 0:
                for at in range(k):
                    if steps[at].any():
                        if add(support, i[row + at], steps[at], k):
                            set_row(z_support, support.joined[0] - 1, z, row + at)
                        for r in range(C):
                            for other in range(len(i)):
                                s[other, r] += K_ii[row + at, other] * (steps[at, r] / k)
                note_violation(progress, t)
        if progress.t[0] + 1 == end:
            held[0] = 0
    return DONE
