"""The contract of data sets: a source loads labelled samples or a table, which are then split."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import pydantic
import torch
from jaxtyping import Float, Float64, UInt8
from pydantic import AfterValidator, BeforeValidator, Field
from torch import Tensor

from nsvm_cli.config.registry import STRICT, Text, expecting
from nsvm_cli.datasets.notation import Doubt, Numbers, notations
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.tasks import Regression, Task, Values, task_for

if TYPE_CHECKING:
    import pandas as pd

BLOCK_ROWS = 256
"""Number of samples to convert at a time, to save memory."""


def as_float(x: Values) -> Values:
    """Return samples as float64; the bytes of pixels are divided by 255."""
    if x.dtype not in (np.uint8, torch.uint8):
        return x
    values: Values = x.astype(np.float64) if isinstance(x, np.ndarray) else x.double()
    values /= 255  # in place: a set of images is large
    return values


ARRAYS = "arrays"
"""The source of arrays that were passed to an estimator."""


@dataclass(frozen=True)
class Samples:
    """All samples of a source.

    Attributes:
        x: numbers, or the bytes of images (see ``as_float``).
        y: the codes of ``classes``: -1 and +1 for two, 0, 1, 2, ... for more; without classes, real targets.
        official_test: the first row of the official test set, which is the same for every seed.
        official_validation: the first row of the official validation set, which precedes the test set.
        generated: whether the samples were drawn for this seed, so that runs of other seeds are independent.
        origins: names of the data that the samples were chosen from, if they differ from the data set's name;
            data sets with a common origin are not independent.
        groups, times: the group or time of each sample, if they decide how to split (see ``split_rows``).
        weight: how much each sample counts in training; see ``Data.weights``.
        numbers: the numbers of a table's rows in their files, from 1.
        remarks: lines about how the samples were read, for the user.
    """

    x: Float64[np.ndarray, "m ..."] | UInt8[np.ndarray, "m ..."]
    y: Float64[np.ndarray, " m"]
    classes: tuple[str, ...]
    source: str
    official_test: int | None = None
    generated: bool = False
    origins: tuple[str, ...] = ()
    official_validation: int | None = None
    groups: np.ndarray | None = None
    times: np.ndarray | None = None
    weight: Float64[np.ndarray, " m"] | None = None
    numbers: np.ndarray | None = None
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        x, y = (getattr(array, "dtype", type(array).__name__) for array in (self.x, self.y))
        if x not in ("float64", "uint8") or getattr(y, "kind", None) not in ("f", "i", "u"):
            raise ValueError(f"expected arrays x of float64 or uint8 and y of numbers, got {x} and {y}")
        weight = np.ones(len(self.y)) if self.weight is None else self.weight
        if not len(self.x) == len(self.y) == len(weight):
            got = f"{len(self.x)} samples, {len(self.y)} labels and {len(weight)} weights"
            raise ValueError(f"expected a label and a weight for each sample, got {got}")
        for row in np.argwhere(~np.isfinite(self.x))[:1, 0].tolist():
            raise InputError(f"{self.source}: sample {row + 1} holds NaN or an infinite value")
        for row in np.flatnonzero(~np.isfinite(self.y))[:1].tolist():
            raise InputError(f"{self.source}: the target of sample {row + 1} is NaN or infinite")
        for row in np.flatnonzero(~((weight >= 0) & (weight < np.inf)))[:1].tolist():
            at = f"{self.source}: sample {row + 1}"
            raise InputError(f"{at}: expected a finite weight of 0 or more, got {weight[row]:g}")
        if (C := len(self.classes)) == 1:
            raise InputError(f"{self.source}: expected at least 2 classes, got 1 class: {self.classes[0]}")
        codes = [-1, 1] if C == 2 else range(C)
        for code in np.setdiff1d(self.y, codes)[:1] if C else ():
            expected = "-1 and +1" if C == 2 else f"0 to {C - 1}"
            raise InputError(f"{self.source}: expected labels y of {expected} for {C} classes, got {code:g}")

    @property
    def task(self) -> Task:
        """The task that y defines; for real targets, before they are standardised."""
        return task_for(self.classes) if self.classes else Regression()

    @functools.cached_property
    def sha256(self) -> str:
        """The SHA-256 of x and y as little-endian float64, independent of the file format."""
        digest = hashlib.sha256()
        for array in (self.x, self.y):
            for row in range(0, len(array), BLOCK_ROWS):
                values = as_float(array[row : row + BLOCK_ROWS])
                digest.update(np.ascontiguousarray(values, dtype="<f8").data)
        return digest.hexdigest()


def expect_column(setting: str, source: object, name: str | None, names: Iterable[object]) -> None:
    """Raise an InputError unless the column that a setting names exists."""
    if name not in (columns := [*map(str, names)]):
        raise InputError(f"{setting}: {source} has no column {name!r}; {did_you_mean(str(name), columns)}")


EACH = " each"
"""Ending of a number of validation samples per class, such as "200 each"."""

Validation = Annotated[
    Annotated[int, Field(ge=0, le=10**12)]
    | Annotated[float, Field(gt=0, lt=1)]
    | Annotated[str, Field(pattern=f"^[1-9][0-9]{{0,11}}{EACH}$")],
    expecting("a number of samples, a share such as 0.2, or a number of each class such as '200 each'"),
]
"""The number of validation samples; see ``split_rows``."""


def _fold(text: str) -> str:
    k, _, n = text.partition("/")
    if not (k.isdecimal() and n.isdecimal() and int(k) < int(n) and int(n) > 1):
        raise ValueError(f"expected K/N, the fold K of N from 0/N to N-1/N, got {text}")
    return text


ScalingKind = Literal["standard", "channels", "minmax", "none"]
"""How samples are scaled; see ``fit_scaling``."""


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=STRICT)
class Source:
    """A data set. To add one, derive from this class and register it in ``DATASETS``.

    ``validation`` is the number of validation samples, which are taken from the training set, or their share,
    or their number per class; models and settings are selected by these samples. ``fold`` = K/N makes fold K
    of N, counted from 0, the test set. See ``split_rows``.
    """

    global_scaling: ClassVar[bool] = False
    """Whether to scale all features by one mean and standard deviation, rather than each by its own."""

    scaling: ScalingKind = "standard"

    validation: Validation = 0

    fold: Annotated[str, AfterValidator(_fold)] | None = None

    def load(self, rng: np.random.Generator) -> Samples | Table:
        """Return all samples, drawn with ``rng`` if the source generates them.

        Raises:
            InputError: the data are missing or damaged.
        """
        raise NotImplementedError


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=STRICT)
class TableSource(Source):
    """A source of tables.

    Columns in ``drop``, and identifiers that ``include`` does not name, are not used as features; columns in
    ``text`` hold categories even if they look like numbers. The class ``positive`` comes last; with two
    classes, F1 and average precision are computed for it. Rows are split by the columns ``group`` and
    ``time`` (see ``split_rows``), and weighted in training by the column ``weight``.

    ``load`` takes an argument ``text`` with the names of more columns to read as text.
    """

    drop: Annotated[tuple[Text, ...], BeforeValidator(lambda names: names or ())] = ()  # null in older files
    include: tuple[Text, ...] = ()
    text: tuple[Text, ...] = ()
    positive: Text | None = None
    group: Text | None = None
    time: Text | None = None
    weight: Text | None = None


@dataclass(frozen=True)
class Table:
    """Labelled rows before encoding, whose cells may hold text or be empty; see ``datasets/encoding.py``.

    Attributes:
        rows: the rows of all files; the index is the number of a row in its file, from 0.
        files: the files, or other names of the origin of the rows, for messages.
        label: the column of labels, if there is one.
        settings: the settings that name columns with a role other than a feature.
        official_test, official_validation, origins, remarks: as in ``Samples``.
        signs: the signs of numbers that the user has stated; see ``Dialect.signs``.
    """

    rows: pd.DataFrame
    files: tuple[str, ...]
    label: str | None = None
    settings: TableSource = field(default_factory=TableSource)
    official_test: int | None = None
    origins: tuple[str, ...] = ()
    official_validation: int | None = None
    signs: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @property
    def roles(self) -> dict[str, str]:
        """The role of each column that is not a feature, by name."""
        names = {role: getattr(self.settings, role) for role in ("group", "time", "weight")}
        roles = {name: role for role, name in {**names, "label": self.label}.items() if name is not None}
        return roles | dict.fromkeys(self.settings.drop, "left out")

    @property
    def starts(self) -> list[int]:
        """The first rows of the files of the official sets."""
        return [start for start in (self.official_validation, self.official_test) if start is not None]

    @property
    def first_file(self) -> slice:
        """The rows of the first file."""
        return slice(min(self.starts, default=None))

    @functools.cached_property
    def written(self) -> dict[str, Numbers | Doubt | None]:
        """How the numbers of each column of text are written, judged by all rows of the first file."""
        first = self.rows.iloc[self.first_file]
        text = {
            str(name): cells if cells.dtype == "str" else cells.map(str, na_action="ignore")
            for name, cells in first.items()
            if cells.dtype in ("object", "str")
        }
        return notations(text, **self.signs)

    @functools.cached_property
    def cells(self) -> pd.DataFrame:
        """The features."""
        return self.rows.drop(columns=[*self.roles], errors="ignore")

    @property
    def source(self) -> str:
        """The name of the first file, for messages."""
        return self.files[0]

    def place(self, row: int, column: object) -> str:
        """Return the place of a cell, for the beginning of a message."""
        file = self.files[sum(row >= start for start in self.starts)]
        return f"{file}: column {column}, row {self.rows.index[row] + 1}"


@dataclass(frozen=True)
class Split:
    """The samples of one split, as tensors; see ``Samples``."""

    x: Float[Tensor, "m ..."] | UInt8[Tensor, "m ..."]
    y: Float64[Tensor, " m"]
    weight: Float64[Tensor, " m"] | None = None

    def __len__(self) -> int:
        return len(self.y)
