"""Training, validation and test sets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nsvm_cli.datasets import Samples, load_data, split_data
from nsvm_cli.datasets.splits import _test_counts, split_rows
from nsvm_cli.errors import InputError
from tests.datasets.helpers import labelled

RINGNORM = (3664, 3736)
Rows = dict[str, np.ndarray]


def counts(samples: Samples, rows: np.ndarray) -> list[int]:
    return [int((samples.y[rows] == label).sum()) for label in (-1, 1)]


@pytest.fixture(params=[0, 1, 2], ids="seed{}".format)
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.mark.parametrize("dtype", [np.float64, np.uint8])
@pytest.mark.parametrize("validation", [0, 4])
def test_held_out_samples_that_are_training_samples_are_counted(validation: int, dtype: type) -> None:
    x = np.arange(20, dtype=dtype)[:, None, None] * np.ones((1, 2, 3), dtype)
    x[-4:] = x[[0, 1, 1, -4]]
    if dtype is np.float64:
        x[0], x[-4] = 0.0, -0.0
    y = np.resize([-1.0, 1.0], 20)
    data = split_data(Samples(x, y, ("no", "yes"), "a table", 16), validation, 0, False)
    train, held_out = (data.splits[name].x.tolist() for name in ("train", data.splits.held_out))
    expected = sum(sample in train for sample in held_out)
    assert data.duplicates == expected
    if validation:
        assert expected == 0
        assert "test" not in data.splits._taken
        assert data.remarks() == []
    else:
        assert expected == 3
        [line] = data.remarks()
        assert line.startswith(
            "3 of 4 test samples have exactly the features of a training sample: the score"
        )


def test_a_small_share_of_such_samples_is_in_the_result_only() -> None:
    samples = replace(labelled(500, 500, 800), x=np.append(np.arange(999.0), 0)[:, None])
    data = split_data(samples, 0, 0, False)
    assert (data.duplicates, data.remarks()) == (1, [])


@pytest.mark.parametrize("validation", [0, 1, 200])
def test_splits_are_disjoint_and_cover_everything(seed: int, validation: int) -> None:
    rows = split_rows(labelled(*RINGNORM), validation, seed)
    parts = [rows[name] for name in ("train", "validation", "test")]
    assert [len(part) for part in parts] == [6660 - 2 * validation, 2 * validation, 740]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(7400))
    np.testing.assert_array_equal(rows["all"], np.arange(7400))


@pytest.mark.parametrize(
    ("classes", "validation", "expected"),
    [
        *((RINGNORM, number, [number, number]) for number in (1, 7, 200, 1000)),
        *(((980, 20), share, held) for share, held in ((0.25, [220, 4]), (0.001, [1, 1]))),
        *(((980, 20), share, held) for share, held in ((0.5, [441, 9]), (0.9999, [881, 17]))),
        ((2, 30), 0.25, [0, 7]),  # the only training sample of a class stays one
    ],
)
def test_validation_takes_as_many_or_a_share_of_each_class_from_the_training_set(
    classes: tuple[int, int], validation: int | float, expected: list[int], seed: int
) -> None:
    samples = labelled(*classes)
    without, rows = split_rows(samples, 0, seed), split_rows(samples, validation, seed)
    np.testing.assert_array_equal(rows["test"], without["test"])
    np.testing.assert_array_equal(np.union1d(rows["train"], rows["validation"]), without["train"])
    assert counts(samples, rows["validation"]) == expected


def same(first: Rows, second: Rows) -> bool:
    return all(np.array_equal(first[name], second[name]) for name in first)


def test_the_seed_determines_the_split(seed: int) -> None:
    samples = labelled(60, 40)
    rows = split_rows(samples, 5, seed)
    assert same(rows, split_rows(samples, 5, seed))
    other = split_rows(samples, 5, seed + 1)
    assert not np.array_equal(rows["test"], other["test"])
    assert not np.array_equal(rows["validation"], other["validation"])


def test_validation_leaves_an_official_test_set_alone(seed: int) -> None:
    samples = labelled(60, 40, official_test=70)
    rows = split_rows(samples, 10, seed)
    np.testing.assert_array_equal(rows["test"], np.arange(70, 100))
    assert counts(samples, rows["validation"]) == [10, 10]
    assert rows["validation"].max() < 70
    np.testing.assert_array_equal(np.union1d(rows["train"], rows["validation"]), np.arange(70))


@pytest.mark.parametrize(("validation", "short"), [(18, "18 training samples of class yes"), (882, "no|yes")])
def test_a_validation_set_larger_than_the_training_set_is_refused(validation: int, short: str) -> None:
    with pytest.raises(InputError, match=short) as caught:
        split_rows(labelled(980, 20), validation, 0)
    assert str(caught.value).startswith(f"dataset.validation={validation}: expected less than ")


@pytest.mark.parametrize(
    ("class_sizes", "expected"),
    [
        ([25, 25], [3, 2]),  # as in earlier versions, of which this is the formula for two classes
        ([11, 11], [2, 1]),
        ([10, 13], [2, 1]),
        ([40, 3], [4, 1]),
        ([2, 40], [1, 4]),
        ([50], [5]),
        ([100, 100, 100], [10, 10, 10]),
        ([14, 15, 16], [1, 2, 2]),
        ([94, 3, 3], [8, 1, 1]),
        ([2, 2, 96], [1, 1, 8]),
        ([55] * 26, [6] * 13 + [5] * 13),
        ([5, 5, 5], [1, 1, 0]),  # too few: refused, but for a trained model
        ([0, 30, 5], [0, 3, 1]),
        ([0, 0, 1], [0, 0, 1]),
        ([0, 0], [0, 0]),
        ([0, 17], [0, 2]),
    ],
)
def test_how_a_tenth_is_shared_out(class_sizes: list[int], expected: list[int]) -> None:
    assert _test_counts(class_sizes) == expected


def test_every_class_is_in_both_sets(seed: int) -> None:
    rng = np.random.default_rng(seed)
    class_sizes = rng.integers(2, 300, 26)
    y = rng.permutation(np.repeat(np.arange(26.0), class_sizes))
    samples = Samples(np.zeros((len(y), 1)), y, tuple("abcdefghijklmnopqrstuvwxyz"), "letters")
    rows = split_rows(samples, 1, seed) if class_sizes.min() > 2 else split_rows(samples, 0, seed)
    train, test = (np.bincount(y[rows[name]].astype(int), minlength=26) for name in ("train", "test"))
    assert test.sum() == -(-len(y) // 10)
    assert min(train.min(), test.min()) >= 1
    assert (np.abs(test - class_sizes / 10) < 1).all() or class_sizes.min() < 10


def test_a_trained_model_gets_the_split_that_it_was_trained_with(seed: int) -> None:
    samples = labelled(60, 40)
    for validation in (5, 0.2):
        known = split_rows(samples, validation, seed, lenient=True)
        assert same(split_rows(samples, validation, seed), known)


@pytest.mark.parametrize("validation", [200, 0.25])
@pytest.mark.parametrize("y", [[], [1.0], [-1.0, -1.0], [1.0] * 30])
def test_a_trained_model_takes_what_there_is(y: list[float], validation: int | float) -> None:
    samples = Samples(np.zeros((len(y), 1)), np.array(y), ("no", "yes"), "a table")
    rows = split_rows(samples, validation, 0, lenient=True)
    parts = [rows[name] for name in ("train", "validation", "test")]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), rows["all"])
    assert (len(rows["all"]), len(rows["test"])) == (len(y), -(-len(y) // 10))


def test_what_cannot_be_split() -> None:
    with pytest.raises(InputError, match="expected at least 2 classes, got 1 class: yes"):
        Samples(np.zeros((2, 1)), np.zeros(2), ("yes",), "a table")
    with pytest.raises(InputError, match="has classes: expected task=classification, got task=regression"):
        split_data(labelled(50, 50), 0, 0, global_scaling=False, kind="regression")


@pytest.mark.usefixtures("unchecked")
def test_samples_without_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="expected as many samples as labels, got 3 and 2"):
        Samples(np.zeros((3, 1)), np.zeros(2), ("no", "yes"), "a table")


@pytest.mark.parametrize(("negative", "positive"), [(2, 2), (5, 4), (8, 2)])
def test_too_few_samples_for_a_test_set(negative: int, positive: int) -> None:
    with pytest.raises(InputError, match=r"^a table: too few samples") as caught:
        split_rows(labelled(negative, positive), 0, 0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("official_test", "generated", "test", "validation"),
    [(None, False, 10 / 80, 10 / 80), (90, False, 0, 10 / 80), (None, True, 0, 0)],
    ids=["one table", "official test set", "generated"],
)
def test_seeds_overlap_in_what_they_draw_from_the_same_samples(
    official_test: int | None, generated: bool, test: float, validation: float
) -> None:
    samples = replace(labelled(50, 50, official_test), generated=generated)
    data = split_data(samples, 5, 0, global_scaling=False)
    assert (data.overlap("test"), data.overlap("validation")) == (test, validation)


def test_load_data_takes_the_rows_of_the_split() -> None:
    data = load_data({"name": "ringnorm", "samples": 400, "validation": 30}, 4)
    everything = data.splits["all"]
    samples = Samples(everything.x.numpy(), everything.y.numpy(), data.task.classes, data.source)
    for name, rows in split_rows(samples, 30, 4).items():
        assert data.splits[name].x.equal(everything.x[rows])
        assert data.splits[name].y.equal(everything.y[rows])
