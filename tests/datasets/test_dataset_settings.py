"""Names and settings of data sets: unknown ones are refused with the nearest known one."""

from __future__ import annotations

import pytest

from nsvm_cli.datasets import DATASETS
from tests.datasets.helpers import refusal


@pytest.mark.parametrize(
    ("name", "meant"), [("ringnrom", "ringnorm"), ("mnits", "mnist"), ("opnml", "openml"), ("iris", "")]
)
def test_an_unknown_name(name: str, meant: str) -> None:
    message = refusal(name)
    assert f"there is no dataset {name!r}" in message
    assert (f"did you mean {meant}?" in message) == bool(meant)
    assert all(known in message for known in DATASETS)


@pytest.mark.parametrize("name", [None, 3, ["mnist"]])
def test_a_name_that_is_not_text(name: str) -> None:
    assert refusal(name).startswith(f"dataset: there is no dataset {name!r}")


@pytest.mark.parametrize(
    ("name", "setting", "meant"),
    [
        ("ringnorm", "sampels", "samples"),
        ("ringnorm", "valdation", "validation"),
        ("mnist", "clases", "classes"),
        ("kmnist", "rot", "root"),
        ("digits", "class", "classes"),
        ("csv", "lable", "label"),
        ("csv", "seperator", "separator"),
        ("pmlb", "tabel", "table"),
        ("emnist", "subste", "subset"),
        ("openml", "pth", "path"),
    ],
)
def test_an_unknown_setting(name: str, setting: str, meant: str) -> None:
    message = refusal(name, **{setting: 1})
    assert message.startswith(f"dataset.{setting}: {name} has no such setting; did you mean {meant}?")


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_every_data_set_has_a_validation_setting(name: str) -> None:
    path = {"csv": {"path": "any.csv"}, "pmlb": {"table": "letter"}, "openml": {"id": 61}}.get(name, {})
    assert refusal(name, **path, validation=-1) == (
        "dataset.validation should be greater than or equal to 0, got -1"
    )
    assert refusal(name, **path, validation="some").startswith("dataset.validation should be a valid number")


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("csv", {}, "dataset.path: csv needs a value"),
        ("pmlb", {}, "dataset.table: pmlb needs a value"),
        ("csv", {"path": None}, "dataset.path should be a valid string, got None"),
        ("csv", {"path": "t.csv", "separator": ""}, "dataset.separator"),
        ("csv", {"path": "t.csv", "label": 3}, "dataset.label should be a valid string, got 3"),
        ("mnist", {"root": 3}, "dataset.root should be a valid string, got 3"),
        (
            "fashion_mnist",
            {"classes": [3, 3]},
            "dataset.classes: expected two or more different classes, got [3, 3]",
        ),
        ("openml", {"id": 1, "path": 1496}, "dataset.path should be a valid string, got 1496"),
    ],
)
def test_a_value_of_the_wrong_kind(name: str, settings: dict[str, object], says: str) -> None:
    assert refusal(name, **settings).startswith(says)


def test_all_errors_are_reported_together() -> None:
    message = refusal("ringnorm", samples=3, validation=-1)
    assert "dataset.samples should be" in message
    assert "dataset.validation should be" in message
