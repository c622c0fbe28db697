"""Data sets by their settings: unknown ones are refused with the nearest known one, the others loaded."""

from __future__ import annotations

import numpy as np
import pytest

from nsvm_cli.datasets import DATASETS, SampleCache, load_data
from nsvm_cli.datasets.image_files import SklearnDigits
from tests.datasets.helpers import refusal


@pytest.mark.parametrize(
    ("name", "meant"),
    [("mnits", "mnist"), ("iris", ""), (None, ""), (["mnist"], "")],
)
def test_an_unknown_name(name: str, meant: str) -> None:
    message = refusal(name)
    assert f"there is no dataset {name!r}" in message
    assert (f"did you mean {meant}?" in message) == bool(meant)
    assert all(known in message for known in DATASETS)


@pytest.mark.parametrize(
    ("name", "setting", "meant"),
    [("ringnorm", "sampels", "samples"), ("kmnist", "rot", "root"), ("csv", "seperator", "separator")],
)
def test_an_unknown_setting(name: str, setting: str, meant: str) -> None:
    message = refusal(name, **{setting: 1})
    assert message.startswith(f"dataset.{setting}: {name} has no such setting; did you mean {meant}?")


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_every_data_set_has_a_validation_setting(name: str) -> None:
    path = {"csv": {"path": "any.csv"}, "pmlb": {"table": "letter"}, "openml": {"id": 61}}.get(name, {})
    assert refusal(name, **path, validation=-1) == "dataset.validation should be greater than 0, got -1"
    assert refusal(name, **path, validation="some").startswith("dataset.validation should be a valid number")


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("csv", {}, "dataset.path: csv needs a value"),
        ("csv", {"path": None}, "dataset.path should be a valid string, got None"),
        ("digits", {"classes": [0, 10]}, "dataset.classes: there is no class '10'; did you mean 1? "),
        ("digits", {"classes": [4]}, "dataset.classes: expected two or more different classes, got [4]"),
        ("mnist", {"classes": [3, 3]}, "dataset.classes: expected two or more different classes, got [3, 3]"),
        ("digits", {"classes": ["zero", 1]}, "dataset.classes: there is no class 'zero'; expected one"),
        ("ringnorm", {"augment": ["RandomCrop"]}, "dataset.augment: ringnorm has no such setting"),
        ("ringnorm", {"samples": 19}, "dataset.samples should be greater than or equal to 20, got 19"),
        ("ringnorm", {"samples": 100.5}, "dataset.samples should be a valid integer, got 100.5"),
        ("ringnorm", {"validation": 1.5}, "dataset.validation should be less than 1, got 1.5"),
        ("mnist", {"root": "~nobody-of-that-name"}, "dataset.root="),
    ],
)
def test_a_value_of_the_wrong_kind(name: str, settings: dict[str, object], says: str) -> None:
    assert refusal(name, **settings).startswith(says)


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
