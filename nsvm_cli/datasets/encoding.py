"""Tables as arrays: coded labels, dates as numbers, one-hot text and filled gaps."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Float64, Int64
from pydantic import Field, ValidationError
from pydantic.dataclasses import dataclass

from nsvm_cli.config.overrides import override
from nsvm_cli.config.registry import STRICT, one_line, shown
from nsvm_cli.datasets.base import Samples, Table, expect_column
from nsvm_cli.datasets.notation import MOST_CATEGORIES, Doubt, NumberFormat, map_values, remedy
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.tasks import Task, encode

if TYPE_CHECKING:
    import pandas as pd

ID, EMPTY = "id", "empty"
"""Kinds of columns that are not used as features: identifiers and empty columns."""

MOST_CLASSES = 1000
"""Maximum number of classes, since each class adds a coefficient to every support vector."""

MAX_FRACTIONAL_CLASSES = 20
"""Maximum number of classes if some labels are fractions."""

PLAIN = NumberFormat()

TRUTH = {"TRUE": "True", "true": "True", "FALSE": "False", "false": "False"}
"""Maps spellings of truth values that pandas reads to Python's spelling."""

Name = Annotated[str, Field(max_length=4096)]
"""The name of a column, a category or a class."""

Categories = Annotated[tuple[Name, ...], Field(min_length=1, max_length=MOST_CATEGORIES, fail_fast=True)]

ISO = "ISO8601"
"""pandas' name for the ISO 8601 formats of dates."""


@dataclass(frozen=True, config=STRICT)
class Dates:
    """A column of dates: their format for pandas, and their median in days since 1970."""

    format: Annotated[str, Field(max_length=64)]
    median: Annotated[float, Field(ge=-1e7, le=1e7)]

    def __post_init__(self) -> None:
        try:  # the format may come from an untrusted file
            days(["1"], self.format)
        except Exception:
            raise ValueError(f"expected a date format such as %Y-%m-%d, got {shown(self.format)}") from None


DATE_FEATURES = ("days", "month", "weekday")
"""Features of a date in UTC: days since 1970 with a fraction, month (1 to 12) and weekday (Monday is 0)."""

Kind: TypeAlias = NumberFormat | Dates | tuple[str, ...]
"""How a column is encoded: the notation and median of numbers or dates, or the categories of text."""

Columns = dict[Name, float | Categories | Dates | NumberFormat]
"""Encodings by column name, in table order. A float is the median of plain numbers."""


