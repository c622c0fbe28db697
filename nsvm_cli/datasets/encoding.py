"""Tables as features: text becomes one-hot features, dates become numbers, and gaps are filled."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import numpy as np
from jaxtyping import Float64
from pydantic import Field, ValidationError
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT, one_line, shown
from nsvm_cli.datasets.base import Table, expect_column
from nsvm_cli.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")

MOST_CATEGORIES = 1000
"""The largest number of categories in a column of text."""

TRUTH = {"TRUE": "True", "true": "True", "FALSE": "False", "false": "False"}
"""The other spellings of truth values that pandas knows."""

Name = Annotated[str, Field(max_length=4096)]
"""The name of a column, a category or a class."""

Categories = Annotated[tuple[Name, ...], Field(min_length=1, max_length=MOST_CATEGORIES, fail_fast=True)]

ISO = "ISO8601"
"""pandas' name for the formats of ISO dates and times."""


@dataclass(frozen=True, config=STRICT)
class Dates:
    """What a model knows of a column of dates: pandas' format, and the median in days since 1970."""

    format: Annotated[str, Field(max_length=64)]
    median: Annotated[float, Field(ge=-1e7, le=1e7)]

    def __post_init__(self) -> None:
        try:  # the format may be a stranger's
            _days(["1"], self.format)
        except Exception:
            raise ValueError(f"expected a format of dates, got {shown(self.format)}") from None


DATE_FEATURES = ("days", "month", "weekday")
"""The features of a date: days since 1970 with a fraction, 1 to 12, and 0 to 6 from Monday on; in UTC."""

Columns = dict[Name, float | Categories | Dates]
"""For each column of a model's table, by name and in the order of the table: the median of numbers, the
categories of text, in which "" stands for an empty cell, or what is known of dates."""


@dataclass(frozen=True, config=STRICT)
class TableEncoder:
    """Turn the rows of a table into features: first the columns of numbers, then those of dates and of text.

    A column of numbers is a feature, in which the median fills empty cells. A column of dates, filled
    likewise, has a feature for each of ``DATE_FEATURES``. A column of text has one for each category, which
    is 1 in its rows and else 0; text of any other category is encoded as zeros.
    """

    columns: Columns

    def of(self, kind: type[T]) -> dict[str, T]:
        """Return what is known of the columns of numbers (float), of dates (Dates), or of text (tuple)."""
        return {name: known for name, known in self.columns.items() if isinstance(known, kind)}

    @property
    def text(self) -> list[str]:
        """The columns to read as text: pandas would take 01 and 1 for one number."""
        return [name for name, known in self.columns.items() if not isinstance(known, float)]

    @property
    def features(self) -> list[str]:
        """The names of the features, such as ``age`` and ``colour=red``."""
        dates = (f"{name}.{part}" for name in self.of(Dates) for part in DATE_FEATURES)
        text = (f"{name}={category}" for name, some in self.of(tuple).items() for category in some)
        return [*self.of(float), *dates, *text]

    def __call__(self, table: Table) -> Float64[np.ndarray, "m n"]:
        """Return the features of all rows. Columns are matched by name, others are ignored.

        Raises:
            InputError: a column is missing, or a cell in a column of numbers or dates is none.
        """
        cells = table.cells
        if missing := [name for name in self.columns if name not in cells]:
            names = ", ".join(missing[:20])
            raise InputError(f"{table.source} lacks columns that the model was trained on: {names}")
        x: list[Any] = [numbers(table, cells[name]).fillna(median) for name, median in self.of(float).items()]
        for name, dates in self.of(Dates).items():
            days, wanted = _days(cells[name], dates.format), f"a date in the format {dates.format}"
            expect_cells(table, cells[name], days.isna() & cells[name].notna(), wanted)
            x += _calendar(days.fillna(dates.median).to_numpy())
        for name, categories in self.of(tuple).items():
            codes = texts(cells[name]).map({text: r for r, text in enumerate(categories)}).to_numpy()
            x.append(codes[:, None] == np.arange(len(categories)))
        return np.column_stack(x).astype(np.float64, copy=False)

    def cells(self, x: Sequence[float]) -> dict[str, str]:
        """Return the cells that the features of a row stand for; gaps are filled, unseen text is empty."""
        values = iter(x)
        cells = {name: f"{next(values):.10g}" for name in self.of(float)}
        for name in self.of(Dates):
            days, *_ = [next(values) for _ in DATE_FEATURES]
            cells[name] = str(np.datetime64(round(days * 86400), "s")).replace("T00:00:00", "")
        for name, categories in self.of(tuple).items():
            cells[name] = "".join([category for category in categories if next(values)])
        return {name: cells[name] for name in self.columns}

    def unseen(self, x: Float64[np.ndarray, "m n"]) -> dict[str, int]:
        """Return in how many rows of features each column of text has a category unseen in training."""
        text = self.of(tuple)
        end, counts = x.shape[1] - sum(map(len, text.values())), {}
        for name, categories in text.items():
            start, end = end, end + len(categories)
            counts[name] = int((~x[:, start:end].any(1)).sum())
        return {name: count for name, count in counts.items() if count}


