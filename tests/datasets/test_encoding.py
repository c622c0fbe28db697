"""Tables with text and missing values: what becomes of them, compared with scikit-learn itself."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from nsvm_cli.datasets import Data, Table
from nsvm_cli.datasets.encoding import TableEncoder
from tests.datasets.helpers import load, refusal

ROWS = 120
RNG = np.random.default_rng(0)
Y = RNG.permutation(np.repeat(["ham", "spam"], ROWS // 2))
ROW = np.arange(ROWS)
TABLE = pd.DataFrame(
    {
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
NUMBERS, TEXT = ["size", "count", "open"], ["colour", "city"]


def numbers_of_rows(data: Data) -> dict[str, np.ndarray]:
    return {name: np.sort(rows) for name, rows in data.splits._rows.items()}  # type: ignore[attr-defined]


Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(table: pd.DataFrame, name: str = "table.csv") -> str:
        table.to_csv(tmp_path / name, index=False)
        return str(tmp_path / name)

    return to_file


@pytest.mark.parametrize("seed", [0, 1])
def test_a_table_is_encoded_as_by_scikit_learn(write: Write, seed: int) -> None:
    data = load("csv", seed=seed, path=write(TABLE), validation=10)
    rows = numbers_of_rows(data)
    cells = TABLE.astype(dict.fromkeys(NUMBERS, float)).astype(dict.fromkeys(TEXT, object))
    cells[TEXT] = cells[TEXT].where(cells[TEXT].notna(), None)
    theirs = ColumnTransformer(
        [
            ("numbers", SimpleImputer(strategy="median"), NUMBERS),
            ("text", OneHotEncoder(handle_unknown="ignore", sparse_output=False), TEXT),
        ]
    ).fit(cells.iloc[rows["train"]])
    for name, part in data.splits.items():
        np.testing.assert_array_equal(part.x, theirs.transform(cells.iloc[rows[name]]))
        assert part.y.tolist() == [1 if label == "spam" else -1 for label in Y[rows[name]]]
    assert data.splits["train"].x.shape[1] == 3 + 3 + 4, "an empty cell in text is a category of its own"


def test_what_is_stored_encodes_to_the_same_bits(write: Write) -> None:
    data = load("csv", path=write(TABLE))
    assert data.encoder is not None
    known = json.loads(json.dumps(asdict(data.encoder)))
    assert known["columns"]["colour"] == ["blue", "green", "red"]
    assert known["columns"]["city"][-1] is None
    assert list(known["columns"]) == [*TABLE.columns[:-1]]
    again = type(data.encoder)(**known)
    assert (again, again.sha256) == (data.encoder, data.encoder.sha256)


def test_rows_outside_the_training_set_have_no_influence(write: Write) -> None:
    first = load("csv", path=write(TABLE), validation=10)
    rows = numbers_of_rows(first)
    others = np.concatenate([rows["test"], rows["validation"]])
    changed = TABLE.copy()
    changed.loc[others, "size"] = 1e6
    changed.loc[others, "count"] = np.nan
    changed.loc[others, ["colour", "city"]] = "new"
    other = load("csv", path=write(changed), validation=10)
    assert other.encoder == first.encoder
    assert other.splits["train"].x.equal(first.splits["train"].x)
    assert other.splits["test"].x[:, 3:].eq(0).all(), "text that no training row holds"


def test_a_table_of_complete_numbers_stays_as_it_is(write: Write) -> None:
    table = TABLE[["count", "open", "label"]]
    x = load("csv", path=write(table)).splits["all"].x
    np.testing.assert_array_equal(x, table[["count", "open"]].to_numpy(np.float64))


def test_a_table_of_text_alone(write: Write) -> None:
    data = load("csv", path=write(TABLE[["colour", "city", "label"]]))
    assert data.splits["all"].x.sum(1).eq(2).all(), "one category of each column"


def test_the_features_of_text_are_measured_before_they_are_made(write: Write) -> None:
    """A short file may hold text of many categories, each of which is a feature."""
    row = np.arange(6000)
    table = pd.DataFrame({f"text {n}": [f"t{i % 1000}" for i in row] for n in range(8)} | {"label": row % 2})
    path = write(table)
    assert refusal("csv", path=path).startswith(f"{path}, encoded as 8000 features, needs about 1,099 MiB")


@pytest.mark.parametrize("written", ["1.0", "01", "1", "1.00"])
def test_a_number_in_a_column_of_text_counts_by_its_value(write: Write, written: str) -> None:
    text = np.where(ROW % 3 == 0, "A", np.where(ROW % 3 == 1, "B", written))
    data = load("csv", path=write(TABLE.assign(grade=text)))
    assert data.encoder is not None
    assert data.encoder.columns["grade"] == ("1", "A", "B")


@pytest.mark.parametrize("cells", [[True, False, np.nan], ["TRUE", "FALSE", "other"], ["true", "False", "1"]])
@pytest.mark.parametrize("known", [("FALSE", "TRUE", None), ("False", "True", None)])
def test_a_bool_counts_by_its_value(cells: list[object], known: tuple[str | None, ...]) -> None:
    """Model files hold the spelling, as they always did, or the value."""
    table = Table(pd.DataFrame({"open": pd.Series(cells, dtype=object)}), pd.Series(dtype=object), ("table",))
    empty = float(pd.isna(cells[2]))
    assert TableEncoder({"open": known})(table).tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, empty]]


def test_texts_that_differ_in_spelling_alone_stay_apart_in_earlier_models() -> None:
    table = Table(pd.DataFrame({"a": ["true", "TRUE", "True"]}), pd.Series(dtype=object), ("table",))
    assert TableEncoder({"a": ("TRUE", "True", "true")})(table).tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"id": [f"nr {i}" for i in ROW]}, "got 108 in id: leave this out with dataset.drop=[id]"),
        (
            {"my id": [f"nr {i}" for i in ROW], "note": [f"hello {i // 2}" for i in ROW]},
            "in my id, note: leave this out with dataset.drop=['my id',note]",
        ),
        ({"none": [np.nan] * ROWS}, "no training row has a value in none: leave this out with"),
        ({"size": ["two"] + ["1"] * (ROWS - 1)}, "column size, row 1: expected a number, got 'two'"),
        ({"size": ["1"] * (ROWS - 1) + ["two"]}, f"column size, row {ROWS}: expected a number, got 'two'"),
        (
            {"size": ["9" * 400] + ["1"] * (ROWS - 1)},
            "column size, row 1: expected a number, got an integer of 1329 bits",
        ),
        ({"colour": ["x" * 5000, *TABLE["colour"][1:]]}, "at most 4096 characters in column colour, got"),
        ({"colour": ["a\x07b", *TABLE["colour"][1:]]}, "holds control characters"),
        ({"x" * 5000: ROW}, "expected at most 4096 characters in column xxx"),
    ],
)
def test_columns_that_no_model_can_use_are_refused(write: Write, changes: Any, says: str) -> None:
    path = write(TABLE.assign(**changes))
    message = refusal("csv", seed=1, path=path) if "colour" in changes else refusal("csv", path=path)
    assert message.startswith(f"{path}: ")
    assert says in message


def test_labels_of_hundreds_of_digits(write: Write) -> None:
    table = TABLE.assign(label=np.where(Y == "spam", "9" * 400, "1"))
    assert load("csv", path=write(table)).task.classes == ("1", "9" * 400)


def test_columns_are_left_out(write: Write) -> None:
    whole = load("csv", path=write(TABLE))
    more = TABLE.assign(id=[f"nr {i}" for i in ROW], note="x")
    assert load("csv", path=write(more), drop=["id", "note"]).sha256 == whole.sha256
    assert load("csv", path=write(TABLE), drop=None).sha256 == whole.sha256
    assert refusal("csv", path=write(more), drop=["ids"]).startswith(
        f"dataset.drop: {write(more)} has no column 'ids'; did you mean id?"
    )


def test_a_test_set_of_its_own(write: Write, tmp_path: Path) -> None:
    train, test = TABLE[:90].assign(id="a"), TABLE[90:][[*TABLE.columns[::-1]]]
    packed = tmp_path / "test.csv.gz"
    packed.write_bytes(gzip.compress(test.to_csv(index=False).encode()))
    data = load("csv", path=write(train), test_path=str(packed), drop=["id"], seed=5)
    assert data.official_split
    rows = numbers_of_rows(data)
    np.testing.assert_array_equal(rows["train"], ROW[:90])
    np.testing.assert_array_equal(rows["test"], ROW[90:])
    assert data.encoder is not None
    assert data.encoder.columns["size"] == TABLE["size"][:90].median()
    assert data.splits["test"].x[:, 1].tolist() == TABLE["count"][90:].tolist()
    assert data.task.classes == ("ham", "spam")


@pytest.mark.parametrize(
    ("test", "says"),
    [
        (TABLE[90:].drop(columns="size"), "only one of the two has size; leave out"),
        (TABLE[90:].assign(more=1), "only one of the two has more; leave out"),
        (TABLE[90:].assign(label="eggs"), "test.csv: row 1: expected label ham or spam, got eggs"),
        (
            TABLE[90:].assign(size=[0] * 29 + ["x"]),
            "test.csv: column size, row 30: expected a number, got 'x'",
        ),
        (TABLE[90:].drop(columns="label"), "has no column 'label'"),
        (None, "does not exist: expected a CSV file"),
    ],
)
def test_a_test_set_that_does_not_suit_is_refused(
    write: Write, tmp_path: Path, test: pd.DataFrame | None, says: str
) -> None:
    path = str(tmp_path / "test.csv") if test is None else write(test, "test.csv")
    message = refusal("csv", path=write(TABLE[:90]), test_path=path)
    assert says in message
    assert "test.csv" in message
