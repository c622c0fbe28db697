"""Encoding of labels, text, dates, identifiers and missing values in tables."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from nsvm_cli.datasets import DATASETS, Data, Table, load_data
from nsvm_cli.datasets.csv import CSV
from nsvm_cli.datasets.encoding import Dates, TableEncoder
from nsvm_cli.datasets.unlabelled import blocks
from nsvm_cli.errors import InputError
from nsvm_cli.tasks import Regression, task_for
from tests.datasets.conftest import Write
from tests.datasets.helpers import load, refusal

ROWS = 120
RNG = np.random.default_rng(0)
Y = RNG.permutation(np.repeat(["ham", "spam"], ROWS // 2))
ROW = np.arange(ROWS)
TABLE = pd.DataFrame(
    {
        "row": ROW + 0.5,  # identifies the rows of a split
        "size": RNG.normal(size=ROWS).round(4),
        "colour": RNG.choice(["red", "green", "blue"], ROWS),
        "count": RNG.integers(0, 9, ROWS).astype(float),
        "city": RNG.choice(["Ulm", "Köln", "Bad Soden"], ROWS),
        "open": RNG.choice([True, False], ROWS),
        "label": Y,
    }
)
TABLE.loc[ROW % 7 == 0, "size"] = np.nan
TABLE.loc[ROW % 11 == 0, "city"] = None
NUMBERS, TEXT = ["row", "size", "count"], ["colour", "city", "open"]
PLAIN = TABLE[["size", "label"]]
DAYS = pd.Series(pd.Timestamp("1969-06-01") + pd.to_timedelta(RNG.uniform(0, 20000, ROWS).round(3), unit="D"))


def rows_of(data: Data, split: str) -> np.ndarray:
    return data.splits[split].x[:, 0].numpy().astype(int)


def test_a_table_is_encoded_as_by_scikit_learn(write: Write) -> None:
    data = load("csv", path=write(TABLE), validation=10)
    cells = TABLE.astype({"open": str}).astype(dict.fromkeys(NUMBERS, float) | dict.fromkeys(TEXT, object))
    cells[TEXT] = cells[TEXT].where(cells[TEXT].notna(), None)
    theirs = ColumnTransformer(
        [
            ("numbers", SimpleImputer(strategy="median"), NUMBERS),
            ("text", OneHotEncoder(handle_unknown="ignore", sparse_output=False), TEXT),
        ]
    ).fit(cells.iloc[rows_of(data, "train")])
    for name in data.splits.sizes:
        part, rows = data.splits[name], rows_of(data, name)
        np.testing.assert_array_equal(part.x, theirs.transform(cells.iloc[rows]))
        assert part.y.tolist() == [1 if label == "spam" else -1 for label in Y[rows]]
    assert data.splits["train"].x.shape[1] == 3 + 3 + 4 + 2, "an empty text cell is a separate category"
    known = json.loads(json.dumps(asdict(data.encoder)))
    assert known["columns"]["colour"] == ["blue", "green", "red"]
    assert known["columns"]["city"][-1] == ""
    assert list(known["columns"]) == [*TABLE.columns[:-1]]
    assert TableEncoder(**known) == data.encoder


def test_few_whole_numbers_are_numbers_and_categories(write: Write) -> None:
    table = TABLE[["row", "count", "open", "label"]].copy()
    table.loc[ROW % 5 == 0, "count"] = np.nan
    table["mark"], table["half"], table["two"] = ROW % 13, ROW % 4 / 2, ROW // 7 % 2
    data = load("csv", path=write(table), max_codes=12, include=["mark"])
    x, rows = data.splits["train"].x.numpy(), rows_of(data, "train")
    assert data.encoder is not None
    named = dict(zip(data.encoder.features, x.T, strict=True))
    plain = load("csv", path=write(table), include=["mark"])
    assert plain.encoder is not None
    for name, column in zip(plain.encoder.features, plain.splits["train"].x.numpy().T, strict=True):
        np.testing.assert_array_equal(named.pop(name), column)
    # mark has too many different values, two has too few, and half has fractions
    assert [*named] == [f"count={code}" for code in range(9)]
    count = table["count"].iloc[rows].to_numpy()
    filled = np.where(np.isnan(count), np.nanmedian(count), count)
    np.testing.assert_array_equal(np.stack([*named.values()], 1), filled[:, None] == np.arange(9))
    known = json.loads(json.dumps(asdict(data.encoder)))
    assert TableEncoder(**known) == data.encoder


def test_rows_outside_the_training_set_have_no_influence(write: Write) -> None:
    first = load("csv", path=write(TABLE), validation=10)
    others = np.concatenate([rows_of(first, "test"), rows_of(first, "validation")])
    changed = TABLE.astype({"open": object})
    changed.loc[others, "size"] = 1e6
    changed.loc[others, "count"] = np.nan
    changed.loc[others, TEXT] = "new"
    other = load("csv", path=write(changed), validation=10)
    assert other.encoder == first.encoder
    assert other.splits["train"].x.equal(first.splits["train"].x)
    assert other.splits["test"].x[:, 3:].eq(0).all(), "unseen text should become zeros"


AS_WRITTEN = ("12E3", "12000", "1_0", "10", "01", "1", "1.0", "yes")


def test_categories_are_compared_as_they_are_written(write: Write) -> None:
    """In the second table, pandas would read all codes as numbers."""
    table = TABLE[["label"]].assign(code=np.resize(AS_WRITTEN, ROWS))
    numbers = pd.DataFrame({"label": ["ham", "spam"] * 12, "code": ["01", "1", "12E3"] * 8})
    data = load("csv", path=write(table))
    assert data.encoder.columns["code"] == tuple(sorted(AS_WRITTEN))
    path = write(numbers, "numbers.csv")
    encoder = TableEncoder({"code": ("01", "1", "10", "12000", "12E3")})
    two_files = load("csv", path=write(table, "code.csv"), test_path=path)
    expected = np.array([sorted(AS_WRITTEN).index(code) for code in numbers["code"]])
    np.testing.assert_array_equal(two_files.splits["test"].x.argmax(1), expected)
    trained = load_data({"name": "csv", "path": path}, 0, task=data.task, encoder=encoder)
    np.testing.assert_array_equal(trained.splits["all"].x.argmax(1), np.resize([0, 1, 4], 24))
    [(x, _)] = blocks(Path(path), (5,), encoder)
    assert x.equal(trained.splits["all"].x)


def test_a_derived_data_set_is_read_as_its_model_was_trained(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Reversed(CSV):
        def load(self, rng: np.random.Generator) -> Table:
            table = super().load(rng)
            return replace(table, rows=table.rows.iloc[::-1].reset_index(drop=True))

    monkeypatch.setitem(DATASETS, "reversed", Reversed)
    settings = {"path": write(TABLE[["label"]].assign(code=np.resize(["01", "1"], ROWS)))}
    encoder = TableEncoder({"code": ("01", "1")})
    as_written, reversed_rows = (
        load_data({"name": name, **settings}, 0, encoder=encoder).samples.x for name in ("csv", "reversed")
    )
    assert as_written[0].tolist() == [1, 0]
    np.testing.assert_array_equal(reversed_rows, as_written[::-1])


def test_truth_values_are_text_in_one_spelling(write: Write) -> None:
    path = write(TABLE[["label"]].assign(open=np.resize(["TRUE", "false", ""], ROWS)))
    data = load("csv", path=path)
    assert data.encoder.columns["open"] == ("False", "True", "")
    [(x, _)] = blocks(Path(path), (3,), data.encoder)
    frame = Table(pd.DataFrame({"open": [True, False, None]}), ("X",))
    np.testing.assert_array_equal(data.encoder(frame), x[:3])
    with pytest.raises(InputError, match="column open, row 1: expected a number, got True"):
        [*blocks(Path(path), (1,), TableEncoder({"open": 0.0}))]


def test_advice_lists_few_codes_of_missing_values(write: Write) -> None:
    for count, listed in ((8, True), (9, False)):
        words = [f"word {letter}" for letter in "abcdefghi"[:count]]
        path = write(TABLE[["label"]].assign(size=[*words, *map(str, ROW[count:])]))
        message = refusal("csv", path=path)
        assert ("dataset.missing" in message) == listed
        assert "dataset.text=[size]" in message


def test_all_of_a_column_of_numbers_is_decimal_numbers(write: Write) -> None:
    cells = np.resize(["1e-05", "12E3", " 7", "+.5", "-2.", "01", "", "NA"], ROWS)
    data = load("csv", path=write(TABLE[["label"]].assign(x=cells)))
    values = pd.Series(cells).replace(["", "NA"], "nan").astype(float)
    np.testing.assert_array_equal(data.splits["all"].x[:, 0], values.fillna(data.encoder.columns["x"]))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"colour": ["x" * 5000, *TABLE["colour"][1:]]}, "columns.colour"),
        ({"x" * 5000: ROW + 0.5}, "should have at most 4096 characters"),
    ],
)
def test_columns_that_no_model_can_use_are_refused(write: Write, changes: Any, says: str) -> None:
    path = write(TABLE.assign(**changes))
    message = refusal("csv", seed="colour" in changes, path=path)
    assert message.startswith(f"{path}: ")
    assert says in message


def test_columns_are_left_out(write: Write) -> None:
    whole = load("csv", path=write(TABLE))
    more = TABLE.assign(id=[f"nr {i}" for i in ROW], note="x", none=np.nan)
    assert load("csv", path=write(more), drop=["id", "note"]).samples.sha256 == whole.samples.sha256


def test_categories_unseen_in_training_are_counted(write: Write) -> None:
    cities = np.resize(["Bonn", "Ulm", "Köln"], ROWS)
    train, test = PLAIN.assign(city=cities)[:90], PLAIN.assign(city="Ulm")[90:]
    test.loc[100:104, "city"] = "Paris"
    data = load("csv", path=write(train), test_path=write(test, "test.csv"))
    assert "cells with categories unseen in training: 5 in city" in data.remarks()
    trained = load_data({"name": "csv", "path": write(test)}, 0, task=data.task, encoder=data.encoder)
    assert trained.unseen == ["cells with categories unseen in training: 5 in city"]
    others = {"name": "csv", "path": write(test.assign(city="Paris"))}
    (line,) = load_data(others, 0, task=data.task, encoder=data.encoder).unseen
    says = f"city: none of the {len(test)} cells occurs in the training data; check the encoding of the file"
    assert line == says


def kinds(data: Data) -> dict[str, str]:
    assert data.columns is not None
    return {column.name: column.kind for column in data.columns}


def test_dates_become_days_months_and_weekdays(write: Write) -> None:
    forms = "%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%d.%m.%Y", "%m/%d/%Y", "%d %b %Y %H:%M"
    forms += ("%m/%d/%Y 12:00:00 AM",)
    written = {form: DAYS.dt.strftime(form).mask(ROW % 7 == 0) for form in forms}
    path = write(PLAIN.assign(**written))
    data = load("csv", path=path)
    x = data.splits["all"].x.numpy()
    parts = ("days", "month", "weekday")
    assert data.encoder.features == ["size", *(f"{form}.{part}" for form in forms for part in parts)]
    for n, form in enumerate(forms):
        days, found = pd.to_datetime(written[form], format=form, utc=True), x[:, 3 * n + 1 : 3 * n + 4]
        known = days.notna().to_numpy()
        epoch = (days - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
        expected = np.column_stack([epoch, days.dt.month, days.dt.day_of_week])
        np.testing.assert_allclose(found[known], expected[known], rtol=0, atol=1e-9)
        median = data.encoder.columns[form].median
        assert (found[~known, 0] == median).all()
        assert data.splits["train"].x[:, 3 * n + 1].median() == pytest.approx(median, abs=200)
        assert kinds(data)[form] == "date"
    [line] = [
        line for line in data.remarks() if line.startswith("dates, which are converted to the features")
    ]
    assert line.endswith(f" days, month, weekday: {', '.join(forms)}")
    restored = TableEncoder(**json.loads(json.dumps(asdict(data.encoder))))
    assert restored == data.encoder
    [(again, _)] = blocks(Path(path), (x.shape[1],), restored)
    np.testing.assert_array_equal(again, x)


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


def test_what_is_no_date_or_ambiguous_is_text(write: Write) -> None:
    cells = {
        "ambiguous": ["03/04/2024", "05/06/2024"],
        "months": ["May", "June"],
        "times": ["12.30 h", "9.15 h in the morning"],
        "words": ["now", "today"],
        "one date": ["2024-01-01", "soon"],
    }
    columns = {name: np.resize(some, ROWS) for name, some in cells.items()}
    data = load("csv", path=write(PLAIN.assign(**columns)))
    assert {name: data.encoder.columns[name] for name in cells} == {
        name: tuple(sorted(some)) for name, some in cells.items()
    }


def test_a_cell_that_is_no_date_in_other_rows_is_refused(write: Write) -> None:
    test = write(PLAIN[:9].assign(day=["2024-01-01"] * 8 + ["soon"]), "test.csv")
    path = write(PLAIN.assign(day=DAYS.dt.strftime("%Y-%m-%d")))
    says = f"{test}: column day, row 9: expected a date in the format ISO8601, got 'soon'"
    assert refusal("csv", path=path, test_path=test) == says


@pytest.mark.parametrize("form", ["%Q", "%", "%Y%Y", "x" * 65])
def test_a_format_of_dates_that_pandas_does_not_know(form: str) -> None:
    with pytest.raises(ValueError, match=r"expected a date format|at most 64"):
        TableEncoder({"day": {"format": form, "median": 0.0}})


IDS = {"id": ROW + 1000, "minus": -3 * ROW, "name": [f"nr {i}" for i in ROW]}


def test_other_numbers_are_no_identifiers(write: Write) -> None:
    others = ROW[::-1] // 2, RNG.permutation(ROW), ROW + 0.5, np.where(ROW == 5, np.nan, ROW)
    columns = {f"x{n}": cells for n, cells in enumerate(others)}
    data = load("csv", path=write(PLAIN.assign(**columns)))
    assert [*data.encoder.columns] == ["size", *columns]


def test_identifiers_are_left_out_and_named_unless_lists_take_them_back(write: Write) -> None:
    path = write(PLAIN.assign(**IDS))
    data = load("csv", path=path)
    assert data.samples.sha256 == load("csv", path=write(PLAIN, "plain.csv")).samples.sha256
    assert [name for name, kind in kinds(data).items() if kind == "id"] == [*IDS]
    [line] = [line for line in data.remarks() if line.startswith("excluded as identifiers")]
    assert "id, minus, name" in line
    for lists, names in (
        ({}, ["size"]),
        ({"drop": ["name"]}, ["size"]),
        ({"include": ["id"]}, ["size", "id"]),
        ({"drop": ["id"], "include": ["name"]}, ["size", "name"]),
    ):
        assert [*load("csv", path=path, **lists).encoder.columns] == names
    alone = write(TABLE[["label"]].assign(id=ROW), "alone.csv")  # such as indices of a kernel matrix
    assert [*load("csv", path=alone).encoder.columns] == ["id"], "the only column is used, even if an id"
    for setting in ("drop", "include", "text"):
        says = f"dataset.{setting}: {path} has no column 'ids'; did you mean id?"
        assert refusal("csv", path=path, **{setting: ["ids"]}).startswith(says)


def test_the_positive_class_is_the_last(write: Write) -> None:
    path = write(TABLE)
    first, last = load("csv", path=path), load("csv", path=path, positive="ham")
    assert (first.task.classes, last.task.classes) == (("ham", "spam"), ("spam", "ham"))
    np.testing.assert_array_equal(first.splits["all"].y, -last.splits["all"].y)
    says = "dataset.positive: there is no class hamm; did you mean ham"
    assert refusal("csv", path=path, positive="hamm").startswith(says)


X = np.random.default_rng(0).normal(size=(40, 2)).round(6)


@pytest.mark.parametrize(
    ("written", "classes"),
    [
        *((("1", "-1"), ("-1", "1")), (("10", "9"), ("9", "10")), (("True", "False"), ("False", "True"))),
        *((("10", "9", "1.5"), ("1.5", "9", "10")), (("True", "TRUE", "1"), ("1", "TRUE", "True"))),
        (("12E3", "12000", "1_0", "10"), ("10", "12000", "12E3", "1_0")),
        (("NA", "nan", "None", "null"), ("NA", "None", "nan", "null")),
    ],
)
def test_classes_are_told_apart_as_they_are_written(
    write: Write, written: tuple[str, ...], classes: tuple[str, ...]
) -> None:
    content = "a,label\n" + "".join(f"{n},{name}\n" for n, name in enumerate(written * 12))
    data = load("csv", path=write(content))
    assert data.task.classes == classes
    codes = data.task.index(data.splits["all"].y)
    assert [classes[int(r)] for r in codes] == [*written * 12]
    says = (
        f"row {len(written) * 12 + 1}: expected a label, got an empty cell; set dataset.skip_unlabelled=true"
    )
    assert refusal("csv", path=write(f"{content}1,\n")).endswith(f"{says} to skip such rows")


@pytest.mark.parametrize(("classes", "rows"), [(("ham", "eggs"), 3), (("eggs", "ham", "spam"), 1)])
def test_a_short_table_for_a_trained_model(write: Write, classes: tuple[str, ...], rows: int) -> None:
    section = {"name": "csv", "path": write("a,label\n" + "1,ham\n" * rows), "validation": 200}
    data = load_data(section, 0, task=task_for(classes))
    assert data.task == task_for(classes)
    assert data.task.index(data.splits["all"].y).tolist() == [classes.index("ham")] * rows
    with pytest.raises(InputError, match="expected at least one row below the header"):
        load_data({**section, "path": write("a,label\n")}, 0, task=task_for(classes))


def targets(write: Write, *changed: str) -> dict[str, str]:
    """Write a table of real targets that ends with the labels ``changed``, and return its section."""
    labels = [*(repr(y) for y in X[: 40 - len(changed), 1].tolist()), *changed]
    rows = "".join(f"{a},{y}\n" for a, y in zip(X[:, 0].tolist(), labels, strict=True))
    return {"name": "csv", "path": write("a,label\n" + rows)}


def test_real_targets(write: Write) -> None:
    data = load_data({**targets(write), "validation": 5}, 0, "regression")
    assert data.splits.sizes == {"train": 31, "validation": 5, "test": 4, "all": 40}
    np.testing.assert_array_equal(data.splits["all"].y, X[:, 1])
    y = data.splits["train"].y
    assert (data.task.mean, data.task.std) == pytest.approx((y.mean().item(), y.std().item()))


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (["9" * 400], "row 40: expected a finite number for task=regression, got"),
        ([""], "column label, row 40: expected a label, got an empty cell"),
        (["True"], "row 40: expected a finite number for task=regression, got 'True'"),
        (["low"], "got 'low'; if the labels are classes, set task=classification"),
        (["1.5"] * 40, "expected finite training targets that are not all equal"),
        (["0.1"] * 40, "expected finite training targets that are not all equal"),
    ],
)
def test_broken_targets(write: Write, labels: list[str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        load_data(targets(write, *labels), 0, "regression")


def test_the_scale_of_a_trained_model_stays(write: Write) -> None:
    task = Regression(3.0, 2.0)
    data = load_data({"name": "csv", "path": write("a,label\n1,2.5\n")}, 0, "regression", task=task)
    assert data.task == Regression(3.0, 2.0)
    assert data.splits["all"].y.tolist() == [2.5]
