"""Steps in theta, compiled; see ``nsvm_cli.models.optimizers``."""

from __future__ import annotations

import math
from typing import Any

from nsvm_cli.engines.numba.forms import COSINE, LINEAR_SCHEDULE, Network, Optimizer, Progress
from nsvm_cli.engines.numba.jit import jit
from nsvm_cli.engines.numba.networks import Passed, backward


@jit
def rate(o: Optimizer, t: int) -> float:
    """Return the learning rate of step t."""
    progress = (t - 1) / o.T
    value: float = o.lr * (min(1.0, progress / o.warmup) if o.warmup > 0 else 1.0)
    if o.schedule == LINEAR_SCHEDULE:
        value *= 1.0 - progress
    elif o.schedule == COSINE:
        value *= (1.0 + math.cos(math.pi * progress)) / 2
    return value


@jit
def descend(o: Optimizer, theta: Any, by_theta: Any, t: int) -> None:
    """Move theta against its gradient, in step t."""
    real = theta.dtype.type
    o.steps[0] += 1
    size, decay, momentum = real(rate(o, t)), real(o.weight_decay), real(o.momentum)
    for k in range(len(theta)):
        o.momenta[k] = momentum * o.momenta[k] + by_theta[k] + decay * theta[k]
        theta[k] -= size * o.momenta[k]


@jit
def theta_step(
    F: Network,
    o: Optimizer,
    progress: Progress,
    passed: Passed,
    by_z: Any,
    value: float,
    t: int,
) -> bool:
    """Descend on an objective with this value and this gradient with respect to z, in step t.

    Return False, without a step, if the value is not finite. For ``passed`` see ``networks``.
    """
    if not math.isfinite(value):
        return False
    descend(o, F.theta, backward(F, passed, by_z), t)
    progress.objectives[0] += value
    progress.objectives[1] += 1
    progress.objectives[2] = value
    return True
