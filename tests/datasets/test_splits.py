"""Training, validation and test sets."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from nsvm_cli.datasets import Samples, split_data
from nsvm_cli.datasets.splits import split_rows
from nsvm_cli.errors import InputError
from nsvm_cli.tasks import encode
from tests.datasets.conftest import Write
from tests.datasets.helpers import labelled, load, refusal

RINGNORM = (3664, 3736)


@pytest.mark.parametrize(("validation", "expected"), [(0, 3), ("4 each", 0)])
def test_held_out_samples_that_are_training_samples_are_counted(validation: int | str, expected: int) -> None:
    x = np.arange(20.0)[:, None, None] * np.ones((1, 2, 3))
    x[-4:] = x[[0, 1, 1, -4]]
    x[0], x[-4] = 0.0, -0.0
    data = split_data(
        Samples(x, np.resize([-1.0, 1.0], 20), ("no", "yes"), "a table", 16), validation, 0, False
    )
    assert data.duplicates == expected
    said = "3 of 4 test samples have the same features as a training sample, so the test "
    assert [line.startswith(said) for line in data.remarks()] == [True] * (not validation)


@pytest.mark.parametrize(
    ("y", "classes", "message"),
    [
        ([0, 1, 1], ("a", "b"), r"expected the codes -1 and \+1 in y for 2 classes, got 0$"),
        ([1, 2, 3], ("a", "b", "c"), "expected the codes 0 to 2 in y for 3 classes, got 3$"),
        ([0, 0, 0], ("yes",), "expected at least 2 classes, got 1 class: yes"),
    ],
)
def test_labels_are_the_codes_of_their_classes(y: list[int], classes: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Samples(np.zeros((3, 1)), np.array(y, float), classes, "mine")


@pytest.mark.parametrize(("validation", "seed"), [(0, 0), ("200 each", 1), (400, 2)])
def test_splits_are_disjoint_and_cover_everything(validation: int | str, seed: int) -> None:
    rows = split_rows(labelled(*RINGNORM), validation, seed)
    parts, held_out = [rows[name] for name in ("train", "validation", "test")], 400 if validation else 0
    assert [len(part) for part in parts] == [6660 - held_out, held_out, 740]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(7400))
    np.testing.assert_array_equal(rows["all"], np.arange(7400))


@pytest.mark.parametrize(
    ("classes", "validation", "expected"),
    [
        (RINGNORM, "200 each", [200, 200]),
        (RINGNORM, 400, [198, 202]),
        ((2, 9), 4, [0, 4]),
        ((28, 45), 4, [2, 2]),
        ((980, 20), 100, [98, 2]),
        ((980, 20), 899, [881, 17]),
        ((980, 20), 0.25, [221, 4]),
        ((980, 20), 0.001, [1, 1]),
        ((980, 20), 0.9999, [881, 17]),
        ((2, 30), 0.25, [0, 7]),  # the only training sample of a class is not held out
    ],
)
def test_validation_takes_as_many_or_a_share_from_the_training_set(
    classes: tuple[int, int], validation: int | float | str, expected: list[int]
) -> None:
    samples = labelled(*classes)
    without, rows = split_rows(samples, 0, 2), split_rows(samples, validation, 2)
    np.testing.assert_array_equal(rows["test"], without["test"])
    np.testing.assert_array_equal(np.union1d(rows["train"], rows["validation"]), without["train"])
    assert [int((samples.y[rows["validation"]] == label).sum()) for label in (-1, 1)] == expected


def test_the_seed_determines_the_split() -> None:
    samples = labelled(60, 40)
    rows, other = split_rows(samples, 5, 0), split_rows(samples, 5, 1)
    for again in (split_rows(samples, 5, 0), split_rows(samples, 5, 0, lenient=True)):
        assert all(np.array_equal(rows[name], again[name]) for name in rows)
    assert not np.array_equal(rows["test"], other["test"])
    assert not np.array_equal(rows["validation"], other["validation"])


def test_validation_leaves_an_official_test_set_alone() -> None:
    rows = split_rows(labelled(60, 40, official_test=70), 10, 0)
    np.testing.assert_array_equal(rows["test"], np.arange(70, 100))
    np.testing.assert_array_equal(np.union1d(rows["train"], rows["validation"]), np.arange(70))


@pytest.mark.parametrize(
    ("validation", "message"),
    [
        ("18 each", "18, the number of training samples of class yes"),
        (900, "900, the number of training samples$"),
    ],
)
def test_what_cannot_be_split(validation: int | str, message: str) -> None:
    with pytest.raises(InputError, match=f"={validation}: expected fewer than {message}"):
        split_rows(labelled(980, 20), validation, 0)


@pytest.mark.parametrize("classes", [(2, 2), (8, 2), (2, 40)])
def test_a_tenth_has_samples_of_a_class_with_two(classes: tuple[int, int]) -> None:
    samples = labelled(*classes)
    rows = split_rows(samples, 0, 0)
    for name in ("train", "test"):
        assert {*samples.y[rows[name]]} == {-1.0, 1.0}
    assert len(rows["test"]) <= max(2, math.ceil(sum(classes) / 10))


def test_classes_are_no_targets() -> None:
    says = "task=regression: the labels of a table are classes; set task=classification"
    with pytest.raises(InputError, match=says):
        split_data(labelled(50, 50), 0, 0, global_scaling=False, kind="regression")


@pytest.mark.parametrize(
    ("class_sizes", "expected"),
    [
        *(([25, 25], [3, 2]), ([10, 13], [1, 1]), ([28, 45], [3, 4]), ([2, 40], [1, 3]), ([2, 2], [1, 1])),
        *(([2, 2, 2], [1, 1, 1]), ([14, 15, 16], [1, 2, 2]), ([94, 3, 3], [8, 1, 1])),
        *(
            ([55] * 26, [6] * 13 + [5] * 13),
            ([0, 30, 5], [0, 3, 1]),
            ([0, 0, 1], [0, 0, 1]),
            ([0, 17], [0, 2]),
        ),
    ],
)
def test_how_a_tenth_is_shared_out(class_sizes: list[int], expected: list[int]) -> None:
    y = np.repeat([-1.0, 1.0] if len(class_sizes) == 2 else np.arange(float(len(class_sizes))), class_sizes)
    samples = Samples(np.zeros((len(y), 1)), y, tuple(map(str, range(len(class_sizes)))), "a table")
    test = y[split_rows(samples, 0, 0, lenient=True)["test"]]
    assert [int(members.sum()) for _, members in samples.task.strata(test)] == expected


@pytest.mark.parametrize("validation", [200, "200 each", 0.25])
@pytest.mark.parametrize("y", [[], [1.0], [1.0] * 30])
def test_a_trained_model_takes_what_there_is(y: list[float], validation: int | float | str) -> None:
    samples = Samples(np.zeros((len(y), 1)), np.array(y), ("no", "yes"), "a table")
    rows = split_rows(samples, validation, 0, lenient=True)
    parts = [rows[name] for name in ("train", "validation", "test")]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), rows["all"])
    assert (len(rows["all"]), len(rows["test"])) == (len(y), -(-len(y) // 10))


@pytest.mark.parametrize("sizes", [(2, 9), (3, 30), (28, 45), (5, 5, 90), (2, 2, 2, 40)])
@pytest.mark.parametrize("validation", [2, 4, 8])
def test_a_number_of_validation_samples_is_that_number(sizes: tuple[int, ...], validation: int) -> None:
    classes = tuple(map(str, range(len(sizes))))
    y = encode(np.repeat(classes, sizes), classes)
    rows = split_rows(Samples(np.zeros((len(y), 1)), y, classes, "a table"), min(validation, len(y) // 3), 0)
    assert len(rows["validation"]) == min(validation, len(y) // 3)
    assert {*y[rows["train"]]} == {*y}


@pytest.mark.parametrize("classes", [("no", "yes"), ("a", "b", "c"), ()])
@pytest.mark.parametrize("grouped", [False, True])
def test_every_sample_is_in_the_test_set_of_one_fold(classes: tuple[str, ...], grouped: bool) -> None:
    rng = np.random.default_rng(0)
    y = encode(np.resize([*classes], 200), classes) if classes else rng.normal(size=200)
    groups = rng.integers(40, size=200).astype(str) if grouped else None
    samples = Samples(rng.normal(size=(200, 1)), y, classes, "a table", groups=groups)
    splits = [split_rows(samples, 0.2, 3, f"{k}/5") for k in range(5)]
    tested = np.concatenate([rows["test"] for rows in splits])
    np.testing.assert_array_equal(np.sort(tested), np.arange(200))
    assert all(len(rows["validation"]) for rows in splits)


@pytest.mark.parametrize(
    ("m", "groups", "found"),
    [(40, 8, "groups for 10 folds, found 8"), (16, 16, "samples of the largest class for 10 folds, found 8")],
)
def test_too_few_groups_or_grouped_samples_are_refused(m: int, groups: int, found: str) -> None:
    samples = Samples(np.zeros((m, 1)), np.resize([-1.0, 1.0], m), ("no", "yes"), "a table")
    samples = replace(samples, groups=(np.arange(m) % groups).astype(str))
    with pytest.raises(
        InputError, match=f"expected at least 10 {found}; set dataset.fold=K/N with a smaller N"
    ):
        split_rows(samples, 0, 0, "0/10")
    assert len(split_rows(samples, 0, 0, "0/5")["test"])
    one = replace(samples, groups=np.full(m, "same"))
    with pytest.raises(InputError, match=r"expected at least 2 groups for 2 folds, found 1$"):
        split_rows(one, 0, 0)


@pytest.mark.parametrize("validation", [0, 0.1])
@pytest.mark.parametrize("classes", [("no", "yes"), ()])
def test_five_groups_are_five_folds(classes: tuple[str, ...], validation: float) -> None:
    y = np.resize([-1.0, 1.0], 50)
    groups = (np.arange(50) // 10).astype(str)
    rows = split_rows(Samples(np.zeros((50, 1)), y, classes, "a table", groups=groups), validation, 0)
    sets = [{*groups[rows[name]]} for name in ("train", "validation", "test")]
    assert [len(one) for one in sets] == ([3, 1, 1] if validation else [4, 0, 1])


def test_groups_and_times_of_random_tables_stay_apart() -> None:
    for n in range(20):
        rng = np.random.default_rng(n)
        m, classes = int(rng.integers(60, 200)), ("no", "yes")[: 2 * int(rng.integers(2))]
        y = rng.permutation(np.resize([-1.0, 1.0], m)) if classes else rng.normal(size=m)
        table = Samples(np.zeros((m, 1)), y, classes, "a table")
        validation = [0.2, 10][n % 2]
        groups = rng.integers(25, size=m).astype(str)
        if len(np.unique(groups)) < 25:
            continue
        rows = split_rows(replace(table, groups=groups), validation, n)
        sets = [{*groups[rows[name]]} for name in ("train", "validation", "test")]
        assert all(sets)
        assert sum(map(len, sets)) == 25
        times = rng.integers(30, size=m).astype(float)
        rows = split_rows(replace(table, times=times), validation, n)
        train, held_out, test = (times[rows[name]] for name in ("train", "validation", "test"))
        assert train.max() < held_out.min() <= held_out.max() < test.min()
        assert len(train) + len(held_out) + len(test) == m


def test_columns_of_groups_and_times_are_no_features(write: Write) -> None:
    row = np.arange(60)
    days = pd.date_range("2024-01-01", periods=60).strftime("%Y-%m-%d")
    patients = [f"p{n // 3}" for n in row]
    visits = pd.DataFrame({"patient": patients, "day": days, "x": row, "label": np.resize(["no", "yes"], 60)})
    path = write(visits)
    splits = load("csv", path=path, group="patient", drop=("day",)).splits
    assert splits["train"].x.shape == (54, 1)
    assert not np.isin(splits["test"].x // 3, splits["train"].x // 3).any()
    assert load("csv", path=path, time="day", drop=("patient",)).splits["test"].x[:, 0].min() == 54
    assert "dataset.group: " in refusal("csv", path=path, group="patent")
    says = "column patient, row 1: expected a number or a date such as 2024-12-31, got 'p0'"
    assert says in refusal("csv", path=path, time="patient")
