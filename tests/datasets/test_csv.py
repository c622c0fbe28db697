"""Table files: dialects and formats, and the errors for broken tables."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from nsvm_cli import memory
from nsvm_cli.datasets import load_data
from nsvm_cli.datasets.csv import Dialect, read_cells
from nsvm_cli.datasets.unlabelled import blocks
from nsvm_cli.errors import InputError
from tests.datasets.conftest import Write
from tests.datasets.helpers import load, refusal

ROWS = 120
ROW = np.arange(ROWS)
X = np.random.default_rng(0).normal(size=(ROWS, 2)).round(6)
Y = np.random.default_rng(1).permutation(np.repeat([-1.0, 1.0], ROWS // 2))
TABLE = pd.DataFrame(X, columns=["a", "b"]).assign(label=np.where(Y > 0, "spam", "ham"))
TEXT = TABLE.to_csv(index=False)
PACKED = gzip.compress(TEXT.encode())


@pytest.mark.parametrize("typed", [";", "\t", r"\t", " ", "whitespace"])
def test_stated_separators(write: Write, typed: str) -> None:
    separator = {r"\t": "\t", "whitespace": "   "}.get(typed, typed)  # in a shell, a tab is typed as \t
    content = "\ufeff" + TEXT.replace(",", separator).replace("\n", "\r\n")
    part = (data := load("csv", path=write(content), separator=typed)).splits["all"]
    assert part.x.dtype == part.y.dtype == torch.float64
    np.testing.assert_array_equal(part.x, X)
    np.testing.assert_array_equal(part.y, Y)
    assert data.samples.sha256 == hashlib.sha256(X.tobytes() + Y.tobytes()).hexdigest()


@pytest.mark.parametrize("separator", ["::", "", "\n", "é", '"'])
def test_a_separator_is_one_character(separator: str) -> None:
    message = refusal("csv", path="any.csv", separator=separator)
    assert message.startswith("dataset.separator: expected a separator such as ;")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/none.csv", " does not exist: expected a CSV file"),
        ("none.csv", " does not exist: expected a CSV file; set dataset.path to a path relative to"),
        ("/dev/zero", " is not a file: expected a CSV file"),
        ("x" * 300, " "),
        ("~nobody-of-that-name/t.csv", " "),
    ],
)
def test_a_path_of_no_table(path: str, says: str) -> None:
    assert refusal("csv", path=path).startswith(f"dataset.path={path}{says}")


def labels(values: Iterable[object]) -> str:
    return "a,label\n" + "".join(f"1,{value}\n" for value in values)


SENTENCES: dict[str, tuple[str | bytes, str]] = {
    "empty file": ("", "cannot be read as CSV"),
    "only the label column": ("label\n" + "x\ny\n" * 20, "expected at least one column besides"),
    "one class": (TEXT.replace("spam", "ham"), "expected at least 2 classes, got 1 class: ham"),
    "a number each": (labels(range(40)), "to predict numbers, set task=regression"),
    "real targets": (
        labels(i / 7 for i in range(40)),
        "40 different labels, such as 0.14285714285714285, are too many for classification; to predict",
    ),
    "a word each": (
        labels(f"c{i}" for i in range(1001)),
        "1001 different labels, such as c0, are too many for classification; choose another",
    ),
    "text in a feature": (
        TEXT + "1,two,ham\n",
        "column b, row 121: expected numbers, found 'two' in 1 cell; add",
    ),
    "too large for a float": (
        TEXT + "1,1e999,ham\n",
        "got inf; if infinite values are missing values, add",
    ),
    "a label missing": (TEXT + "1,2,\n", "column label, row 121: expected a label, got an empty cell"),
    "a long row": (TEXT + "1,2,ham,4\n", "Expected 3 fields in line 122, saw 4"),
    "a quote left open": (TEXT + '"1,2,ham\n', "cannot be read as CSV"),
}


@pytest.mark.parametrize(("content", "says"), SENTENCES.values(), ids=SENTENCES)
def test_broken_tables(write: Write, content: str | bytes, says: str) -> None:
    path = write(content)
    message = refusal("csv", path=path)
    assert path in message
    assert says in message


@pytest.mark.parametrize(
    ("name", "content"),
    [*((f"t.{end}", b"no archive") for end in ("gz", "zip", "bz2", "xz")), ("cut.gz", PACKED[:-30])],
)
def test_a_damaged_archive_is_refused(write: Write, name: str, content: bytes) -> None:
    path = write(content, name)
    assert refusal("csv", path=path).startswith(f"dataset.path={path} cannot be read as CSV: ")


@pytest.mark.parametrize(("label", "hint"), [("Label", "did you mean label? "), ("outcome", "expected one")])
def test_an_unknown_label_column_is_refused(write: Write, label: str, hint: str) -> None:
    path = write(TABLE)
    says = f"dataset.label: {path} has no column {label!r}; {hint}"
    assert refusal("csv", path=path, label=label).startswith(says)


def test_a_column_that_becomes_text_late_in_the_file(write: Write) -> None:
    """By default, pandas infers the types of columns separately for each part of a large file."""
    path = write("a,code\n" + "0,01\n" * 300_000 + "0,b\n" * 20)
    assert [*read_cells(path, "", Dialect())[0]["code"].unique()] == ["01", "b"]


def test_another_encoding_and_decimal_commas(write: Write) -> None:
    table = TABLE.assign(city=np.resize(["Köln", "Ulm"], ROWS), gap=np.where(ROW % 5 == 0, "", "1,5"))
    text = table.to_csv(index=False, sep=";", decimal=",")
    path = write(text.encode("latin-1"))
    dialect: dict[str, Any] = {"separator": ";", "encoding": "latin-1", "decimal": ","}
    data = load("csv", path=path, **dialect)
    np.testing.assert_array_equal(data.splits["all"].x[:, :2], X)
    assert data.encoder.columns["gap"].median == 1.5
    assert data.encoder.columns["city"] == ("Köln", "Ulm")
    # one word makes pandas read the whole column as text
    other = write((text + "2,25;1;ham;Ulm;\nold;1;ham;Ulm;\n").encode("latin-1"), "other.csv")
    assert refusal("csv", path=other, **dialect) == (
        f"{other}: column a, row 122: expected numbers, found 'old' in 1 cell; "
        "add 'dataset.missing={a:[old]}' if they mean missing values, or 'dataset.text=[a]' if the column "
        "contains categories"
    )
    targets = load_data({"name": "csv", "path": path, "label": "b", **dialect}, 0, "regression")
    np.testing.assert_array_equal(targets.splits["all"].y, X[:, 1])
    assert "cannot be read as CSV: unknown encoding: latin-x" in refusal("csv", path=path, encoding="latin-x")
    assert "dataset.decimal should be '.' or ','" in refusal("csv", path=path, decimal=";")


def test_a_decimal_comma_is_recognised_and_lists_are_refused_as_numbers(write: Write) -> None:
    commas, lists = np.resize(["0,5", "", "-1,5"], ROWS), np.resize(["1,2,3", "4,5"], ROWS)
    path = write(TABLE.assign(a=commas, some=lists))
    assert "or 'dataset.text=[some]' if the column contains categories" in refusal("csv", path=path)
    data = load("csv", path=path, text=["some"])
    assert "a: decimal sign ','" in data.remarks()
    np.testing.assert_array_equal(data.splits["all"].x[:3, 0], [0.5, data.encoder.columns["a"].median, -1.5])
    assert data.encoder.columns["some"] == ("1,2,3", "4,5")


def test_rows_without_a_label_are_skipped_on_request(write: Write) -> None:
    gaps = TABLE.assign(code=np.resize(["01", "1"], ROWS), label=TABLE["label"].mask(ROW % 10 == 0))
    path, test = write(gaps[:90]), write(gaps[90:], "test.csv")
    says = "row 1: expected a label, got an empty cell; set dataset.skip_unlabelled=true to skip such rows"
    assert says in refusal("csv", path=path)
    data = load("csv", path=path, test_path=test, skip_unlabelled=True)
    assert data.splits.sizes == {"train": 81, "validation": 0, "test": 27, "all": 108}
    np.testing.assert_array_equal(data.splits["all"].x[:, :2], X[ROW % 10 != 0])
    assert [*data.samples.numbers] == [n % 90 + 1 for n in ROW if n % 10]
    assert [line for line in data.remarks() if "skipped" in line] == [
        f"{path}: skipped 9 rows without a label or in rare classes",
        f"{test}: skipped 3 rows without a label or in rare classes",
    ]


def test_files_of_their_own_are_the_validation_and_the_test_set(write: Write) -> None:
    parts = TABLE[:80].assign(id="a"), TABLE[80:85].assign(id="b"), TABLE[85:][["label", "b", "a"]]
    packed = write(gzip.compress(parts[2].to_csv(index=False).encode()), "test.csv.gz")
    own = {"path": write(parts[0]), "validation_path": write(parts[1], "validation.csv"), "drop": ["id"]}
    data = load("csv", **own, test_path=packed, seed=5)
    for name, rows in zip(("train", "validation", "test"), (ROW[:80], ROW[80:85], ROW[85:]), strict=True):
        np.testing.assert_array_equal(data.splits[name].x, X[rows])
    assert data.splits.sizes == {"train": 80, "validation": 5, "test": 35, "all": 120}
    assert (data.samples.official_test, data.task.classes) == (85, ("ham", "spam"))
    assert data.encoder.columns["a"] == np.median(X[:80, 0])
    assert load("csv", **own).splits.sizes == {"train": 72, "validation": 5, "test": 8, "all": 85}
    says = f"dataset.validation=0.2: {own['path']} already has a validation set; remove dataset.validation"
    assert refusal("csv", **own, validation=0.2) == says


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"more": 1}, "only one of the two files has more; to exclude"),
        ({"label": "eggs"}, "test.csv: column label, row 1: expected the label ham or spam, got 'eggs'"),
        ({"a": [0] * 29 + ["x"]}, "test.csv: column a, row 30: expected a number, got 'x'"),
    ],
)
def test_a_test_set_that_does_not_suit_is_refused(write: Write, changes: dict[str, Any], says: str) -> None:
    test = write(TABLE[90:].assign(**changes), "test.csv")
    assert says in refusal("csv", path=write(TABLE[:90]), test_path=test)


def test_a_test_set_needs_labels_but_no_weights(write: Write) -> None:
    weighted, own = write(TABLE.assign(w=ROW % 3 + 1.0)), write(TABLE[:20], "own.csv")
    data = load("csv", path=weighted, weight="w", test_path=own)
    np.testing.assert_array_equal(data.weights(None), (ROW % 3 + 1) / (ROW % 3 + 1).mean())
    unlabelled = write(TABLE[["a", "b"]], "test.csv")
    assert "has no column 'label'" in refusal("csv", path=write(TABLE), test_path=unlabelled)


def test_parquet_is_read_as_csv_is(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    table = TABLE.assign(
        day=pd.Timestamp("1969-06-01") + pd.to_timedelta(ROW * 100_000, unit="s"),
        city=np.resize(["Ulm", None], ROWS),
        label=np.resize([1, 2], ROWS),
    )

    def parquet(table: Any, name: str = "table.parquet") -> str:
        pq.write_table(table if isinstance(table, pa.Table) else pa.Table.from_pandas(table), tmp_path / name)
        return str(tmp_path / name)

    data, same = (load("csv", path=path) for path in (parquet(table), write(table)))
    np.testing.assert_allclose(data.splits["all"].x, same.splits["all"].x, rtol=1e-15)
    assert (data.task, data.encoder.features) == (same.task, same.encoder.features)
    new = Path(parquet(table.drop(columns="label").assign(old=ROW), "new.parquet"))
    found = [*blocks(new, (7,), same.encoder, outputs=2**15, keep=["old", "old"])]
    assert len(found) > 1
    np.testing.assert_array_equal(np.concatenate([x for x, _ in found]), data.splits["all"].x)
    assert [row for _, beside in found for row in beside["old"]] == [*ROW]
    signs = parquet(table.assign(label=np.resize(["=a", "b"], ROWS)))
    assert load("csv", path=signs).task.classes == ("=a", "b")
    twice = parquet(pa.table([ROW, ROW, TABLE["label"]], ["a", "a", "label"]))
    for path in (twice, write(b"PAR1", "bad.parquet")):
        assert f"{path} cannot be read as Parquet: " in refusal("csv", path=path)
    narrow = parquet(pa.table({"a": np.zeros(2**17), "label": np.arange(2**17) % 2}))
    monkeypatch.setattr(memory, "MEMORY_BUDGET", 1)
    with pytest.raises(InputError, match=r"table\.parquet has 2 MiB, more than memory_budget=1"):
        load_data({"name": "csv", "path": narrow}, 0, memory_budget=1)
