"""Data sets: a registry of sources, and functions that load and split their samples."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from nsvm_cli.config.registry import OneLine, Registry, build
from nsvm_cli.config.settings import ClassWeight
from nsvm_cli.datasets.arrays import NPY
from nsvm_cli.datasets.base import BLOCK_ROWS, Rows, Samples, Source, Split, Table, TableSource, Validation
from nsvm_cli.datasets.columns import Column, describe, summary, suspicions, unseen_categories
from nsvm_cli.datasets.csv import CSV
from nsvm_cli.datasets.encoding import TableEncoder, features, fit_encoder, labelled
from nsvm_cli.datasets.image_files import CIFAR10, KMNIST, MNIST, FashionMNIST, SklearnDigits
from nsvm_cli.datasets.image_folder import ImageFolder
from nsvm_cli.datasets.repositories import PMLB, OpenML
from nsvm_cli.datasets.ringnorm import Ringnorm
from nsvm_cli.datasets.scaling import mean_and_std
from nsvm_cli.datasets.splits import expect_every_class, expect_two_of_each, split_rows
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.memory import MEMORY_BUDGET, memory_limit
from nsvm_cli.plugins import plugin_errors
from nsvm_cli.randomness import Stream, derived_seed, generator, seeded
from nsvm_cli.tasks import Classification, Regression, Task, encode, task_for

__all__ = ["DATASETS", "Data", "Samples", "Source", "Split", "Splits", "Table", "load_data", "split_data"]

DATASETS: Registry[type[Source]] = Registry("dataset", Source)
DATASETS |= {
    "ringnorm": Ringnorm,
    "mnist": MNIST,
    "fashion_mnist": FashionMNIST,
    "kmnist": KMNIST,
    "cifar10": CIFAR10,
    "digits": SklearnDigits,
    "image_folder": ImageFolder,
    "csv": CSV,
    "npy": NPY,
    "openml": OpenML,
    "pmlb": PMLB,
}


class Splits(dict[str, Split]):
    """The unscaled splits ``train``, ``validation``, ``test`` and ``all``, each created on first access."""

    def __init__(self, samples: Samples, rows: Mapping[str, np.ndarray]) -> None:
        self._samples, self.rows = samples, rows
        self.sizes = {name: len(rows) for name, rows in rows.items()}

    @property
    def held_out(self) -> Literal["validation", "test"]:
        """The split used to score runs: ``validation`` if it has samples, otherwise ``test``."""
        return "validation" if self.sizes["validation"] else "test"

    def __missing__(self, name: str) -> Split:
        s, rows = self._samples, self.rows[name]
        y = torch.from_numpy(s.y[rows])
        w = None if s.weight is None else torch.from_numpy(s.weight[rows])
        mapped = isinstance(s.x, np.memmap) and s.x.dtype == np.uint8
        x = Rows(s.x, rows) if mapped else torch.from_numpy(np.ascontiguousarray(s.x[rows]))
        self[name] = split = Split(x, y, w)
        return split


@dataclass(frozen=True)
class Data(OneLine):
    """A data set and its splits. For a table, also descriptions of its columns, and its encoder."""

    samples: Samples
    splits: Splits
    global_scaling: bool
    task: Task
    columns: tuple[Column, ...] | None = None
    encoder: TableEncoder | None = None

    @property
    def held_out(self) -> Split:
        """The samples used to score runs; see ``Splits.held_out``."""
        return self.splits[self.splits.held_out]

    @functools.cached_property
    def absent(self) -> tuple[str, ...]:
        """Classes without training samples of positive weight; they are never predicted."""
        present = self.task.strata(self.splits["train"].y)
        return tuple(name for name, members in present if name and not members.any())

    @property
    def training(self) -> tuple[Task, Tensor]:
        """The task restricted to classes that are not ``absent``, and the training targets for that task."""
        y, names = self.splits["train"].y, self.task.classes
        if not self.absent:
            return self.task, self.task.targets(y)
        present = [r for r, name in enumerate(names) if name not in self.absent]
        if len(present) < 2:
            expected = "expected training samples with a positive weight in at least two classes"
            raise InputError(f"{self.samples.source}: {expected}, found only class {names[present[0]]}")
        codes = encode(self.task.index(y.numpy()), present)
        return task_for([names[r] for r in present]), torch.from_numpy(codes)

    def weights(self, class_weight: ClassWeight) -> Float64[np.ndarray, " m"] | None:
        """Return sample weights times class weights, normalised to mean 1; None if there are no weights.

        With ``balanced``, all classes have the same total weight. An unknown class raises an InputError.
        """
        train, names = self.splits["train"], self.task.classes
        if class_weight is None and train.weight is None:
            return None
        w = np.ones(len(train)) if train.weight is None else train.weight.numpy()
        if isinstance(self.task, Classification):
            r = self.task.index(train.y.numpy()).astype(int)
            if class_weight == "balanced":
                w = w / np.bincount(r, w)[r]
            elif class_weight is not None:
                for name in class_weight.keys() - {*names}:
                    raise InputError(f"class_weight: there is no class {name}; {did_you_mean(name, names)}")
                w = w * np.array([class_weight.get(name, 1.0) for name in names])[r]
        return w / w.mean()

    @functools.cached_property
    def duplicates(self) -> int:
        """Number of held-out samples with exactly the same features as a training sample."""
        trained, held_out = (
            [hash((row + 0).tobytes()) for x in split.x.split(BLOCK_ROWS) for row in x[:].numpy()]  # no -0.0
            for split in (self.splits["train"], self.held_out)
        )
        return int(np.isin(held_out, trained).sum())

    @property
    def unseen(self) -> list[str]:
        """Messages about categories that do not occur in the training rows."""
        x = self.samples.x
        return unseen_categories(self.encoder.unseen(x), len(x)) if self.encoder else []

    def remarks(self) -> list[str]:
        """Return messages about how the data were read, and reasons to doubt the score."""
        lines, name = [*summary(self.columns or ()), *self.unseen], self.splits.held_out
        why = "because all its training samples have weight 0"
        lines += [f"class {c} is never predicted, {why}" for c in self.absent]
        size = self.splits.sizes[name]
        held_out = self.task.strata(self.held_out.y)
        lines += [f"class {c} has no {name} samples" for c, members in held_out if not members.any()]
        if self.duplicates / size >= 0.01:
            lines += [
                f"{self.duplicates} of {size} {name} samples have the same features as a training sample, "
                f"so the {name} score may be higher than on new samples"
            ]
        return [*self.samples.remarks, *lines]


def build_source(settings: Mapping[str, Any]) -> Source:
    """Construct the data set described by a ``dataset:`` section, without loading it."""
    return build(DATASETS, "dataset", settings)


def load_data(
    settings: Mapping[str, Any],
    seed: int,
    kind: str = "classification",
    memory_budget: int = MEMORY_BUDGET,
    task: Task | None = None,
    encoder: TableEncoder | None = None,
) -> Data:
    """Load and split the data set described by a ``dataset:`` section, or raise an InputError.

    ``task`` and ``encoder`` are taken from a trained model if the data are for this model.
    """
    source, table = build_source(settings), None
    if encoder and isinstance(source, TableSource):
        source = replace(source, text=(*source.text, *encoder.text))
    with memory_limit(memory_budget):
        with plugin_errors(), seeded(derived_seed(seed, Stream.DATA)):
            samples = source.load(generator(seed, Stream.DATA))
        if isinstance(samples, Table):
            table, samples = samples, labelled(samples, kind, task)
        elif not isinstance(samples, Samples):
            got = type(samples).__name__
            raise InputError(
                f"dataset {settings['name']}: expected load() to return Samples or a Table, got {got}"
            )
        if task is None:
            expect_two_of_each(samples)
            if samples.official_test == len(samples.y):
                raise InputError(f"{samples.source}: the test set has no labelled samples")
        shared = samples.x.ndim > 2 if source.global_scaling is None else source.global_scaling
        return split_data(samples, source.validation, seed, shared, kind, task, encoder, source.fold, table)


def split_data(
    samples: Samples,
    validation: Validation,
    seed: int,
    global_scaling: bool,
    kind: str = "classification",
    task: Task | None = None,
    encoder: TableEncoder | None = None,
    fold: str | None = None,
    table: Table | None = None,
) -> Data:
    """Split samples, and encode the features of a table, or raise an InputError.

    The encoder and the scale of real targets are fitted to the training set, from which samples of weight 0
    are removed. With the ``task`` of a trained model, classes may be absent or rare.
    """
    if kind != (expected := samples.task.kind):
        what = "classes" if expected == "classification" else "real targets"
        raise InputError(f"task={kind}: the labels of {samples.source} are {what}; set task={expected}")
    rows = split_rows(samples, validation, seed, fold, lenient=task is not None)
    if task is None:
        expect_every_class(samples, rows)
    if samples.weight is not None:
        rows["train"] = rows["train"][samples.weight[rows["train"]] > 0]
        if not len(rows["train"]):
            raise InputError(
                f"{samples.source}: expected training samples with a positive weight, found none"
            )
    columns = None
    if table is not None:
        train, doubtful = rows["train"], dict[str, list[str]]()
        if task is None:
            encoder = fit_encoder(table, train)
            samples = replace(samples, x=encoder(table))
            doubtful = suspicions(samples.x[train], samples.y[train], encoder, bool(samples.classes))
        else:
            samples = replace(samples, x=features(table, encoder))
        columns = describe(table, encoder.kinds if encoder else {}, doubtful)
    task = samples.task if samples.classes else task or _regression(samples, rows["train"])
    return Data(samples, Splits(samples, rows), global_scaling, task, columns, encoder)


def _regression(samples: Samples, train: np.ndarray) -> Regression:
    """Return the regression task with the mean and standard deviation of the training targets."""
    y = samples.y[train]
    with np.errstate(over="ignore"):
        mean, std = float(y.mean()), float(y.std(ddof=1)) if y.min() < y.max() else 0.0
    if samples.weight is not None:
        mean, std = map(float, mean_and_std(torch.from_numpy(y), torch.from_numpy(samples.weight[train])))
    if not 0 < std < math.inf or not math.isfinite(mean):
        raise InputError(
            f"{samples.source}: expected finite training targets that are not all equal, got targets with "
            f"mean {mean:.3g} and standard deviation {std:.3g}"
        )
    return Regression(mean, std)