def fit_encoder(table: Table, rows: np.ndarray) -> TableEncoder:
    """Return the encoder fitted to the training rows; other rows do not influence it. See ``read_columns``.

    Raises:
        InputError: a column has no values, or too many different texts, or a number or name that no model
            file can hold.
    """
    _expect_columns(table)
    columns = {name: value for name, value in read_columns(table, rows).items() if value is not None}
    if empty := [name for name, value in columns.items() if value != value]:
        raise InputError(f"{table.source}: no training row has a value in {_left_out(empty)}")
    most = most_categories(rows)
    if many := [name for name, value in columns.items() if isinstance(value, list) and len(value) > most]:
        cells = table.cells[many[0]].iloc[rows]
        first = int(parsed(cells)[1].to_numpy().argmax())
        comma = is_number(_pointed(cells.iloc[first]))
        hint = "; is \"dataset.decimal=','\" meant?" if comma else ""
        raise InputError(
            f"{table.source}: expected at most {most} different texts in {len(rows)} training rows, got "
            f"{len(columns[many[0]])} in {', '.join(many) if comma else _left_out(many)}; "
            f"{table.place(int(rows[first]), many[0])}: {shown(cells.iloc[first])} is no number{hint}"
        )
    try:
        return TableEncoder(columns=columns)
    except ValidationError as error:
        raise InputError(f"{table.source}: {one_line(error)}") from None


def read_columns(table: Table, rows: np.ndarray) -> dict[str, Any]:
    """Return what the training rows say of each column, as in ``Columns``; NaN if all cells are empty.

    It is None for identifiers, unless there is nothing else or ``drop`` says what is left out.
    """
    read = {str(name): _read(table, cells, np.sort(rows)) for name, cells in table.cells.items()}
    left_out = table.settings.drop is None and not all(identifies for _, identifies in read.values())
    return {name: None if left_out and identifies else known for name, (known, identifies) in read.items()}


def _read(table: Table, cells: pd.Series, rows: np.ndarray) -> tuple[Any, bool]:
    """Return what the training rows say of a column, and whether it holds identifiers.

    It holds numbers if all of its cells are numbers (see ``parsed``), and dates if all are dates in one
    format. Identifiers are integers that only rise or only fall from row to row, and texts too many for
    categories, of which most are no numbers with a decimal point or comma.
    """
    training = cells.iloc[rows]
    stated = cells.dtype == "category" and training.notna().any()  # by a data frame
    if not stated and not parsed(training)[1].any():
        x = numbers(table, cells).iloc[rows]
        one_way = x.is_monotonic_increasing or x.is_monotonic_decreasing
        counts = one_way and x.is_unique and len(x) > 2 and (x % 1 == 0).all()
        return x.median(), bool(counts)
    if not stated and (form := _format_of(training)) is not None:
        return Dates(form, _days(training, form).median()), False
    categories = sorted(texts(training).unique(), key=lambda text: (text == "", text))
    varied = len(categories) > most_categories(rows)
    return categories, bool(varied and parsed(training.map(_pointed, "ignore"))[1].mean() > 0.5)


