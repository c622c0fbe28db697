"""Training, validation and test sets (the paper's data protocol)."""

from __future__ import annotations

import math

import numpy as np

from nsvm_cli.datasets.base import Samples
from nsvm_cli.errors import InputError
from nsvm_cli.randomness import Stream, generator

TEST_FRACTION = 0.1
"""Of data without an official split: 740 of Ringnorm's 7400 samples, as in the paper."""


def split_rows(samples: Samples, validation: int, seed: int) -> dict[str, np.ndarray]:
    """The rows of each part: ``train``, ``validation``, ``test``, and ``all``.

    The test set is the official one, else a random tenth, stratified by class. ``validation`` samples
    of each class are then taken from the training set at random.

    Raises:
        InputError: too few samples for such a split.
    """
    rows = np.arange(len(samples.y))
    if samples.official_test is not None:
        train, test = np.split(rows, [samples.official_test])
    else:
        test = _draw(samples, rows, _shares(samples), generator(seed, Stream.SPLIT))
        train = np.setdiff1d(rows, test, assume_unique=True)
    for name, members in samples.task.strata(samples.y[train]):
        if validation >= (size := int(members.sum())):
            raise InputError(
                f"dataset.validation={validation}: expected less than the {size} training samples "
                f"of class {name}"
            )
    counts = [validation] * len(samples.task.strata(samples.y))
    held_out = _draw(samples, train, counts, generator(seed, Stream.SPLIT, 1))
    return {
        "train": np.setdiff1d(train, held_out, assume_unique=True),
        "validation": held_out,
        "test": test,
        "all": rows,
    }


def _shares(samples: Samples) -> list[int]:
    """How many test samples of each class: in all TEST_FRACTION, rounded up, by class to the nearest."""
    sizes = [int(members.sum()) for _, members in samples.task.strata(samples.y)]
    others = [round(size * TEST_FRACTION) for size in sizes[1:]]
    shares = [math.ceil(sum(sizes) * TEST_FRACTION) - sum(others), *others]
    if min(shares) < 1:
        found = ", ".join(
            f"{size} of class {name}" for size, name in zip(sizes, samples.classes, strict=True)
        )
        raise InputError(f"{samples.source}: too few samples for a test set of a tenth: {found}")
    return shares


def _draw(samples: Samples, rows: np.ndarray, counts: list[int], rng: np.random.Generator) -> np.ndarray:
    """So many of the rows of each class, at random, in ascending order."""
    strata = samples.task.strata(samples.y[rows])
    drawn = [
        rng.choice(rows[members], count, replace=False)
        for (_, members), count in zip(strata, counts, strict=True)
    ]
    return np.sort(np.concatenate(drawn))