@dataclass(frozen=True, config=STRICT)
class TableEncoder:
    """Encode the rows of a table as features: first columns of numbers, then dates, then text.

    A number is one feature, followed by a feature for each of its codes, and a date has ``DATE_FEATURES``.
    Empty cells are filled with the median. Text is one-hot encoded, and unseen text is encoded as zeros.
    Columns are matched by name.
    """

    columns: Columns

    @functools.cached_property
    def kinds(self) -> dict[str, Kind]:
        """The columns in the order of their features, with ``NumberFormat`` for plain numbers."""
        kinds = {
            name: NumberFormat(median=k) if isinstance(k, float) else k for name, k in self.columns.items()
        }
        return dict(sorted(kinds.items(), key=lambda item: (NumberFormat, Dates, tuple).index(type(item[1]))))

    @property
    def text(self) -> list[str]:
        """Names of the columns to read as text, because pandas would read both 01 and 1 as the number 1."""
        return [name for name, k in self.kinds.items() if not (isinstance(k, NumberFormat) and k.is_plain)]

    @property
    def features(self) -> list[str]:
        """Names of the features, such as ``age`` and ``colour=red``."""
        return [name + ending for name, kind in self.kinds.items() for ending in _endings(kind)]

    def __call__(self, table: Table) -> Float64[np.ndarray, "m n"]:
        """Return the features of all rows, or raise an InputError for a missing column or an invalid cell."""
        cells = table.cells
        if missing := [name for name in self.columns if name not in cells]:
            names = ", ".join(missing[:20])
            raise InputError(f"{table.source} lacks columns that the model was trained on: {names}")
        x = np.empty((len(cells), len(self.features)))
        for name, kind, part in self.parts(x):
            if isinstance(kind, NumberFormat):
                part[:, 0] = numbers(table, cells[name], kind).fillna(kind.median)
                part[:, 1:] = part[:, :1] == np.array(kind.codes)
            elif isinstance(kind, Dates):
                since, wanted = days(cells[name], kind.format), f"a date in the format {kind.format}"
                expect_cells(table, cells[name], since.isna() & cells[name].notna(), wanted)
                part[:, 0] = since.fillna(kind.median)
                date = np.floor(part[:, 0]).astype(np.int64)
                months = date.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
                part[:, 1], part[:, 2] = months % 12 + 1, (date + 3) % 7  # 1970 began on a Thursday
            else:
                part[:] = _places(cells[name], kind)[:, None] == np.arange(len(kind))
        return x

    def parts(self, x: Float64[np.ndarray, "m n"]) -> Iterator[tuple[str, Kind, Float64[np.ndarray, "m _"]]]:
        """Yield the name, kind and features of each column, given the features x of all columns."""
        ends = np.cumsum([len(_endings(kind)) for kind in self.kinds.values()])
        yield from zip(self.kinds, self.kinds.values(), np.split(x, ends, axis=1), strict=False)

    def cells(self, x: Sequence[float]) -> dict[str, str]:
        """Return the cells by column name that an encoded row stands for; unseen text becomes ""."""
        cells = dict.fromkeys(self.columns, "")
        for name, kind, [part] in self.parts(np.array([x])):
            if isinstance(kind, tuple):
                cells[name] = "".join(compress(kind, part))
            else:
                cells[name] = f"{part[0]:.10g}" if isinstance(kind, NumberFormat) else day(part[0])
        return cells

    def unseen(self, x: Float64[np.ndarray, "m n"]) -> dict[str, int]:
        """Return the number of rows with unseen categories, for each text column that has such rows."""
        text = {name: part for name, kind, part in self.parts(x) if isinstance(kind, tuple)}
        counts = {name: int((~part.any(1)).sum()) for name, part in text.items()}
        return {name: count for name, count in counts.items() if count}


def _places(cells: pd.Series, categories: Sequence[str]) -> Int64[np.ndarray, " m"]:
    """Return the index of each cell in the categories, or -1 for an unseen category."""
    places = {text: r for r, text in enumerate(categories)}
    cells = cells.fillna("") if cells.dtype == "str" else texts(cells)
    return map_values(cells, lambda unique: texts(unique).map(places)).fillna(-1).to_numpy(np.int64)


def _endings(kind: Kind) -> list[str]:
    """Return the suffixes that turn a column's name into the names of its features."""
    if isinstance(kind, NumberFormat):
        return ["", *(f"={code:g}" for code in kind.codes)]
    if isinstance(kind, Dates):
        return [f".{part}" for part in DATE_FEATURES]
    return [f"={category}" for category in kind]


def fit_encoder(table: Table, rows: np.ndarray) -> TableEncoder:
    """Fit an encoder to the training rows, or raise an InputError for ambiguous or unusable columns."""
    _expect_columns(table)
    columns = read_columns(table, rows)
    if doubts := {name: kind for name, kind in columns.items() if isinstance(kind, Doubt)}:
        lines = []
        for name, doubt in doubts.items():
            row = (table.rows[name].astype(str) == next(iter(doubt.cells), doubt.example)).to_numpy().argmax()
            lines.append(f"{table.place(int(row), name)}: {doubt}")
        raise InputError("; ".join([*lines, remedy(doubts)]))
    used = {name: kind for name, kind in columns.items() if not isinstance(kind, str)}
    if not used:
        raise InputError(
            f"{table.source}: expected at least one feature column that is not empty, found none"
        )
    for name, kind in used.items():
        if isinstance(kind, list) and len(kind) > MOST_CATEGORIES:
            expected = f"expected at most {MOST_CATEGORIES} different texts"
            advice = f"add {override('dataset.drop', [name])} to exclude the column"
            raise InputError(f"{table.source}: column {name}: {expected}, got {len(kind)}; {advice}")
    try:
        return TableEncoder(columns=used)
    except ValidationError as error:
        raise InputError(f"{table.source}: {one_line(error)}") from None


