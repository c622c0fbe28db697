"""Training, validation and test sets (the paper's data protocol)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from nsvm_cli.datasets.base import Samples
from nsvm_cli.datasets.csv import is_number
from nsvm_cli.errors import InputError
from nsvm_cli.randomness import Stream, generator

TEST_FRACTION = 0.1
"""Fraction of data without an official split: 740 of Ringnorm's 7400 samples, as in the paper."""


def split_rows(
    samples: Samples, validation: int | float, seed: int, lenient: bool = False
) -> dict[str, np.ndarray]:
    """Return the rows of each split: ``train``, ``validation``, ``test`` and ``all``.

    The test set is the official one, or else a random tenth, stratified by class. Then ``validation`` samples
    of each class are drawn at random from the training set.

    Args:
        validation: the size of the validation set: the samples of each class, or all with real targets; or
            their share, between 0 and 1, which leaves at least one of a class to train on.
        lenient: whether classes may be absent or rare, as in data for a model that was trained before. Sets
            are then as large as the samples allow.

    Raises:
        InputError: there are too few samples for such a split.
    """
    rows = np.arange(len(samples.y))
    if not lenient:
        _expect_two_of_each(samples, _sizes(samples, rows))
    if samples.official_test is not None:
        train, test = np.split(rows, [samples.official_test])
    else:
        counts = _test_counts([*_sizes(samples, rows).values()])
        if not lenient and min(counts) < 1:
            C = len(counts)
            raise InputError(
                f"{samples.source}: too few samples for a test set of a tenth: expected more than "
                f"{10 * (C - 1)} for {C} classes, found {len(rows)}"
            )
        test = _draw(samples, rows, counts, generator(seed, Stream.SPLIT))
        train = np.setdiff1d(rows, test, assume_unique=True)
    sizes = _sizes(samples, train)
    for name, size in sizes.items():
        if validation >= size and not lenient:
            of_class = f" of class {name}" if name else ""
            raise InputError(
                f"dataset.validation={validation}: expected less than the {size} training samples{of_class}"
            )
    counts = [_validation_count(size, validation) for size in sizes.values()]
    held_out = _draw(samples, train, counts, generator(seed, Stream.SPLIT, 1))
    train = np.setdiff1d(train, held_out, assume_unique=True)
    return {"train": train, "validation": held_out, "test": test, "all": rows}


def _expect_two_of_each(samples: Samples, sizes: Mapping[str, int]) -> None:
    for name, size in sizes.items():
        if size < 2:
            of_class = f" of class {name}" if name else ""
            numbers = all(map(is_number, sizes))
            hint = "; to predict numbers rather than classes: task=regression" if numbers else ""
            raise InputError(f"{samples.source}: expected at least 2 samples{of_class}, found {size}{hint}")


def _validation_count(size: int, validation: int | float) -> int:
    """Return the number of training samples of a class to hold out for validation."""
    if isinstance(validation, int):
        return min(validation, size)
    return max(0, min(max(1, round(validation * size)), size - 1))


def _sizes(samples: Samples, rows: np.ndarray) -> dict[str, int]:
    """Return how many of these rows are of each class."""
    return {name: int(members.sum()) for name, members in samples.task.strata(samples.y[rows])}


def _test_counts(sizes: list[int]) -> list[int]:
    """Return the number of test samples of each class.

    Their sum is TEST_FRACTION of all samples, rounded up, shared out by largest remainders; each class gets
    at least one, if there are enough.
    """
    total = math.ceil(sum(sizes) * TEST_FRACTION)
    shares = [size * TEST_FRACTION for size in sizes]
    if len(sizes) <= 2 and min(sizes) > 0:  # the share of the second is rounded to the nearest integer
        others = [round(share) for share in shares[1:]]
        counts = [total - sum(others), *others]
    else:
        counts = [math.floor(share) for share in shares]
        by_remainder = sorted(range(len(sizes)), key=lambda r: counts[r] - shares[r])
        for r in by_remainder[: total - sum(counts)]:
            counts[r] += 1
    while max(counts) > 1 and (without := [r for r, size in enumerate(sizes) if size and not counts[r]]):
        counts[without[0]] += 1
        counts[counts.index(max(counts))] -= 1
    return counts


def _draw(samples: Samples, rows: np.ndarray, counts: list[int], rng: np.random.Generator) -> np.ndarray:
    """Return this many random rows of each class, in ascending order."""
    strata = samples.task.strata(samples.y[rows])
    drawn = [
        rng.choice(rows[members], count, replace=False)
        for (_, members), count in zip(strata, counts, strict=True)
    ]
    return np.sort(np.concatenate(drawn))
