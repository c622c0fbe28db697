"""The contract of a data set: a source loads labelled samples, or a table of them, which are then split."""

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
"""Samples to convert at a time, to save memory."""


def as_float(x: Values) -> Values:
    """Return samples as float64; the bytes of pixels are divided by 255."""
    if x.dtype not in (np.uint8, torch.uint8):
        return x
    values: Values = x.astype(np.float64) if isinstance(x, np.ndarray) else x.double()
    values /= 255  # in place: a set of images is large
    return values


ARRAYS = "arrays"
"""The source of samples that an estimator was given, which no file holds."""


@dataclass(frozen=True)
class Samples:
    """All samples of a source.

    ``x`` holds numbers, or the bytes of images (see ``as_float``). ``y`` holds the codes of ``classes``, in
    their order: -1 and +1 for two, 0, 1, 2, ... for more; without classes, real targets. Rows from
    ``official_test`` on are the official test set, the same for every seed, and those before it, from
    ``official_validation`` on, the official validation set. ``groups`` and ``times`` are those of the
    samples, if they decide how to split (see ``split_rows``). ``generated`` says that the
    samples were drawn for this seed, so that the runs of other seeds are independent. ``origins`` name what
    the samples were chosen from, if it is not the data set of their name: two choices from one origin are no
    independent data sets. ``weight`` says how much each sample counts in training; see ``Data.weights``.
    ``numbers`` are those of the rows of a table in its files, from 1. ``remarks`` are lines about how the
    samples were read, for the user.
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
            got = f"{len(self.x)}, {len(self.y)} and {len(weight)}"
            raise ValueError(f"expected as many samples as labels and weights, got {got}")
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
    """Raise an InputError about a setting unless a column that it names is there."""
    if name not in (known := [*map(str, names)]):
        raise InputError(f"{setting}: {source} has no column {name!r}; {did_you_mean(str(name), known)}")


EACH = " each"
"""What follows the number of validation samples of each class."""

Validation = Annotated[
    Annotated[int, Field(ge=0, le=10**12)]
    | Annotated[float, Field(gt=0, lt=1)]
    | Annotated[str, Field(pattern=f"^[1-9][0-9]{{0,11}}{EACH}$")],
    expecting("a number of samples, a share such as 0.2, or a number of each class such as '200 each'"),
]
"""How many samples are held out for validation; see ``split_rows``."""


def _fold(text: str) -> str:
    k, _, n = text.partition("/")
    if not (k.isdecimal() and n.isdecimal() and int(k) < int(n) and int(n) > 1):
        raise ValueError(f"expected K/N, the fold K of N from 0/N to N-1/N, got {text}")
    return text


ScalingKind = Literal["standard", "channels", "minmax", "none"]
"""To mean 0 and deviation 1, also by channel, to 0..1, or not at all; see ``fit_scaling``."""


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=STRICT)
class Source:
    """A data set. To add one, derive from this class and register it in ``DATASETS``.

    ``validation`` is the number of samples that are split off the training set, or their share, or the number
    of each class; every choice is made by these. ``fold`` = K/N makes fold K of N, counted from 0, the test
    set. See ``split_rows``. ``scaling`` says how samples are scaled.
    """

    global_scaling: ClassVar[bool] = False
    """Scale with a single mean and standard deviation, rather than with one per feature."""

    scaling: ScalingKind = "standard"

    validation: Validation = 0

    fold: Annotated[str, AfterValidator(_fold)] | None = None

    def load(self, rng: np.random.Generator) -> Samples | Table:
        """Return all samples; ``rng`` is for sources that generate them.

        Raises:
            InputError: the data are missing or damaged.
        """
        raise NotImplementedError


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=STRICT)
class TableSource(Source):
    """A source of tables.

    Identifiers and the columns in ``drop`` are not used as features, unless ``include`` names them; columns
    in ``text`` hold categories even if they look like numbers. The class ``positive`` comes last; with two
    classes, F1 and average precision are computed for it. Rows are split by the columns ``group`` and
    ``time`` (see ``split_rows``), and the column ``weight`` says how much each row counts in training.

    ``load`` also takes ``text``, further columns to read as text.
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
    """Labelled rows before encoding: a cell may hold text, or nothing. See ``datasets/encoding.py``.

    The index numbers the rows of a file: they come from one or, from row ``official_test`` on, from another
    one, the official test set, and likewise from ``official_validation`` on. The column ``label`` holds the
    labels, if there are any; neither it nor the columns that the ``settings`` name are features. ``origins``
    holds the checksums of the files, as in ``Samples``. ``signs`` are the stated signs of numbers (see
    ``Dialect.signs``). ``remarks`` are lines about how the files were read.
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
        """The purpose of each column that is not a feature, by name."""
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
        """How the numbers of each column with text are written, from all rows of the first file."""
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
        """The origin of the rows, for messages."""
        return self.files[0]

    def place(self, row: int, column: object) -> str:
        """Return the name of a cell, for the beginning of a message."""
        file = self.files[sum(row >= start for start in self.starts)]
        return f"{file}: column {column}, row {self.rows.index[row] + 1}"


@dataclass(frozen=True)
class Split:
    """Some of the samples: ``x`` is ``(m, *shape)``, numbers or the bytes of images (see ``as_float``), or
    holds features, ``y`` the coded labels or real targets, ``weight`` their weights, if they have any."""

    x: Float[Tensor, "m ..."] | UInt8[Tensor, "m ..."]
    y: Float64[Tensor, " m"]
    weight: Float64[Tensor, " m"] | None = None

    def __len__(self) -> int:
        return len(self.y)
