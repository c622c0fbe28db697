"""OpenML data sets, from a local copy and from the openml package."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import openml
import pandas as pd
import pytest

from tests.conftest import real
from tests.datasets.conftest import Write
from tests.datasets.helpers import load, refusal

ROWS = [f"{i}.5,{i % 7}.5,{'red' if i % 3 else 'blue'},{'yes' if i % 2 else 'no'}\n" for i in range(60)]


def test_a_local_copy_with_its_label_last(write: Write) -> None:
    file = write("a,b,colour,answer\n" + "".join(ROWS))
    data = load("openml", id=5, path=file)
    assert data.task.classes == ("no", "yes")
    assert [*data.encoder.columns] == ["a", "b", "colour"]
    assert data.samples.origins == ("OpenML 5",)
    assert data.splits.sizes["all"] == 60
    other = load("openml", id=5, path=file, label="colour", drop=["a"])
    assert (other.task.classes, [*other.encoder.columns]) == (("blue", "red"), ["b", "answer"])
    says = "has no column 'colours'; did you mean colour?"
    assert says in refusal("openml", id=5, path=file, label="colours")


def test_the_published_rows_of_ringnorm() -> None:
    published = real("ringnorm/ringnorm.csv")
    table = np.loadtxt(published, delimiter=",")
    data = load("openml", id=1496, path=str(published), validation="200 each")
    everything = data.splits["all"]
    np.testing.assert_array_equal(everything.x, table[:, :-1])
    np.testing.assert_array_equal(everything.y, 2 * table[:, -1] - 1)
    assert data.task.classes == ("0", "1")
    assert [len(data.splits[name]) for name in ("train", "validation", "test")] == [6260, 400, 740]


def test_what_the_package_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    cells = pd.DataFrame({"a": np.arange(60) + 0.5, "b": pd.Categorical([*"xy"] * 30), "kind": [*"pq"] * 30})
    answer = SimpleNamespace(get_data=lambda: (cells.astype({"kind": "category"}),))
    answer.default_target_attribute = "kind"
    monkeypatch.setattr(openml.config, "get_cache_directory", lambda: str(tmp_path))
    monkeypatch.setattr(openml.datasets, "get_dataset", lambda number, **_: answer)
    for said in (f"Downloading OpenML data set 61 from {openml.config.server}\n", ""):
        data = load("openml", id=61)
        assert (data.task.classes, data.samples.source) == (("p", "q"), "OpenML 61")
        np.testing.assert_array_equal(data.splits["all"].x[:2], [[0.5, 1, 0], [1.5, 0, 1]])
        assert capfd.readouterr() == ("", said)
        (tmp_path / "datasets" / "61").mkdir(parents=True, exist_ok=True)
    answer.default_target_attribute = None
    assert refusal("openml", id=61).startswith("dataset.label: OpenML 61 has no column None")


def test_what_the_package_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = openml.exceptions.OpenMLServerException("Unknown dataset", code=111)
    monkeypatch.setattr(openml.config, "get_cache_directory", lambda: str(tmp_path))
    monkeypatch.setattr(openml.datasets, "get_dataset", Mock(side_effect=error))
    message = refusal("openml", id=61)
    assert "Unknown dataset" in message
    for way in ("dataset.path=FILE.csv", "dataset=ringnorm or dataset=digits", "no download"):
        assert way in message
