"""Base classes of data sets, and the samples, tables and splits that they load."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

import numpy as np
import pydantic
import torch
from jaxtyping import Float64, Real, UInt8
from pydantic import AfterValidator, BeforeValidator, Field
from torch import Tensor

from nsvm_cli.config.registry import STRICT, OneLine, Text, expecting
from nsvm_cli.datasets.augmentation import Augment
from nsvm_cli.datasets.notation import MOST_CATEGORIES, Doubt, NumberFormat, notations
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.tasks import Regression, Task, Values, task_for

if TYPE_CHECKING:
    import pandas as pd

BLOCK_ROWS = 256
"""Number of samples converted at a time, to save memory."""


class Rows:
    """The samples ``array[rows]``, read from the array only when they are indexed, to save memory.

    Indexing returns a tensor. ``split`` and ``len`` work as for tensors.
    """

    dtype, device = torch.uint8, torch.device("cpu")

    def __init__(self, array: UInt8[np.ndarray, "m ..."], rows: np.ndarray) -> None:
        self.array, self.rows = array, rows
        self.shape, self.ndim = torch.Size([len(rows), *array.shape[1:]]), array.ndim

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, chosen: int | slice | Tensor) -> UInt8[Tensor, "..."]:
        rows = self.rows[chosen.numpy() if isinstance(chosen, Tensor) else chosen]
        return torch.from_numpy(np.asarray(np.take(self.array, rows, axis=0)))

    def split(self, size: int) -> list[Rows]:
        return [Rows(self.array, self.rows[at : at + size]) for at in range(0, len(self), size)]


RawSamples: TypeAlias = Real[Tensor, "m ..."] | Rows
"""Type of unscaled samples of shape (m, ...)."""


def over_blocks(x: RawSamples, f: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the values of a function of samples for all blocks of ``BLOCK_ROWS`` samples, stacked."""
    return torch.stack([f(rows[:]) for rows in x.split(BLOCK_ROWS)])


def as_float(x: Values) -> Values:
    """Return samples as floats: pixel bytes become values from 0 to 1, and other samples are unchanged."""
    if x.dtype not in (np.uint8, torch.uint8):
        return x
    values: Values = x.astype(np.float64) if isinstance(x, np.ndarray) else x.double()
    values /= 255  # in place: a set of images is large
    return values


ARRAYS = "arrays"
"""The ``source`` of samples that were passed to an estimator as arrays."""


