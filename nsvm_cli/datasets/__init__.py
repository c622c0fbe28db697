"""Data sets: a name, a class, a YAML file each; splits and scaling are the same for all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nsvm_cli.config.registry import build
from nsvm_cli.datasets.base import Samples, Source, Split, take
from nsvm_cli.datasets.csv import CSV
from nsvm_cli.datasets.digits import SklearnDigits
from nsvm_cli.datasets.mnist import KMNIST, MNIST, FashionMNIST
from nsvm_cli.datasets.ringnorm import Ringnorm
from nsvm_cli.datasets.ringnorm_openml import RingnormOpenML
from nsvm_cli.datasets.splits import split_rows
from nsvm_cli.randomness import Stream, generator
from nsvm_cli.tasks import Task

__all__ = ["DATASETS", "Data", "Samples", "Source", "Split", "build_source", "load_data", "split_data"]

DATASETS: dict[str, type[Source]] = {
    "ringnorm": Ringnorm,
    "ringnorm_openml": RingnormOpenML,
    "mnist": MNIST,
    "fashion_mnist": FashionMNIST,
    "kmnist": KMNIST,
    "digits": SklearnDigits,
    "csv": CSV,
}


class Splits(Mapping[str, Split]):
    """``train``, ``validation``, ``test`` and ``all``, raw; each is taken from the samples when it is first
    asked for, so that a test set which nobody asks for stays closed."""

    def __init__(self, samples: Samples, rows: Mapping[str, np.ndarray]) -> None:
        self._samples, self._rows = samples, rows
        self._taken: dict[str, Split] = {}

    @property
    def sizes(self) -> dict[str, int]:
        """The number of samples in each split; takes none of them."""
        return {name: len(rows) for name, rows in self._rows.items()}

    def __getitem__(self, name: str) -> Split:
        if name not in self._taken:
            self._taken[name] = take(self._samples, self._rows[name])
        return self._taken[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


@dataclass(frozen=True)
class Data:
    """A data set, split; ``official_split`` says whether into the same splits with every seed."""

    splits: Splits
    official_split: bool
    global_scaling: bool
    task: Task
    source: str
    sha256: str


def build_source(settings: Mapping[str, Any]) -> Source:
    """Return the source that a ``dataset:`` section names; load nothing."""
    return build(DATASETS, "dataset", settings)


def load_data(settings: Mapping[str, Any], seed: int) -> Data:
    """Return the data set that a ``dataset:`` section names, split.

    Raises:
        InputError: the settings are wrong, or the data are missing or damaged.
    """
    source = build_source(settings)
    samples = source.load(generator(seed, Stream.DATA))
    return split_data(samples, source.validation, seed, source.global_scaling)


def split_data(samples: Samples, validation: int, seed: int, global_scaling: bool) -> Data:
    """Return samples, split; see ``split_rows`` and ``Source``.

    Raises:
        InputError: there are too few samples for such a split.
    """
    return Data(
        Splits(samples, split_rows(samples, validation, seed)),
        samples.official_test is not None,
        global_scaling,
        samples.task,
        samples.source,
        samples.sha256,
    )
