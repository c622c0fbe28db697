"""What becomes of the labels, the text and the missing values of tables."""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from nsvm_cli.datasets import Data, Table, load_data
from nsvm_cli.datasets.encoding import TableEncoder
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
        "row": ROW + 0.5,  # says which rows a split has
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
    assert data.splits["train"].x.shape[1] == 3 + 3 + 4 + 2, "an empty cell in text is a category of its own"
    known = json.loads(json.dumps(asdict(data.encoder)))
    assert known["columns"]["colour"] == ["blue", "green", "red"]
    assert known["columns"]["city"][-1] == ""
    assert list(known["columns"]) == [*TABLE.columns[:-1]]
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
    assert other.splits["test"].x[:, 3:].eq(0).all(), "text that no training row holds"


AS_WRITTEN = ("12E3", "12000", "1_0", "10", "01", "1", "1.0", "yes")


def test_categories_are_compared_as_they_are_written(write: Write) -> None:
    """In a table alone or with a test set of its own, and for a trained model: there pandas finds numbers."""
    table = TABLE[["label"]].assign(code=np.resize(AS_WRITTEN, ROWS))
    numbers = pd.DataFrame(
        {"label": np.resize(["ham", "spam"], 24), "code": np.resize(["01", "1", "12E3"], 24)}
    )
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


def test_truth_values_are_text_in_one_spelling(write: Write) -> None:
    path = write(TABLE[["label"]].assign(open=np.resize(["TRUE", "false", ""], ROWS)))
    data = load("csv", path=path)
    assert data.encoder.columns["open"] == ("False", "True", "")
    [(x, _)] = blocks(Path(path), (3,), data.encoder)
    frame = Table(pd.DataFrame({"open": [True, False, None]}), ("X",))
    np.testing.assert_array_equal(data.encoder(frame), x[:3])
    with pytest.raises(InputError, match="column open, row 1: expected a number, got True"):
        [*blocks(Path(path), (1,), TableEncoder({"open": 0.0}))]


def test_all_of_a_column_of_numbers_is_decimal_numbers(write: Write) -> None:
    cells = np.resize(["1e-05", "12E3", " 7", "+.5", "-2.", "01", "", "NA"], ROWS)
    data = load("csv", path=write(TABLE[["label"]].assign(x=cells)))
    values = pd.Series(cells).replace(["", "NA"], "nan").astype(float)
    np.testing.assert_array_equal(data.splits["all"].x[:, 0], values.fillna(data.encoder.columns["x"]))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"size": [f"{i},5" for i in ROW]},
            "got 108 in size; {path}: "
            "column size, row 1: '0,5' is no number; is \"dataset.decimal=','\" meant?",
        ),
        ({"none": [np.nan] * ROWS}, "no training row has a value in none: leave this out with"),
        ({"size": ["two", *map(str, ROW[1:])]}, "column size, row 1: 'two' is no number"),
        ({"size": ["9" * 400] + ["1"] * (ROWS - 1)}, "column size, row 1: expected a number, got"),
        ({"colour": ["x" * 5000, *TABLE["colour"][1:]]}, "columns.colour"),
        ({"x" * 5000: ROW + 0.5}, "should have at most 4096 characters"),
    ],
)
def test_columns_that_no_model_can_use_are_refused(write: Write, changes: Any, says: str) -> None:
    path = write(TABLE.assign(**changes))
    message = refusal("csv", seed="colour" in changes, path=path)
    assert message.startswith(f"{path}: ")
    assert says.replace("{path}", path) in message


def test_columns_are_left_out(write: Write) -> None:
    whole = load("csv", path=write(TABLE))
    more = TABLE.assign(id=[f"nr {i}" for i in ROW], note="x")
    assert load("csv", path=write(more), drop=["id", "note"]).samples.sha256 == whole.samples.sha256
    assert refusal("csv", path=write(more), drop=["ids"]).startswith(
        f"dataset.drop: {write(more)} has no column 'ids'; did you mean id?"
    )


def test_a_test_set_of_its_own(write: Write) -> None:
    train, test = TABLE[:90].assign(id="a"), TABLE[90:][[*TABLE.columns[::-1]]]
    packed = write(gzip.compress(test.to_csv(index=False).encode()), "test.csv.gz")
    data = load("csv", path=write(train), test_path=packed, drop=["id"], seed=5)
    assert data.samples.official_test == 90
    np.testing.assert_array_equal(rows_of(data, "train"), ROW[:90])
    np.testing.assert_array_equal(rows_of(data, "test"), ROW[90:])
    assert data.encoder.columns["size"] == TABLE["size"][:90].median()
    assert data.task.classes == ("ham", "spam")


@pytest.mark.parametrize(
    ("test", "says"),
    [
        (TABLE[90:].assign(more=1), "only one of the two has more; leave out"),
        (
            TABLE[90:].assign(label="eggs"),
            "test.csv: column label, row 1: expected label ham or spam, got 'eggs'",
        ),
        (
            TABLE[90:].assign(size=[0] * 29 + ["x"]),
            "test.csv: column size, row 30: expected a number, got 'x'",
        ),
        (TABLE[90:].drop(columns="label"), "has no column 'label'"),
    ],
)
def test_a_test_set_that_does_not_suit_is_refused(write: Write, test: pd.DataFrame, says: str) -> None:
    path = write(test, "test.csv")
    assert says in refusal("csv", path=write(TABLE[:90]), test_path=path)


X = np.random.default_rng(0).normal(size=(40, 2)).round(6)


@pytest.mark.parametrize(
    ("written", "classes"),
    [
        (("1", "-1"), ("-1", "1")),
        (("10", "9"), ("9", "10")),
        (("True", "False"), ("False", "True")),
        (("10", "9", "1.5"), ("1.5", "9", "10")),
        (("12E3", "12000", "1_0", "10"), ("10", "12000", "12E3", "1_0")),
        (("True", "TRUE", "1"), ("1", "TRUE", "True")),
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
    assert refusal("csv", path=write(f"{content}1,\n")).endswith(
        f"row {len(written) * 12 + 1}: expected a label, got an empty cell; "
        "dataset.skip_unlabelled=true skips such rows"
    )


@pytest.mark.parametrize(("classes", "rows"), [(("ham", "eggs"), 3), (("eggs", "ham", "spam"), 1)])
def test_a_short_table_for_a_trained_model(write: Write, classes: tuple[str, ...], rows: int) -> None:
    section = {"name": "csv", "path": write("a,label\n" + "1,ham\n" * rows), "validation": 200}
    data = load_data(section, 0, task=task_for(classes))
    assert data.task == task_for(classes)
    assert data.task.index(data.splits["all"].y).tolist() == [classes.index("ham")] * rows
    with pytest.raises(InputError, match="expected rows below its header, found none"):
        load_data({**section, "path": write("a,label\n")}, 0, task=task_for(classes))


def targets(write: Write, *changed: str) -> dict[str, str]:
    """Return the section for a table of real targets, of which the last ones are as given."""
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
        (["low"], "got 'low'; to tell classes apart: task=classification"),
        (["1.5"] * 40, "expected different, finite targets"),
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