def most_categories(rows: np.ndarray) -> int:
    """Return the most categories that a column may have in these rows."""
    return min(MOST_CATEGORIES, len(rows) // 2)


def _pointed(cell: object) -> str:
    return str(cell).replace(",", ".")


def features(table: Table, encoder: TableEncoder | None) -> Float64[np.ndarray, "m n"]:
    """Return the features of all rows; without an encoder the cells, all of them numbers, in their order.

    Raises:
        InputError: a cell is empty or not a number, or the encoder lacks a column, or there are no columns.
    """
    if encoder is not None:
        return encoder(table)
    _expect_columns(table)
    x = {name: numbers(table, cells) for name, cells in table.cells.items()}
    for name, column in x.items():
        expect_cells(table, table.cells[name], column.isna(), "a number")
    return np.column_stack([*x.values()])


def _expect_columns(table: Table) -> None:
    for name in table.settings.drop or ():
        expect_column("dataset.drop", table.source, name, table.rows)
    if table.cells.shape[1] == 0:
        raise InputError(f"{table.source}: expected at least one feature beside the label, found none")


def _left_out(names: Sequence[str]) -> str:
    """Return the names of columns, and how to leave them out."""
    quoted = ",".join(name if name.isidentifier() else repr(name) for name in names)
    return f"{', '.join(names)}: leave this out with dataset.drop=[{quoted}]"


def parsed(cells: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Return cells as numbers in float64, NaN where they are not, and which of them are text: neither empty
    nor a decimal number. True and 1_0 are text.
    """
    import pandas as pd
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if is_bool_dtype(cells) or not is_numeric_dtype(cells):
        cells = cells.astype(object).map(str, na_action="ignore")
    x = pd.to_numeric(cells, errors="coerce").astype("float64")
    return x, x.isna() & cells.notna()


def numbers(table: Table, cells: pd.Series) -> pd.Series:
    """Return a column as finite numbers, NaN where it is empty; InputError for any other cell."""
    x, text = parsed(cells)
    expect_cells(table, cells, text | np.isinf(x), "a number")
    return x


def expect_cells(table: Table, cells: pd.Series, wrong: pd.Series, what: str, hint: str = "") -> None:
    """Raise an InputError about the first cell of a column that is wrong, if there is one."""
    for row in np.flatnonzero(wrong)[:1].tolist():
        cell = cells.iloc[[row]]
        got = shown(cell.item()) if texts(cell).item() else "an empty cell"
        raise InputError(f"{table.place(row, cells.name)}: expected {what}, got {got}{hint}")


def _format_of(cells: pd.Series) -> str | None:
    """Return pandas' format of a column of dates: ISO, or the only one that all cells have; None if there is
    none. Dates such as 03/04/2024 are ambiguous, unless one of them has a day above 12.
    """
    from pandas.tseries.api import guess_datetime_format

    present = cells.dropna()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the order of day and month
        guesses = {guess_datetime_format(str(present.iloc[0]), dayfirst=first) for first in (False, True)}
    complete = [form for form in guesses if form and "%Y" in form and "%d" in form]
    for forms in ([ISO], complete):
        likely = [form for form in forms if _days(present[:1], form).notna().all()]  # to save time
        fitting = [form for form in likely if _days(present, form).notna().all()]
        if len(fitting) == 1:
            return fitting[0]
    return None


def _days(cells: Any, form: str) -> pd.Series:
    """Return dates as days since 1970 in UTC; NaN where a cell is none in this format."""
    import pandas as pd

    cells = pd.Series(cells)
    if cells.dtype.kind != "M":
        cells = cells.astype(object).map(str, na_action="ignore")
        cells = cells.mask(cells.isin(["now", "today"]))  # which pandas knows
    dates = pd.to_datetime(cells, format=form, errors="coerce", utc=True)
    days: pd.Series = (dates - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
    return days


def times(table: Table, cells: pd.Series) -> Float64[np.ndarray, " m"]:
    """Return the time of each row, from numbers or dates."""
    x, text = parsed(cells)
    if text.any():
        x = _days(cells, _format_of(cells) or ISO)
    expect_cells(table, cells, ~np.isfinite(x), "a number or a date such as 2024-12-31")
    return x.to_numpy()


def _calendar(days: Float64[np.ndarray, " m"]) -> list[np.ndarray]:
    """Return the features of dates; see ``DATE_FEATURES``."""
    whole = np.floor(days).astype(np.int64)
    months = whole.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    return [days, months % 12 + 1, (whole + 3) % 7]  # 1970 began on a Thursday


def is_number(text: str) -> bool:
    """Return whether text is a finite number in the form that columns of numbers may hold."""
    import pandas as pd

    return math.isfinite(pd.to_numeric(text, errors="coerce"))


def texts(cells: pd.Series) -> pd.Series:
    """Return cells as text, with one spelling of truth values; "" where they are empty.

    A number of a data frame is the text of its value, without a fraction of 0.
    """

    def text(cell: object) -> str:
        written = str(cell)
        return written.removesuffix(".0") if isinstance(cell, float) else TRUTH.get(written, written)

    return cells.astype(object).where(cells.notna(), "").map(text)
