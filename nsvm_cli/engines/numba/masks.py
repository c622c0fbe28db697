"""Dropout masks, as ``nsvm_cli.models.dropout.Masks`` has them."""

from __future__ import annotations

from typing import Any

import numpy as np

from nsvm_cli import randomness
from nsvm_cli.engines.numba.forms import Dropout, Network
from nsvm_cli.engines.numba.jit import jit
from nsvm_cli.engines.numba.networks import layer_of
from nsvm_cli.randomness import GOLDEN, LAYER

mixed = jit(randomness.mixed)


@jit
def number_at(key: int, place: int) -> Any:
    """Return the number at a place of the sequence that ``key`` begins."""
    return mixed(np.int64(place) * np.int64(GOLDEN) + np.int64(key))


@jit
def masks_for(F: Network, t: int, i: Any) -> Any:
    """Return the masks of the samples i in step t, layer by layer: 0 or 1 / (1 - p).

    There are none, None, without dropout, and there is one for all samples if they share it.
    """
    return _masks(F, F.dropout, t, i)


@jit
def _masks(F: Network, dropout: Dropout | None, t: int, i: Any) -> Any:
    if dropout is None:
        return None
    samples = np.zeros(1, np.int64) if dropout.shared else i
    numbers = 0
    for number in range(len(F.layers)):
        layer = layer_of(F, number)
        numbers += layer.d * len(samples) if layer.masked else 0
    drawn, at, masked, key = np.empty(numbers, F.theta.dtype), 0, 0, number_at(dropout.seed, t)
    kept, none = F.theta.dtype.type(1 / (1 - dropout.p)), F.theta.dtype.type(0)
    for number in range(len(F.layers)):
        layer = layer_of(F, number)
        if layer.masked:
            for j in samples:
                for unit in range(layer.d):
                    dropped = number_at(key, masked * LAYER + j * layer.d + unit) < dropout.dropped_below
                    drawn[at] = none if dropped else kept
                    at += 1
            masked += 1
    return drawn