def read_columns(table: Table, rows: np.ndarray) -> dict[str, Any]:
    """Return for each column an encoding, a ``Doubt`` about it, or ``ID`` or ``EMPTY`` if it is excluded.

    Kinds are recognised in all rows of the first file; medians and categories come from the training rows.
    """
    rows = np.sort(rows)
    read = {str(name): _read(table, cells, rows) for name, cells in table.cells.items()}
    wanted = {*table.settings.include, *table.settings.text}
    named = {
        name: ID if identifies and name not in wanted else kind for name, (kind, identifies) in read.items()
    }
    if all(isinstance(kind, str) for kind in named.values()):  # there are only identifiers to learn from
        return {name: kind for name, (kind, _) in read.items()}
    return named


def _read(table: Table, cells: pd.Series, rows: np.ndarray) -> tuple[Any, bool]:
    """Return a column as in ``read_columns``, and whether it holds identifiers (counters or many texts)."""
    present, training = cells.iloc[table.first_file].dropna(), cells.iloc[rows]
    if present.empty or training.isna().all():
        return EMPTY, False
    if cells.dtype != "category" and str(cells.name) not in table.settings.text:
        plain = PLAIN if cells.dtype.kind in "iuf" else None  # truth values and dates are not numbers
        notation = table.written.get(str(cells.name), plain)
        if isinstance(notation, Doubt):
            return notation, False
        if notation is not None:
            x = numbers(table, cells, notation).iloc[rows]
            kind = replace(notation, median=x.median(), codes=_few_whole_numbers(x, table.settings.max_codes))
            is_float = kind.is_plain and not kind.codes
            return kind.median if is_float else kind, notation.is_plain and _counts(x)
        if (form := _format_of(present)) is not None:
            return Dates(form, days(training, form).median()), False
    training = training.drop_duplicates() if training.dtype == "str" else training
    categories = sorted(texts(training).unique(), key=lambda text: (text == "", text))
    return categories, len(categories) > min(MOST_CATEGORIES, len(rows) // 2)


def _few_whole_numbers(x: pd.Series, most: int) -> tuple[float, ...]:
    """Return the values of a column of 3 to ``most`` different whole numbers, otherwise ()."""
    codes = np.unique(x.dropna())
    return tuple(codes.tolist()) if 3 <= len(codes) <= most and (codes % 1 == 0).all() else ()


def _counts(x: pd.Series) -> bool:
    """Return whether numbers are integers that only rise or only fall, mostly in equal steps."""
    steps = x.diff().iloc[1:]
    if len(x) < 3 or not ((steps > 0).all() or (steps < 0).all()):
        return False
    return bool((steps == steps.median()).mean() >= 0.5 and (x % 1 == 0).all())


def features(table: Table, encoder: TableEncoder | None) -> Float64[np.ndarray, "m n"]:
    """Return the features of all rows; without an encoder, cells that are not numbers raise an InputError."""
    if encoder is not None:
        return encoder(table)
    _expect_columns(table)
    x = {name: numbers(table, cells, PLAIN) for name, cells in table.cells.items()}
    for name, column in x.items():
        expect_cells(table, table.cells[name], column.isna(), "a number")
    return np.column_stack([*x.values()])


def labelled(table: Table, kind: str, task: Task | None = None) -> Samples:
    """Return the samples of a table with empty features x, or raise an InputError for an invalid cell.

    The task of a trained model sets the classes; groups, times and weights may then be missing.
    """
    y, classes = _code_labels(table, kind, task.classes if task else None)
    lenient = task is not None
    return Samples(
        np.empty((len(y), 0)),
        y,
        classes,
        table.source,
        table.official_test,
        origins=table.origins,
        official_validation=table.official_validation,
        groups=_by_role(table, "group", lenient),
        times=_by_role(table, "time", lenient),
        weight=_by_role(table, "weight", lenient),
        numbers=table.rows.index.to_numpy() + 1,
        remarks=table.remarks,
    )


def _code_labels(
    table: Table, kind: str, classes: tuple[str, ...] | None
) -> tuple[Float64[np.ndarray, " m"], tuple[str, ...]]:
    labels = table.rows[table.label]
    if labels.empty:
        raise InputError(f"{table.source}: expected at least one row below the header, found none")
    hint = "; set dataset.skip_unlabelled=true to skip such rows"
    expect_cells(table, labels, labels.isna() | (labels == ""), "a label", hint)
    if kind == "regression":
        hint = "; if the labels are classes, set task=classification"
        return numbers(table, labels, what="a finite number for task=regression", hint=hint).to_numpy(), ()
    named = labels if labels.dtype == "str" else labels.map(str)
    classes = classes or _classes(named.iloc[: table.official_test], table)
    few = f"the label {' or '.join(classes)}"
    expected = few if len(classes) < 6 else f"one of the {len(classes)} training classes as label"
    expect_cells(table, labels, ~named.isin(classes), expected)
    return encode(named.to_numpy(), classes), classes


def _classes(labels: pd.Series, table: Table) -> tuple[str, ...]:
    """Return the classes in ascending order, but the positive class last. Numbers are ordered by value."""
    names = labels.astype(object).drop_duplicates().sort_values(ignore_index=True)
    values = parsed(names)[0]
    numeric = bool(np.isfinite(values).all())
    classes = (names[values.argsort(kind="stable")] if numeric else names).tolist()
    fractions = names[values % 1 != 0].tolist() if numeric else []
    if len(classes) > MOST_CLASSES or (fractions and len(classes) > MAX_FRACTIONAL_CLASSES):
        advice = "choose another column with dataset.label=NAME"
        if numeric:
            advice = "to predict numbers, set task=regression"
        raise InputError(
            f"{table.source}: {len(classes)} different labels, such as {(fractions or classes)[0]}, "
            f"are too many for classification; {advice}"
        )
    if (last := table.settings.positive) is not None:
        if last not in classes:
            raise InputError(f"dataset.positive: there is no class {last}; {did_you_mean(last, classes)}")
        classes = [*(name for name in classes if name != last), last]
    return tuple(classes)


def _by_role(table: Table, role: Literal["group", "time", "weight"], lenient: bool) -> np.ndarray | None:
    """Return the column that has a role, or None if the role is not set or, if ``lenient``, missing."""
    name = getattr(table.settings, role)
    if name is None or (lenient and name not in table.rows):
        return None
    expect_column(f"dataset.{role}", table.source, name, table.rows)
    cells = table.rows[name]
    expect_cells(table, cells, cells.isna(), f"a {role}")
    if role == "group":
        return texts(cells).to_numpy(str)
    if role == "weight":
        weights = numbers(table, cells)
        expect_cells(table, cells, weights < 0, "a weight of 0 or more")
        return weights.to_numpy()
    times, text = parsed(cells)
    if text.any():
        times = days(cells, _format_of(cells) or ISO)
    expect_cells(table, cells, ~np.isfinite(times), "a number or a date such as 2024-12-31")
    return times.to_numpy()


def _expect_columns(table: Table) -> None:
    for key in ("drop", "include", "text"):
        for name in getattr(table.settings, key):
            expect_column(f"dataset.{key}", table.source, name, table.rows)
    for name, cells in table.cells.items():
        if is_nested(cells):
            raise InputError(
                f"{table.source}: column {name}: expected one value in each cell, got lists or records; "
                f"add {override('dataset.drop', [str(name)])} to exclude the column"
            )
    if table.cells.shape[1] == 0:
        raise InputError(f"{table.source}: expected at least one column besides the label, found none")


def is_nested(cells: pd.Series) -> bool:
    """Return whether a column holds lists or records, which can occur in Parquet and JSON files."""
    return cells.dtype == "object" and any(isinstance(cell, list | dict | np.ndarray) for cell in cells)


def parsed(cells: pd.Series, notation: NumberFormat = PLAIN) -> tuple[pd.Series, pd.Series]:
    """Return cells as float64 and the mask of non-empty cells that do not have the format ``notation``.

    Cells without a number are NaN.
    """
    import pandas as pd
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if is_numeric_dtype(cells) and not is_bool_dtype(cells):
        x = cells.astype("float64")
        return x, pd.Series(notation.rescales, index=cells.index) & x.notna()
    is_text = cells.dtype == "str"
    x = notation(cells if is_text else cells.astype(object).map(str, na_action="ignore"))
    if not (is_text or notation.is_plain or notation.rescales):
        numeric = pd.Series([isinstance(cell, (int, float)) for cell in cells], cells.index)
        x = x.mask(numeric, pd.to_numeric(cells.where(numeric), errors="coerce").astype("float64"))
    return x, x.isna() & cells.notna()


def numbers(
    table: Table, cells: pd.Series, notation: NumberFormat | None = None, what: str = "", hint: str = ""
) -> pd.Series:
    """Return a column as finite numbers, with NaN for empty cells, or raise an InputError for other cells."""
    if notation is None:
        written = table.written.get(str(cells.name))
        notation = written if isinstance(written, NumberFormat) else PLAIN
    notation = replace(notation, **table.signs)
    x, text = parsed(cells, notation)
    what = what or f"a number ({notation})".removesuffix(" ()")
    if (infinite := np.isinf(x)).any() and not hint:
        codes = override("dataset.missing", {str(cells.name): texts(cells[infinite]).unique().tolist()})
        hint = f"; if infinite values are missing values, add {codes}"
    expect_cells(table, cells, text | infinite, what, hint)
    return x


def expect_cells(table: Table, cells: pd.Series, wrong: pd.Series, what: str, hint: str = "") -> None:
    """Raise an InputError about the first ``wrong`` cell; ``what`` describes cells that are right."""
    if rows := np.flatnonzero(wrong)[:1].tolist():
        cell = cells.iloc[rows]
        got = shown(cell.item()) if texts(cell).item() else "an empty cell"
        raise InputError(f"{table.place(rows[0], cells.name)}: expected {what}, got {got}{hint}")


def _format_of(cells: pd.Series) -> str | None:
    """Return the date format of a column, or None unless exactly one format (or ISO) fits all cells."""
    # 03/04/2024 fits two formats, unless another cell has a day above 12
    fitting = [form for form, share in date_formats(cells).items() if share == 1]
    return fitting[0] if fitting and (len(fitting) == 1 or fitting[0] == ISO) else None


def date_formats(cells: pd.Series) -> dict[str, float]:
    """Return formats that fit the first dates, with the fraction of all cells that each format fits."""
    from pandas.tseries.api import guess_datetime_format

    present = cells.dropna().drop_duplicates() if cells.dtype == "str" else cells.dropna()
    first = present.iloc[:3]
    if not re.search(r"\d", " ".join(map(str, first))):
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the order of day and month is checked below
        guesses = [guess_datetime_format(str(cell), dayfirst=day) for cell in first for day in (False, True)]
    complete = [form for form in guesses if form and "%Y" in form and "%d" in form]
    complete = [form.replace("%B", "%b") if "May" in " ".join(map(str, first)) else form for form in complete]
    hours = [f"{date} %I:%M{seconds} %p" for date in ("%m/%d/%Y", "%d/%m/%Y") for seconds in (":%S", "")]
    short = ["%m/%d/%y", "%d/%m/%y", "%d.%m.%y", "%d-%b-%y", "%b-%y"]
    forms = dict.fromkeys([ISO, *complete, *short, *hours])  # pandas does not guess 12 o'clock
    likely = [form for form in forms if days(first, form).notna().any()]  # to save time
    return {form: float(days(present, form).notna().mean()) for form in likely}


def days(cells: Any, form: str) -> pd.Series:
    """Return dates as days since 1970 in UTC, with NaN for cells that are not dates in this format."""
    import pandas as pd

    cells = pd.Series(cells)
    if cells.dtype == "str":
        return map_values(cells, lambda values: days(values.astype(object), form))
    if cells.dtype.kind != "M":
        cells = cells.astype(object).map(str, na_action="ignore")
        cells = cells.mask(cells.isin(["now", "today"]))  # pandas reads these as dates
    dates = pd.to_datetime(cells, format=form, errors="coerce", utc=True)
    epoch = pd.Timestamp("1970-01-01", tz="UTC").as_unit("us")
    return (dates.dt.as_unit("us") - epoch) / np.timedelta64(86400, "s")


def day(since: float) -> str:
    """Return days since 1970 as an ISO date, with the time unless it is midnight."""
    return str(np.datetime64(round(since * 86400), "s")).replace("T00:00:00", "")


def texts(cells: pd.Series) -> pd.Series:
    """Return cells as text: "" if empty, True or False for truth values, and whole floats without ".0"."""

    def text(cell: object) -> str:
        written = str(cell)
        return written.removesuffix(".0") if isinstance(cell, float) else TRUTH.get(written, written)

    return cells.astype(object).where(cells.notna(), "").map(text)
