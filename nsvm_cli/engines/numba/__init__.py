"""The compiled engine: whole stretches of steps as functions of machine code, which Numba makes.

It covers small networks, fully connected or with two convolutions (see ``coverage``).

A stretch may end after any step. So what outlives a step is computed by one function, in one order, wherever
it is needed: when the step ends, and when the next stretch begins. The compiler may rearrange a sum anew at
each place that a function is inlined into; ``jit_in_order`` forbids it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from nsvm_cli.engines.numba.code import is_compiled
from nsvm_cli.engines.numba.coverage import uncovered, units
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.trainers import Problem, Trainer


def can_take(trainer: Trainer[Any], problem: Problem, F: FeatureMap) -> bool:
    """Return whether compiled functions can take the steps of a run here."""
    return not uncovered(trainer, problem, F) and is_usable()


@cache
def is_usable() -> bool:
    """Return whether Numba is installed, and fits the packages that it finds."""
    try:
        import numba  # noqa: F401  # half a second: only where it is about to be used
    except ImportError:
        return False
    return True


def is_ready(trainer: Trainer[Any], problem: Problem, F: FeatureMap) -> bool:
    """Return whether the functions for these steps have been compiled before."""
    return all(map(is_compiled, units(trainer, problem, F)))