@dataclass(frozen=True)
class Samples(OneLine):
    """The samples of a data set.

    Attributes:
        x: features, or images as bytes (see ``as_float``). A memory map of bytes is never read as a whole.
        y: codes of ``classes`` (-1 and +1 for two classes, otherwise 0, 1, 2, ...), or real targets.
        official_validation, official_test: index of the first row of each official set. The official sets
            follow the training set.
        generated: whether samples are drawn anew for each seed, which makes different seeds independent.
        origins: names of the original data, if they differ from the data set's name.
        groups, times: see ``split_rows``.
        weight: see ``Data.weights``.
        numbers: row numbers in the files of a table, from 1.
        remarks: messages to the user about how the samples were read.
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
            raise ValueError(
                f"Samples: expected x of float64 or uint8 and y of a numeric dtype, got {x} and {y}"
            )
        weight = np.ones(len(self.y)) if self.weight is None else self.weight
        if not len(self.x) == len(self.y) == len(weight):
            got = f"{len(self.x)} samples, {len(self.y)} labels and {len(weight)} weights"
            raise ValueError(f"Samples: expected a label and a weight for each sample, got {got}")
        if x == "float64" and len(bad := np.argwhere(~np.isfinite(self.x))[:, 0]):
            sample = f"{self.source}: sample {bad[0] + 1}"
            raise InputError(f"{sample}: expected finite features, got NaN or infinity")
        if len(bad := np.flatnonzero(~np.isfinite(self.y))):
            sample = f"{self.source}: sample {bad[0] + 1}"
            raise InputError(f"{sample}: expected a finite target, got {self.y[bad[0]]:g}")
        if len(bad := np.flatnonzero(~((weight >= 0) & (weight < np.inf)))):
            sample = f"{self.source}: sample {bad[0] + 1}"
            raise InputError(f"{sample}: expected a finite weight of 0 or more, got {weight[bad[0]]:g}")
        for start in (self.official_validation, self.official_test):
            if start is not None and not 0 < start <= len(self.y):
                expected = f"the index of one of the {len(self.y)} rows"
                raise InputError(f"{self.source}: official set: expected {expected}, got {start}")
        if (C := len(self.classes)) == 1:
            raise InputError(f"{self.source}: expected at least 2 classes, got 1 class: {self.classes[0]}")
        codes = [-1, 1] if C == 2 else range(C)
        if C and len(wrong := np.setdiff1d(self.y, codes)):
            expected = "-1 and +1" if C == 2 else f"0 to {C - 1}"
            raise InputError(
                f"{self.source}: expected the codes {expected} in y for {C} classes, got {wrong[0]:g}"
            )

    @property
    def task(self) -> Task:
        """Classification if there are class names, otherwise regression with unscaled targets."""
        return task_for(self.classes) if self.classes else Regression()

    @functools.cached_property
    def sha256(self) -> str:
        """The SHA-256 of x and y as little-endian float64, which does not depend on the file format."""
        digest = hashlib.sha256()
        for array in (self.x, self.y):
            for row in range(0, len(array), BLOCK_ROWS):
                values = as_float(array[row : row + BLOCK_ROWS])
                digest.update(np.ascontiguousarray(values, dtype="<f8").data)
        return digest.hexdigest()


def expect_column(setting: str, source: object, name: str | None, names: Iterable[object]) -> None:
    """Raise an InputError unless ``names`` contains the column ``name``, which a setting refers to."""
    if name not in (columns := [*map(str, names)]):
        raise InputError(f"{setting}: {source} has no column {name!r}; {did_you_mean(str(name), columns)}")


EACH = " each"
"""Suffix of a number of validation samples per class, for example "200 each"."""

Validation = Annotated[
    Annotated[int, Field(ge=0, le=10**12)]
    | Annotated[float, Field(gt=0, lt=1)]
    | Annotated[str, Field(pattern=f"^[1-9][0-9]{{0,11}}{EACH}$")],
    expecting("a number of samples, a fraction such as 0.2, or a number per class such as '200 each'"),
]
"""Type of ``dataset.validation``: a number of samples, a fraction, or a number per class."""


def _fold(text: str) -> str:
    k, _, n = text.partition("/")
    if not (k.isdecimal() and n.isdecimal() and int(k) < int(n) and int(n) > 1):
        raise ValueError(f"expected K/N, where K is one of the N folds 0 to N-1, got {text}")
    return text


ScalingKind = Literal["standard", "channels", "minmax", "none"]
"""Names of scaling methods; see ``fit_scaling``."""


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=STRICT)
class Source:
    """Base class of data sets. To add a data set, register a subclass in ``DATASETS``.

    Models and settings are selected on ``validation`` samples: a number, a fraction, or a number per class.
    With ``fold`` = K/N, the test set is fold K of N, counted from 0. See ``split_rows``.
    """

    global_scaling: ClassVar[bool | None] = False
    """Whether all features share one mean and standard deviation; None: if samples have several axes."""

    scaling: ScalingKind = "standard"

    validation: Validation = 0

    fold: Annotated[str, AfterValidator(_fold)] | None = None

    augment: Augment = ()

    def load(self, rng: np.random.Generator) -> Samples | Table:
        """Return all samples, or raise an InputError if the data are bad. ``rng`` draws generated samples."""
        raise NotImplementedError


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=STRICT)
class TableSource(Source):
    """Base class of tables.

    Attributes:
        drop: columns that are not used as features.
        include: columns that are used as features although they look like identifiers.
        text: columns of categories, even if their cells are numbers.
        max_codes: a column of 3 to ``max_codes`` different whole numbers is also one-hot encoded, like text.
        positive: the class to put last; with two classes, F1 and average precision are about this class.
        group, time: columns that decide how rows are split; see ``split_rows``.
        weight: the column of sample weights for training.
    """

    drop: Annotated[tuple[Text, ...], BeforeValidator(lambda names: names or ())] = ()  # null in older files
    include: tuple[Text, ...] = ()
    text: tuple[Text, ...] = ()
    max_codes: Annotated[int, Field(ge=0, le=MOST_CATEGORIES)] = 0
    positive: Text | None = None
    group: Text | None = None
    time: Text | None = None
    weight: Text | None = None


@dataclass(frozen=True)
class Table(OneLine):
    """The rows of a table before encoding; cells may hold text or be empty.

    Attributes:
        rows: the rows of all files. The index is the position of a row in its file, from 0.
        files: paths or other origins of the rows, for messages.
        settings: settings that give columns a role, except ``label``.
        signs: the decimal and thousands separators that the user set.
        official_test, official_validation, origins, remarks: see ``Samples``.
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
        """Maps each column that is not a feature to its role, such as "label" or "group"."""
        names = {role: getattr(self.settings, role) for role in ("group", "time", "weight")}
        roles = {name: role for role, name in {**names, "label": self.label}.items() if name is not None}
        return roles | dict.fromkeys(self.settings.drop, "excluded")

    @property
    def starts(self) -> list[int]:
        """Indices of the first rows of the official validation and test sets that exist."""
        return [start for start in (self.official_validation, self.official_test) if start is not None]

    @property
    def first_file(self) -> slice:
        """The slice of rows that come from the first file."""
        return slice(min(self.starts, default=None))

    @functools.cached_property
    def written(self) -> dict[str, NumberFormat | Doubt | None]:
        """The notation of numbers in each text column, recognised from all rows of the first file."""
        first = self.rows.iloc[self.first_file]
        text = {
            str(name): cells if cells.dtype == "str" else cells.map(str, na_action="ignore")
            for name, cells in first.items()
            if cells.dtype in ("object", "str")
        }
        return notations(text, **self.signs)

    @functools.cached_property
    def cells(self) -> pd.DataFrame:
        """The columns that are features."""
        return self.rows.drop(columns=[*self.roles], errors="ignore")

    @property
    def source(self) -> str:
        """The name of the first file, for messages."""
        return self.files[0]

    def place(self, row: int, column: object) -> str:
        """Return the location of a cell for error messages: its file, column and row."""
        file = self.files[sum(row >= start for start in self.starts)]
        return f"{file}: column {column}, row {self.rows.index[row] + 1}"


@dataclass(frozen=True)
class Split(OneLine):
    """The samples of one split; see ``Samples``."""

    x: Any  # RawSamples
    y: Float64[Tensor, " m"]
    weight: Float64[Tensor, " m"] | None = None

    def __len__(self) -> int:
        return len(self.y)
