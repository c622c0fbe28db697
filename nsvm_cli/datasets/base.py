"""What a data set is: labelled samples, and how its training and test sets come about."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pydantic
import torch
from jaxtyping import Float64
from pydantic import NonNegativeInt
from torch import Tensor

from nsvm_cli.config.registry import STRICT
from nsvm_cli.errors import InputError
from nsvm_cli.tasks import Task, task_for


@dataclass(frozen=True)
class Samples:
    """All samples of a source.

    ``x`` is ``(m, *shape)``; ``y`` is ``(m,)`` and holds -1 and +1, for ``classes`` in this order.
    Rows from ``official_test`` on are the official test set, where there is one.
    """

    x: Float64[np.ndarray, "m ..."]
    y: Float64[np.ndarray, " m"]
    classes: tuple[str, str]
    source: str
    official_test: int | None = None

    def __post_init__(self) -> None:
        if not np.isfinite(self.x).all():
            row = int(np.argwhere(~np.isfinite(self.x.reshape(len(self.x), -1)))[0, 0])
            raise InputError(f"{self.source}: sample {row + 1} holds NaN or an infinite value")
        for name, members in self.task.strata(self.y):
            if not name.isprintable():
                raise InputError(f"{self.source}: expected a printable name of a class, got {name!r}")
            if (found := int(members.sum())) < 2:
                raise InputError(f"{self.source}: expected at least 2 samples of class {name}, found {found}")

    @property
    def task(self) -> Task:
        """What is learned from y."""
        return task_for(self.classes)

    @property
    def sha256(self) -> str:
        """SHA-256 of x and y as little-endian float64, whatever file they came from."""
        digest = hashlib.sha256()
        for array in (self.x, self.y):
            digest.update(np.ascontiguousarray(array, dtype="<f8").data)
        return digest.hexdigest()


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=STRICT)
class Source:
    """Where samples come from. A data set of your own derives from this and is listed in ``DATASETS``.

    ``validation`` is the number of samples per class that are split off the training set. Where it is
    not 0, a run is judged on these, and the test set stays closed.
    """

    global_scaling: ClassVar[bool] = False
    """Standardise with one mean and one deviation, rather than with one per feature."""

    validation: NonNegativeInt = 0

    def load(self, rng: np.random.Generator) -> Samples:
        """All samples. ``rng`` is for sources that generate them."""
        raise NotImplementedError


@dataclass(frozen=True)
class Split:
    """Some of the samples, raw: ``x`` is ``(m, *shape)``, the labels ``y`` are -1 and +1."""

    x: Float64[Tensor, "m ..."]
    y: Float64[Tensor, " m"]

    def __len__(self) -> int:
        return len(self.y)


def take(samples: Samples, rows: np.ndarray) -> Split:
    """Return these rows, in this order; without a copy where they follow each other."""
    chosen: slice | np.ndarray = rows
    if len(rows) and np.array_equal(rows, np.arange(rows[0], rows[0] + len(rows))):
        chosen = slice(rows[0], rows[0] + len(rows))
    # torch takes no array that cannot be written to, or that runs backwards
    x, y = (np.require(array[chosen], requirements=["C", "W"]) for array in (samples.x, samples.y))
    return Split(torch.from_numpy(x), torch.from_numpy(y))
