"""CSV tables: what is read, and the errors for broken tables."""

from __future__ import annotations

import gzip
import hashlib
import shlex

import numpy as np
import pytest
import torch

from nsvm_cli.compose.composition import compose_settings
from nsvm_cli.datasets import Data
from tests.datasets.conftest import Write
from tests.datasets.helpers import load, refusal

ROWS = 40
X = np.random.default_rng(0).normal(size=(ROWS, 2)).round(6)
Y = np.random.default_rng(1).permutation(np.repeat([-1.0, 1.0], ROWS // 2))


def table(
    classes: tuple[str, str] = ("ham", "spam"),
    separator: str = ",",
    header: tuple[str, ...] = ("a", "b", "label"),
) -> str:
    """Return the rows of X and Y as CSV."""
    rows = zip(X.tolist(), Y.tolist(), strict=True)
    lines = [header, *((repr(a), repr(b), classes[int(y > 0)]) for (a, b), y in rows)]
    return "".join(separator.join(line) + "\n" for line in lines)


def assert_the_table(data: Data) -> None:
    part = data.splits["all"]
    assert part.x.dtype == part.y.dtype == torch.float64
    np.testing.assert_array_equal(part.x, X)
    np.testing.assert_array_equal(part.y, Y)


@pytest.mark.parametrize("typed", [";", "\t", r"\t", " "])
def test_separators(write: Write, typed: str) -> None:
    separator = "\t" if typed == r"\t" else typed  # as a tab is typed in a shell
    content = "\ufeff" + table(separator=separator).replace("\n", "\r\n")
    data = load("csv", path=write(content), separator=typed)
    assert_the_table(data)
    assert data.samples.sha256 == hashlib.sha256(X.tobytes() + Y.tobytes()).hexdigest(), "that of the numbers"


@pytest.mark.parametrize("separator", ["::", "", "\n", "é", '"'])
def test_a_separator_is_one_character(write: Write, separator: str) -> None:
    message = refusal("csv", path=write(table()), separator=separator)
    assert message.startswith("dataset.separator: expected one ASCII character")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/none.csv", " does not exist: expected a CSV file"),
        ("none.csv", " does not exist: expected a CSV file, relative to the folder where the command is run"),
        ("/dev/zero", " is not a file: expected a CSV file"),
        ("x" * 300, " "),
        ("~nobody-of-that-name/t.csv", " "),
    ],
)
def test_a_path_of_no_table(path: str, says: str) -> None:
    assert refusal("csv", path=path).startswith(f"dataset.path={path}{says}")


SENTENCES = {
    "empty file": ("", "cannot be read as CSV"),
    "only the label column": ("label\n" + "x\ny\n" * 20, "expected at least one feature"),
    "one class": (table(("ham", "ham")), "expected at least 2 classes, got 1 class: ham"),
    "a number each": (
        "a,label\n" + "".join(f"1,{i}\n" for i in range(40)),
        "at least 2 samples of class 0, found 1; to predict numbers rather than classes: task=regression",
    ),
    "real targets": (
        "a,label\n" + "".join(f"1,{i / 7}\n" for i in range(40)),
        "found 40 different labels, such as 0.14285714285714285, which is too many for classes; to predict",
    ),
    "a word each": (
        "a,label\n" + "".join(f"1,c{i}\n" for i in range(1001)),
        "found 1001 different labels, such as c0, which is too many for classes; name another column",
    ),
    "text in a feature": (table() + "1,two,ham\n", "column b, row 41: 'two' is no number"),
    "too large for a float": (table() + "1,1e999,ham\n", "column b, row 41: expected a number, got inf"),
    "a label missing": (table() + "1,2,\n", "column label, row 41: expected a label, got an empty cell"),
    "a long row": (table() + "1,2,ham,4\n", "Expected 3 fields in line 42, saw 4"),
    "a quote left open": (table() + '"1,2,ham\n', "cannot be read as CSV"),
    "Latin-1": (
        table(("Käse", "Wurst")).encode("latin-1"),
        "expected utf-8, got bytes such as b'K\\xe4se'; name its encoding, such as cp1252, latin-1 ",
    ),
    "too few to split": ("a,label\n1,x\n2,x\n3,y\n4,y\n", "more than 10 for 2 classes, found 4"),
}


@pytest.mark.parametrize(("content", "says"), SENTENCES.values(), ids=SENTENCES)
def test_broken_tables(write: Write, content: str | bytes, says: str) -> None:
    path = write(content)
    message = refusal("csv", path=path)
    assert path in message
    assert says in message


PACKED = gzip.compress(table().encode())


def test_a_table_in_an_archive(write: Write) -> None:
    assert_the_table(load("csv", path=write(PACKED, "t.CSV.GZ")))


@pytest.mark.parametrize(
    ("name", "content"),
    [*((f"t.{end}", b"no archive") for end in ("gz", "zip", "bz2", "xz")), ("cut.gz", PACKED[:-30])],
)
def test_a_damaged_archive_is_refused(write: Write, name: str, content: bytes) -> None:
    path = write(content, name)
    assert refusal("csv", path=path).startswith(f"dataset.path={path} cannot be read as CSV: ")


@pytest.mark.parametrize(("label", "meant"), [("Label", "label"), ("outcome", "")])
def test_an_unknown_label_column_is_refused(write: Write, label: str, meant: str) -> None:
    message = refusal("csv", path=write(table()), label=label)
    assert message.startswith("dataset.label: ")
    assert f"has no column {label!r}" in message
    assert (f"did you mean {meant}?" in message) == bool(meant)


@pytest.mark.parametrize(("separator", "typed"), [(";", ";"), ("\t", r"\t")])
def test_another_separator_is_suggested(write: Write, separator: str, typed: str) -> None:
    path = write(table().replace(",", separator))
    message = refusal("csv", path=path)
    meant = rf"""is "dataset.separator='{typed}'" meant?"""
    assert message.endswith(meant)
    word = shlex.split(meant)[1]  # what a shell makes of it
    assert compose_settings(["dataset=csv", f"dataset.path={path}", word])["dataset"]["separator"] == typed


def test_labels_that_become_text_late_in_the_file(write: Write) -> None:
    """pandas would infer the types of a large file's columns part by part."""
    rows = [f"0,{label}\n" for label in ["1"] * 300_000 + ["b"] * 20]
    assert load("csv", path=write("a,label\n" + "".join(rows))).task.classes == ("1", "b")
