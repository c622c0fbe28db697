"""Training, validation and test sets: the paper's data protocol, folds, groups and times."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping

import numpy as np

from nsvm_cli.config.overrides import override
from nsvm_cli.datasets.base import EACH, Samples, Validation
from nsvm_cli.datasets.notation import is_number
from nsvm_cli.errors import InputError
from nsvm_cli.output import shortened
from nsvm_cli.randomness import Stream, derived_seed, generator

TEST_FRACTION = 0.1
"""Fraction of samples in a test set without official split: 740 of Ringnorm's 7400, as in the paper."""


def split_rows(
    samples: Samples, validation: Validation, seed: int, fold: str | None = None, lenient: bool = False
) -> dict[str, np.ndarray]:
    """Return the row indices of the splits ``train``, ``validation``, ``test`` and ``all``.

    The test set is the official test set, fold K of N if ``fold`` is K/N, or a tenth of the samples. The
    validation set comes from the other samples. Both are drawn at random, stratified by class. With times,
    the latest samples are held out instead. Samples of the same group or time stay together.

    Args:
        validation: the number of validation samples, their fraction, or their number per class ("200 each").
        lenient: whether classes may be absent or rare, for example in data for a trained model.

    Raises:
        InputError: there are too few samples for the split.
    """
    rows = np.arange(len(samples.y))
    if samples.times is not None and (samples.groups is not None or fold is not None):
        raise InputError(
            "dataset.time cannot be combined with dataset.group or dataset.fold; remove dataset.time"
        )
    ends = [len(rows) if row is None else row for row in (samples.official_validation, samples.official_test)]
    train, held_out, test = rows[: min(ends)], rows[min(ends) : ends[1]], rows[ends[1] :]
    if samples.official_test is None:
        test = _test_set(samples, train, fold, seed)
    elif fold is not None:
        raise InputError(f"dataset.fold={fold}: {samples.source} already has a test set; remove dataset.fold")
    train = np.setdiff1d(train, test, assume_unique=True)
    if samples.official_validation is not None and validation:
        has = f"{samples.source} already has a validation set"
        raise InputError(f"dataset.validation={validation}: {has}; remove dataset.validation")
    if samples.official_validation is None:
        held_out = _validation_set(samples, train, validation, seed, lenient)
    train = np.setdiff1d(train, held_out, assume_unique=True)
    return {"train": train, "validation": held_out, "test": test, "all": rows}


def _test_set(samples: Samples, rows: np.ndarray, fold: str | None, seed: int) -> np.ndarray:
    """Return the rows of a test set: a fold, the latest samples, or a random tenth."""
    if fold is not None or samples.groups is not None:
        k, n = map(int, (fold or "0/10").split("/"))
        return _fold(samples, rows, k, n, derived_seed(seed, Stream.SPLIT), fixed=fold is not None)
    if samples.times is not None:
        return _latest(samples, rows, math.ceil(len(rows) * TEST_FRACTION))
    sizes = [*_sizes(samples, rows).values()]
    total = sum(sizes) * TEST_FRACTION
    # published results round up, except for two classes
    total = max(round(total) if len(sizes) == 2 else math.ceil(total), sum(map(bool, sizes)))
    counts = _shared_out(sizes, TEST_FRACTION, total, sizes)
    return _draw(samples, rows, counts, generator(seed, Stream.SPLIT))


def _validation_set(
    samples: Samples, train: np.ndarray, validation: Validation, seed: int, lenient: bool
) -> np.ndarray:
    each = isinstance(validation, str)
    amount = int(validation.removesuffix(EACH)) if isinstance(validation, str) else validation
    sizes, share = _sizes(samples, train), isinstance(amount, float)
    whole = sizes if each else {"": len(train)}
    for name, size in whole.items():
        if amount >= size and not lenient:
            of_class = f" of class {name}" if name else ""
            expected = f"expected fewer than {size}, the number of training samples{of_class}"
            raise InputError(f"dataset.validation={validation}: {expected}")
    count = round(amount * len(train)) if share else min(int(amount) * len(whole), len(train))
    if amount and samples.times is not None:
        return _latest(samples, train, max(1, count))
    if amount and samples.groups is not None:
        n = max(2, round(len(train) / max(1, count)))
        return _fold(samples, train, 0, n, derived_seed(seed, Stream.SPLIT, 1))
    if each:
        counts = [min(int(amount), size) for size in sizes.values()]
    else:
        most = [max(0, size - 1) for size in sizes.values()]
        total = max(count, sum(map(bool, most))) if share else count
        counts = _shared_out([*sizes.values()], count / max(1, len(train)), total, most)
    return _draw(samples, train, counts, generator(seed, Stream.SPLIT, 1))


