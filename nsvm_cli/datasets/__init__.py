"""Data sets: a name, a class, a YAML file each; splits and scaling are the same for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nsvm_cli.datasets.base import Part, Samples, Source, part
from nsvm_cli.datasets.csv import CSV
from nsvm_cli.datasets.digits import SklearnDigits
from nsvm_cli.datasets.mnist import KMNIST, MNIST, FashionMNIST
from nsvm_cli.datasets.ringnorm import Ringnorm
from nsvm_cli.datasets.ringnorm_openml import RingnormOpenML
from nsvm_cli.datasets.splits import split_rows
from nsvm_cli.randomness import Stream, generator
from nsvm_cli.registry import build

__all__ = ["DATASETS", "Data", "Part", "Samples", "Source", "load_data"]

DATASETS: dict[str, type[Source]] = {
    "ringnorm": Ringnorm,
    "ringnorm_openml": RingnormOpenML,
    "mnist": MNIST,
    "fashion_mnist": FashionMNIST,
    "kmnist": KMNIST,
    "digits": SklearnDigits,
    "csv": CSV,
}


@dataclass(frozen=True)
class Data:
    """A data set, split: ``parts`` are ``train``, ``validation``, ``test`` and ``all``, raw."""

    parts: dict[str, Part]
    by_pixel: bool
    classes: tuple[str, str]
    source: str
    sha256: str


def load_data(settings: Mapping[str, Any], seed: int) -> Data:
    """The data set that a ``dataset:`` section names.

    Raises:
        InputError: the settings are wrong, or the data are missing or damaged.
    """
    source = build(DATASETS, "dataset", settings)
    samples = source.load(generator(seed, Stream.DATA))
    rows = split_rows(samples, source.validation, seed)
    parts = {name: part(samples, r) for name, r in rows.items()}
    return Data(parts, source.by_pixel, samples.classes, samples.source, samples.sha256)
