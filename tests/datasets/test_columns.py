"""How columns are read: dates, identifiers, files in other dialects and Parquet, and rows without a label."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nsvm_cli import memory
from nsvm_cli.datasets import Data, Table, load_data
from nsvm_cli.datasets.encoding import Dates, TableEncoder
from nsvm_cli.datasets.unlabelled import blocks
from nsvm_cli.errors import InputError
from tests.datasets.conftest import Write
from tests.datasets.helpers import load, refusal

ROWS = 120
RNG = np.random.default_rng(0)
ROW = np.arange(ROWS)
DAYS = pd.Series(pd.Timestamp("1969-06-01") + pd.to_timedelta(RNG.uniform(0, 20000, ROWS).round(3), unit="D"))
TABLE = pd.DataFrame({"size": RNG.normal(size=ROWS).round(4), "label": np.resize(["ham", "spam"], ROWS)})


def kinds(data: Data) -> dict[str, str]:
    assert data.columns is not None
    return {column.name: column.kind for column in data.columns}


@pytest.mark.parametrize(
    "form", ["%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%d.%m.%Y", "%m/%d/%Y", "%d %b %Y %H:%M"]
)
def test_dates_become_days_months_and_weekdays(write: Write, form: str) -> None:
    written = DAYS.dt.strftime(form).mask(ROW % 7 == 0)
    path = write(TABLE.assign(day=written))
    data = load("csv", path=path)
    days = pd.to_datetime(written, format=form, utc=True)
    x = data.splits["all"].x.numpy()
    known = written.notna().to_numpy()
    assert data.encoder.features == ["size", "day.days", "day.month", "day.weekday"]
    epoch = (days - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
    parts = np.column_stack([epoch, days.dt.month, days.dt.day_of_week])
    np.testing.assert_allclose(x[known, 1:], parts[known], rtol=0, atol=1e-9)
    median = data.encoder.columns["day"].median
    assert (x[~known, 1] == median).all()
    assert data.splits["train"].x[:, 1].median() == pytest.approx(median, abs=200)
    assert kinds(data)["day"] == "date"
    assert "dates are read as days, month, weekday: day" in data.remarks()
    restored = TableEncoder(**json.loads(json.dumps(asdict(data.encoder))))
    assert restored == data.encoder
    [(found, _)] = blocks(Path(path), (4,), restored)
    np.testing.assert_array_equal(found, x)


def test_the_cells_that_features_stand_for() -> None:
    days, cities = ["2024-02-29", "2024-02-29 12:30:15", None], ["Ulm", "Paris", None]
    table = Table(pd.DataFrame({"day": days, "n": [1.25, 7, None], "city": cities}), ("X",))
    encoder = TableEncoder({"day": Dates("ISO8601", -1.0), "n": 0.5, "city": ("Ulm", "")})
    cells = [encoder.cells(row) for row in encoder(table).tolist()]
    assert cells == [
        {"day": "2024-02-29", "n": "1.25", "city": "Ulm"},
        {"day": "2024-02-29T12:30:15", "n": "7", "city": ""},
        {"day": "1969-12-31", "n": "0.5", "city": ""},
    ]


@pytest.mark.parametrize(
    "cells",
    [
        ["03/04/2024", "05/06/2024"],
        ["May", "June"],
        ["12:30", "9:15"],
        ["now", "today"],
        ["2024-01-01", "soon"],
    ],
)
def test_what_is_no_date_or_ambiguous_is_text(write: Write, cells: list[str]) -> None:
    data = load("csv", path=write(TABLE.assign(day=np.resize(cells, ROWS))))
    assert data.encoder.columns["day"] == tuple(sorted(cells))


def test_a_cell_that_is_no_date_in_other_rows_is_refused(write: Write) -> None:
    test = write(TABLE[:9].assign(day=["2024-01-01"] * 8 + ["soon"]), "test.csv")
    path = write(TABLE.assign(day=DAYS.dt.strftime("%Y-%m-%d")))
    says = f"{test}: column day, row 9: expected a date in the format ISO8601, got 'soon'"
    assert refusal("csv", path=path, test_path=test) == says


@pytest.mark.parametrize("form", ["%Q", "%", "%Y%Y", "x" * 65])
def test_a_format_of_dates_that_pandas_does_not_know(form: str) -> None:
    with pytest.raises(ValueError, match=r"expected a format of dates|at most 64"):
        TableEncoder({"day": {"format": form, "median": 0.0}})


IDS = {"id": ROW + 1000, "minus": -3 * ROW, "name": [f"nr {i}" for i in ROW]}


def test_identifiers_are_left_out_and_named(write: Write) -> None:
    path = write(TABLE.assign(**IDS))
    data = load("csv", path=path)
    assert [*data.encoder.columns] == ["size"]
    assert data.samples.sha256 == load("csv", path=write(TABLE, "plain.csv")).samples.sha256
    assert [name for name, kind in kinds(data).items() if kind == "id"] == [*IDS]
    assert any(
        line.startswith("left out as identifiers") and "id, minus, name" in line for line in data.remarks()
    )


@pytest.mark.parametrize(
    "cells", [ROW[::-1] // 2, RNG.permutation(ROW), ROW + 0.5, np.where(ROW == 5, np.nan, ROW)]
)
def test_other_numbers_are_no_identifiers(write: Write, cells: np.ndarray) -> None:
    assert [*load("csv", path=write(TABLE.assign(x=cells))).encoder.columns] == ["size", "x"]


def test_a_list_says_exactly_what_is_left_out(write: Write) -> None:
    path = write(TABLE.assign(**IDS))
    assert [*load("csv", path=path, drop=["name"]).encoder.columns] == ["size", "id", "minus"]
    assert "got 108 in name: leave this out with dataset.drop=[name]" in refusal("csv", path=path, drop=[])
    alone = write(TABLE[["label"]].assign(id=ROW), "alone.csv")
    assert [*load("csv", path=alone).encoder.columns] == ["id"], "indices in a kernel matrix, say"


def test_another_encoding_and_decimal_commas(write: Write) -> None:
    table = TABLE.assign(city=np.resize(["Köln", "Ulm"], ROWS), gap=np.where(ROW % 5 == 0, "", "1,5"))
    text = table.to_csv(index=False, sep=";", decimal=",")
    path = write(text.encode("latin-1"))
    dialect: dict[str, Any] = {"separator": ";", "encoding": "latin-1", "decimal": ","}
    data = load("csv", path=path, **dialect)
    np.testing.assert_array_equal(data.splits["all"].x[:, 0], TABLE["size"])
    assert data.encoder.columns["gap"] == 1.5
    assert data.encoder.columns["city"] == ("Köln", "Ulm")
    # numbers beside text, which pandas takes for text
    other = write((text + "2,25;ham;Ulm;\nold;ham;Ulm;\n").encode("latin-1"), "other.csv")
    assert refusal("csv", path=other, **dialect).endswith("row 122: 'old' is no number")
    targets = load_data({"name": "csv", "path": path, "label": "size", **dialect}, 0, "regression")
    np.testing.assert_array_equal(targets.splits["all"].y, TABLE["size"])
    assert "cannot be read as CSV: unknown encoding: latin-x" in refusal("csv", path=path, encoding="latin-x")
    assert "dataset.decimal should be '.' or ','" in refusal("csv", path=path, decimal=";")


def test_rows_without_a_label_are_skipped_on_request(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    gaps = TABLE.assign(code=np.resize(["01", "1"], ROWS))
    gaps.loc[ROW % 10 == 0, "label"] = None
    path, test = write(gaps[:90]), write(gaps[90:], "test.csv")
    says = "row 1: expected a label, got an empty cell; dataset.skip_unlabelled=true skips such rows"
    assert says in refusal("csv", path=path)
    data = load("csv", path=path, test_path=test, skip_unlabelled=True)
    assert data.splits.sizes == {"train": 81, "validation": 0, "test": 27, "all": 108}
    np.testing.assert_array_equal(data.splits["all"].x[:, 0], TABLE["size"][ROW % 10 != 0])
    assert [*data.samples.numbers] == [n % 90 + 1 for n in ROW if n % 10]
    said = [f"{path}: skipped 9 rows without a label", f"{test}: skipped 3 rows without a label"]
    assert capsys.readouterr().err.splitlines() == said


def test_categories_unseen_in_training_are_counted(write: Write) -> None:
    cities = np.resize(["Bonn", "Ulm", "Köln"], ROWS)
    train, test = TABLE.assign(city=cities)[:90], TABLE.assign(city="Ulm")[90:]
    test.loc[100:104, "city"] = "Paris"
    data = load("csv", path=write(train), test_path=write(test, "test.csv"))
    assert "categories unseen in training: city: 5 cells" in data.remarks()
    trained = load_data({"name": "csv", "path": write(test)}, 0, task=data.task, encoder=data.encoder)
    assert trained.unseen == ["categories unseen in training: city: 5 cells"]
    others = {"name": "csv", "path": write(test.assign(city="Paris"))}
    (line,) = load_data(others, 0, task=data.task, encoder=data.encoder).unseen
    assert line == f"all {len(test)} cells of city are unseen in training: is the file in another encoding?"


def test_numbers_with_commas_that_are_read_as_text_are_remarked(write: Write) -> None:
    commas, lists = np.resize(["0,5", "", "-1,5"], ROWS), np.resize(["1,2,3", "4,5"], ROWS)
    data = load("csv", path=write(TABLE.assign(size=commas, some=lists)))
    hint = "numbers with commas are read as text: is \"dataset.decimal=','\" meant? size"
    assert hint in data.remarks()


def test_parquet_is_read_as_csv_is(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    table = TABLE.assign(
        day=DAYS.dt.floor("s"), city=np.resize(["Ulm", None], ROWS), label=np.resize([1, 2], ROWS)
    )
    table.to_parquet(tmp_path / "table.parquet")
    data, same = (load("csv", path=path) for path in (str(tmp_path / "table.parquet"), write(table)))
    np.testing.assert_allclose(data.splits["all"].x, same.splits["all"].x, rtol=1e-15)
    assert (data.task, data.encoder.features) == (same.task, same.encoder.features)
    table.drop(columns="label").assign(old=ROW).to_parquet(tmp_path / "new.parquet")
    with mock.patch.object(pq, "read_table", side_effect=AssertionError("the whole file at a time")):
        found = [*blocks(tmp_path / "new.parquet", (6,), same.encoder, outputs=2**15, keep=["old", "old"])]
    assert len(found) > 1
    np.testing.assert_array_equal(np.concatenate([x for x, _ in found]), data.splits["all"].x)
    assert [row for _, beside in found for row in beside["old"]] == [*ROW]
    table.assign(nested=[[row % 2] for row in ROW]).to_parquet(tmp_path / "nested.parquet")
    nested = load("csv", path=str(tmp_path / "nested.parquet"))
    assert nested.encoder.columns["nested"] == ("[0]", "[1]"), "text"
    table.assign(label=np.resize(["=a", "b"], ROWS)).to_parquet(tmp_path / "signs.parquet")
    assert load("csv", path=str(tmp_path / "signs.parquet")).task.classes == ("=a", "b")
    rows, narrow = pa.table({"a": np.zeros(2**17), "label": np.arange(2**17) % 2}), tmp_path / "zeros.parquet"
    pq.write_table(rows, narrow)
    monkeypatch.setattr(memory, "MEMORY_BUDGET", 1)
    with pytest.raises(InputError, match=r"zeros\.parquet has 2 MiB, more than memory_budget=1"):
        load_data({"name": "csv", "path": str(narrow)}, 0, memory_budget=1)
    twice = pa.table([ROW, ROW, TABLE["label"]], ["a", "a", "label"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    assert "twice.parquet cannot be read as Parquet: " in refusal("csv", path=str(tmp_path / "twice.parquet"))
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    assert "bad.parquet cannot be read as Parquet: " in refusal("csv", path=str(tmp_path / "bad.parquet"))


def test_parquet_needs_an_extra(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    says = "Parquet files need pyarrow: pip install 'nsvm[parquet]'"
    assert refusal("csv", path=write(b"PAR1", "t.parquet")) == says
    with pytest.raises(InputError, match="need pyarrow"):
        [*blocks(Path(write(b"PAR1", "t.parquet")), (1,), None)]


def test_the_positive_class_is_the_last(write: Write) -> None:
    path = write(TABLE)
    first, last = load("csv", path=path), load("csv", path=path, positive="ham")
    assert (first.task.classes, last.task.classes) == (("ham", "spam"), ("spam", "ham"))
    np.testing.assert_array_equal(first.splits["all"].y, -last.splits["all"].y)
    says = "dataset.positive: there is no class hamm; did you mean ham"
    assert refusal("csv", path=path, positive="hamm").startswith(says)


def test_a_test_set_needs_no_weights_and_a_validation_set_is_one(write: Write) -> None:
    path, other = write(TABLE.assign(w=ROW % 3 + 1.0)), write(TABLE[:20], "other.csv")
    data = load("csv", path=path, weight="w", test_path=other)
    np.testing.assert_array_equal(data.weights(None), (ROW % 3 + 1) / (ROW % 3 + 1).mean())
    says = f"dataset.validation=0.2: {path} has a validation set of its own"
    assert refusal("csv", path=write(TABLE), validation_path=other, validation=0.2) == says
