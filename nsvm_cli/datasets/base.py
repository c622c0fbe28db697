"""The contract of a data set: a source loads labelled samples, from which splits are taken."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import pydantic
import torch
from jaxtyping import Float64
from pydantic import Field
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
        """The task that y defines."""
        return task_for(self.classes)

    @property
    def sha256(self) -> str:
        """The SHA-256 of x and y as little-endian float64, independent of the file format."""
        digest = hashlib.sha256()
        for array in (self.x, self.y):
            digest.update(np.ascontiguousarray(array, dtype="<f8").data)
        return digest.hexdigest()


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=STRICT)
class Source:
    """A data set. To add one, derive from this class and list it in ``DATASETS``.

    ``validation`` is the number of samples per class that are split off the training set. If it is not 0, a
    run is evaluated on these, and the test set is never touched.
    """

    global_scaling: ClassVar[bool] = False
    """Standardise with a single mean and standard deviation, rather than with one per feature."""

    validation: Annotated[int, Field(ge=0, le=10**12)] = 0

    def load(self, rng: np.random.Generator) -> Samples:
        """Return all samples; ``rng`` is for sources that generate them.

        Raises:
            InputError: the data are missing or damaged.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Split:
    """Some of the samples, raw: ``x`` is ``(m, *shape)``, the labels ``y`` are -1 and +1."""

    x: Float64[Tensor, "m ..."]
    y: Float64[Tensor, " m"]

    def __len__(self) -> int:
        return len(self.y)


def take(samples: Samples, rows: np.ndarray) -> Split:
    """Return these rows in this order; consecutive rows are not copied."""
    chosen: slice | np.ndarray = rows
    if len(rows) and np.array_equal(rows, np.arange(rows[0], rows[0] + len(rows))):
        chosen = slice(rows[0], rows[0] + len(rows))
    # torch rejects read-only arrays and negative strides
    x, y = (np.require(array[chosen], requirements=["C", "W"]) for array in (samples.x, samples.y))
    return Split(torch.from_numpy(x), torch.from_numpy(y))
