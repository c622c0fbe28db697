"""Training, validation and test sets (the paper's data protocol)."""

from __future__ import annotations

import numpy as np
from sklearn.model_selection import train_test_split

from nsvm_cli.datasets.base import Samples
from nsvm_cli.errors import InputError
from nsvm_cli.randomness import Stream, derived_seed, generator

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
        try:
            train, test = train_test_split(
                rows,
                test_size=TEST_FRACTION,
                stratify=samples.y,
                random_state=derived_seed(seed, Stream.SPLIT),
            )
        except ValueError as error:
            raise InputError(f"{samples.source}: too few samples to split off a test set ({error})") from None
    train, test = np.sort(train), np.sort(test)
    held_out = _draw(samples, train, validation, seed)
    return {
        "train": np.setdiff1d(train, held_out, assume_unique=True),
        "validation": held_out,
        "test": test,
        "all": rows,
    }


def _draw(samples: Samples, train: np.ndarray, per_class: int, seed: int) -> np.ndarray:
    rng = generator(seed, Stream.SPLIT, 1)
    drawn = []
    for label, name in zip((-1, 1), samples.classes, strict=True):
        members = train[samples.y[train] == label]
        if per_class >= len(members):
            raise InputError(
                f"dataset.validation={per_class}: expected less than the {len(members)} training samples "
                f"of class {name}"
            )
        drawn.append(rng.choice(members, per_class, replace=False))
    return np.sort(np.concatenate(drawn))