def _fold(samples: Samples, rows: np.ndarray, k: int, n: int, seed: int, fixed: bool = False) -> np.ndarray:
    """Return the rows of fold k of n. Unless n is ``fixed``, n is reduced if there are too few groups."""
    # slow to import, and most runs have no folds
    from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold

    groups, classes = samples.groups, bool(samples.classes)
    sizes = _sizes(samples, rows).values()
    if groups is None:
        available = {"samples of each class" if classes else "samples": min(sizes)}
        splitter = StratifiedKFold if classes else KFold
    else:
        available = {"groups": len(np.unique(groups[rows])), "samples of the largest class": max(sizes)}
        splitter = StratifiedGroupKFold if classes else GroupKFold
    n = n if fixed else max(2, min(n, *available.values()))
    for what, count in available.items():
        if count < n:
            hint = "; set dataset.fold=K/N with a smaller N" if n > 2 else ""
            expected = f"expected at least {n} {what} for {n} folds, found {count}"
            raise InputError(f"{samples.source}: {expected}{hint}")
    of_rows = rows, samples.y[rows], None if groups is None else groups[rows]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about rare classes; see ``Data.remarks``
        folds = [test for _, test in splitter(n, shuffle=True, random_state=seed).split(*of_rows)]
    return rows[folds[k]]


def _latest(samples: Samples, rows: np.ndarray, count: int) -> np.ndarray:
    """Return the rows of the ``count`` latest samples, and of all samples as late as the first of these."""
    times: np.ndarray = samples.times[rows]  # type: ignore[index]
    chosen: np.ndarray = rows[times >= np.sort(times)[-count]]
    if len(chosen) == len(rows):
        advice = "hold out fewer samples, or use a column with finer times"
        raise InputError(
            f"dataset.time: no samples of {samples.source} are left for training, because all are held out "
            f"with samples of the same time; {advice}"
        )
    return chosen


FEWEST_ROWS = 3
"""Minimum number of rows of a class that suffices for any split."""


def rare_classes(sizes: Mapping[str, int]) -> list[str]:
    """Return the classes with fewer than ``FEWEST_ROWS`` samples, or none unless two other classes remain."""
    rare = [name for name, size in sizes.items() if name and size < FEWEST_ROWS]
    return rare if len(sizes) - len(rare) > 1 else []


def expect_two_of_each(samples: Samples) -> None:
    """Raise an InputError unless each class has two samples: one for training and one to hold out."""
    sizes = _sizes(samples, np.arange(len(samples.y)))
    if few := [name for name, size in sizes.items() if size < 2]:
        rare = rare_classes(sizes)
        images = samples.x.dtype == np.uint8
        others = [name for name in sizes if name not in rare]
        without = override(*("dataset.classes", others) if images else ("dataset.min_count", FEWEST_ROWS))
        classes = shortened(", ".join(rare), 200)
        hint = f"; add {without} to remove the rare classes {classes}" if rare else ""
        if all(map(is_number, sizes)) and not images:
            hint += "; to predict numbers, set task=regression"
        of_class = f" of class {few[0]}" if few[0] else ""
        raise InputError(
            f"{samples.source}: expected at least 2 samples{of_class}, found {sizes[few[0]]}{hint}"
        )


def expect_every_class(samples: Samples, rows: Mapping[str, np.ndarray]) -> None:
    """Raise an InputError unless each class has training samples; ``rows`` holds the rows of each split."""
    roles = {"dataset.group": samples.groups, "dataset.time": samples.times}
    how = next((name for name, values in roles.items() if values is not None), "the split of the data set")
    for name, size in _sizes(samples, rows["train"]).items():
        if not size:
            part = "test" if _sizes(samples, rows["test"])[name] else "validation"
            raise InputError(
                f"{samples.source}: class {name} has no training samples, because {how} puts all of them "
                f"in the {part} set; change the split or remove the class"
            )


def _sizes(samples: Samples, rows: np.ndarray) -> dict[str, int]:
    return {name: int(members.sum()) for name, members in samples.task.strata(samples.y[rows])}


def _shared_out(sizes: list[int], share: float, total: int, most: list[int]) -> list[int]:
    """Return the number of held-out samples of each class, about ``total`` together.

    The numbers are in proportion to the ``sizes`` of the classes. ``most`` lists the maximum of each class.
    """
    shares = [size * share for size in sizes]
    counts = [min(math.floor(share), limit) for share, limit in zip(shares, most, strict=True)]
    while sum(counts) < total and (free := [r for r, limit in enumerate(most) if counts[r] < limit]):
        counts[max(free, key=lambda r: shares[r] - counts[r])] += 1
    while max(counts) > 1 and (without := [r for r, limit in enumerate(most) if limit and not counts[r]]):
        counts[without[0]] += 1
        counts[counts.index(max(counts))] -= 1
    return counts


def _draw(samples: Samples, rows: np.ndarray, counts: list[int], rng: np.random.Generator) -> np.ndarray:
    """Return random rows in ascending order. ``counts`` lists the number of rows of each class."""
    strata = samples.task.strata(samples.y[rows])
    drawn = [
        rng.choice(rows[members], count, replace=False)
        for (_, members), count in zip(strata, counts, strict=True)
    ]
    return np.sort(np.concatenate(drawn))
