"""Which steps are evaluated together, compiled; see ``nsvm_cli.engines.look_ahead``.

Groups of steps begin after a violation, or with the block of steps that are drawn together, and their length
depends on the gaps between violations before. So the steps at which a caller pauses do not affect the groups,
nor what is rounded in them.
"""

from __future__ import annotations

import math
from typing import Any

from nsvm_cli.engines.numba.forms import Progress
from nsvm_cli.engines.numba.jit import jit

LONGEST = 64
"""Samples of the longest group."""


@jit
def group(progress: Progress, first: int, last: int, k: int) -> Any:
    """Return the first step and the step after the last one of the group that the next step is in.

    Args:
        progress: the state.
        first: the first step of the block.
        last: its last step.
        k: the number of samples that a step draws.
    """
    gap = progress.mean_gap[0]
    steps = max(1, int(min(1.5 * math.sqrt(gap) + gap / 3, LONGEST)) // k)
    if k == 1 and steps > 2:
        steps += -steps % 4  # products are computed for four samples at a time
    begin = max(first, progress.last_violation[0] + 1)
    begin += (progress.t[0] + 1 - begin) // steps * steps
    return begin, min(begin + steps, last + 1)


@jit
def note_violation(progress: Progress, t: int) -> None:
    """Note that step t had a violation."""
    progress.mean_gap[0] += (t - progress.last_violation[0] - progress.mean_gap[0]) / 8
    progress.last_violation[0] = t
