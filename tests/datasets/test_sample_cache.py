"""Samples that several runs of a process share."""

from __future__ import annotations

import numpy as np
import pytest

from nsvm_cli.datasets import SampleCache, load_data
from nsvm_cli.datasets.image_files import SklearnDigits

DIGITS = {"name": "digits", "classes": [0, 1], "validation": 0}


def test_samples_are_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = []
    load = SklearnDigits.load
    monkeypatch.setattr(SklearnDigits, "load", lambda self, rng: loads.append(self) or load(self, rng))
    cache = SampleCache()
    for seed in (0, 1):
        data, alone = load_data(DIGITS, seed, cache=cache), load_data(DIGITS, seed)
        np.testing.assert_array_equal(data.splits["train"].x, alone.splits["train"].x)
    assert len(loads) == 3
    sizes = load_data(DIGITS | {"validation": 10}, 1, cache=cache).splits.sizes
    assert (len(loads), sizes["validation"]) == (3, 20), "they are split later"
    load_data(DIGITS | {"classes": [0, 2]}, 0, cache=cache)
    assert len(loads) == 4
    first, second = (load_data({"name": "ringnorm", "samples": 300}, seed, cache=cache) for seed in (0, 1))
    assert first.sha256 != second.sha256, "samples that are drawn are drawn for each seed"
