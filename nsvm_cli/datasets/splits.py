"""Training, validation and test sets (the paper's data protocol)."""

from __future__ import annotations

import math

import numpy as np

from nsvm_cli.datasets.base import Samples
from nsvm_cli.errors import InputError
from nsvm_cli.randomness import Stream, generator

TEST_FRACTION = 0.1
"""Fraction of data without an official split: 740 of Ringnorm's 7400 samples, as in the paper."""


def split_rows(samples: Samples, validation: int, seed: int) -> dict[str, np.ndarray]:
    """Return the rows of each split: ``train``, ``validation``, ``test`` and ``all``.

    The test set is the official one, or else a random tenth, stratified by class. Then ``validation`` samples
    of each class are drawn at random from the training set.

    Raises:
        InputError: there are too few samples for such a split.
    """
    rows = np.arange(len(samples.y))
    if samples.official_test is not None:
        train, test = np.split(rows, [samples.official_test])
    else:
        test = _draw(samples, rows, _test_counts(samples), generator(seed, Stream.SPLIT))
        train = np.setdiff1d(rows, test, assume_unique=True)
    for name, members in samples.task.strata(samples.y[train]):
        if validation >= (size := int(members.sum())):
            raise InputError(
                f"dataset.validation={validation}: expected less than the {size} training samples"
                f"{_of_class(name)}"
            )
    counts = [validation] * len(samples.task.strata(samples.y))
    held_out = _draw(samples, train, counts, generator(seed, Stream.SPLIT, 1))
    return {
        "train": np.setdiff1d(train, held_out, assume_unique=True),
        "validation": held_out,
        "test": test,
        "all": rows,
    }


def _test_counts(samples: Samples) -> list[int]:
    """Return the number of test samples of each class.

    Their sum is TEST_FRACTION of all samples, rounded up. Each class but the first is rounded to the nearest.
    """
    sizes = [int(members.sum()) for _, members in samples.task.strata(samples.y)]
    others = [round(size * TEST_FRACTION) for size in sizes[1:]]
    counts = [math.ceil(sum(sizes) * TEST_FRACTION) - sum(others), *others]
    if min(counts) < 1:
        names = [name for name, _ in samples.task.strata(samples.y)]
        few = ", ".join(
            f"{size}{_of_class(name)}"
            for count, size, name in zip(counts, sizes, names, strict=True)
            if count < 1 or len(names) < 3
        )
        raise InputError(f"{samples.source}: too few samples for a test set of a tenth: {few}")
    return counts


def _of_class(name: str) -> str:
    return f" of class {name}" if name else ""


def _draw(samples: Samples, rows: np.ndarray, counts: list[int], rng: np.random.Generator) -> np.ndarray:
    """Return this many random rows of each class, in ascending order."""
    strata = samples.task.strata(samples.y[rows])
    drawn = [
        rng.choice(rows[members], count, replace=False)
        for (_, members), count in zip(strata, counts, strict=True)
    ]
    return np.sort(np.concatenate(drawn))
