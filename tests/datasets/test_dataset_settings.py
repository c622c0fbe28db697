"""Settings of data sets: errors for unknown names and wrong values."""

from __future__ import annotations

import pytest

from nsvm_cli.datasets import DATASETS
from tests.datasets.helpers import refusal


@pytest.mark.parametrize(("name", "meant"), [("mnits", "mnist"), ("iris", ""), (None, ""), (["mnist"], "")])
def test_an_unknown_name(name: str, meant: str) -> None:
    message = refusal(name)
    assert f"there is no dataset {name!r}" in message
    assert (f"did you mean {meant}?" in message) == bool(meant)
    assert all(known in message for known in DATASETS)


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_every_data_set_has_a_validation_setting(name: str) -> None:
    path = {
        "csv": {"path": "any.csv"},
        "npy": {"path": "x.npy", "labels": "y.npy"},
        "image_folder": {"path": "any"},
        "pmlb": {"table": "letter"},
        "openml": {"id": 61},
    }.get(name, {})
    for value in (-1, 1.5, "some"):
        says = "dataset.validation: expected a number of samples, a fraction such as 0.2, or"
        assert refusal(name, **path, validation=value).startswith(says)


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("ringnorm", {"sampels": 1}, "dataset.sampels: ringnorm has no such setting; did you mean samples?"),
        ("kmnist", {"rot": 1}, "dataset.rot: kmnist has no such setting; did you mean root?"),
        ("csv", {}, "dataset.path requires a value for dataset=csv"),
        ("csv", {"path": None}, "dataset.path should be a valid string, got None"),
        (
            "csv",
            {"path": "any.csv", "decimal": ",", "thousands": ","},
            "dataset: expected different signs for decimal and thousands, got ',' for both",
        ),
        ("digits", {"classes": [0, 10]}, "dataset.classes: there is no class '10'; did you mean 1? "),
        ("digits", {"classes": [4]}, "scikit-learn's digits, 28x28: expected at least 2 classes, got 1"),
        ("digits", {"classes": [3, 3]}, "scikit-learn's digits, 28x28: expected at least 2 classes, got 1"),
        ("digits", {"classes": ["zero", 1]}, "dataset.classes: there is no class 'zero'; expected one"),
        ("ringnorm", {"classes": [0, 1]}, "dataset.classes: ringnorm has no such setting"),
        ("ringnorm", {"samples": 19}, "dataset.samples should be greater than or equal to 20, got 19"),
        ("ringnorm", {"samples": 100.5}, "dataset.samples should be a valid integer, got 100.5"),
        (
            "ringnorm",
            {"fold": "5/5"},
            "dataset.fold: expected K/N, where K is one of the N folds 0 to N-1, got",
        ),
        ("mnist", {"root": "~nobody-of-that-name"}, "dataset.root="),
    ],
)
def test_a_wrong_setting_or_value(name: str, settings: dict[str, object], says: str) -> None:
    assert refusal(name, **settings).startswith(says)
