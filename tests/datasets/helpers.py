"""Shared helpers for the tests of data sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nsvm_cli.datasets import Data, Samples, load_data
from nsvm_cli.errors import InputError


def load(name: str, seed: int = 0, **settings: Any) -> Data:
    return load_data({"name": name, **settings}, seed)


def refusal(name: str, **settings: Any) -> str:
    """Return the one-line error for a data set that cannot be loaded with these settings."""
    with pytest.raises(InputError) as caught:
        load(name, **settings)
    message = str(caught.value)
    assert message
    assert len(message.splitlines()) == 1
    return message


def labelled(negative: int, positive: int, official_test: int | None = None) -> Samples:
    """Return samples of mixed classes whose only feature is the number of their row."""
    y = np.concatenate([np.full(negative, -1.0), np.full(positive, 1.0)])
    y = np.random.default_rng(3).permutation(y)
    return Samples(np.arange(len(y), dtype=np.float64)[:, None], y, ("no", "yes"), "a table", official_test)
