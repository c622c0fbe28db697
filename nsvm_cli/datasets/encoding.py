"""Tables as samples: labels become codes, text becomes one-hot features, and missing numbers are filled.

scikit-learn's OneHotEncoder and SimpleImputer are fitted on the training rows. The result is plain data,
``Columns``, which a model file holds, and which gives the same features as scikit-learn, to the bit.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from jaxtyping import Float64
from pydantic import PlainValidator, ValidationError
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT, one_line, shown
from nsvm_cli.datasets.base import Samples, Table
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.memory import expect_room
from nsvm_cli.storage.tensor_file import HEADER_BYTES, json_within_bounds
from nsvm_cli.tasks import encode

if TYPE_CHECKING:
    import pandas as pd

MOST_CATEGORIES = 1000
"""The largest number of categories in a column of text."""

MOST_CLASSES = 10_000
"""The largest number of classes: each has a coefficient for every support vector."""

MAX_FRACTIONAL_CLASSES = 20
"""Labels with more different numbers than this, some of them not integers, are targets, not classes."""

DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
"""The text of a number, as pandas reads it: not 1_0, 0x10 or inf."""

MAX_NAME_LENGTH = 4096
"""The most characters in the name of a column or of a category."""


def _checked(columns: Any) -> dict[str, float | tuple[str | None, ...]]:
    """Return the columns, if they fit in a model file.

    Raises:
        ValueError: the first column that is wrong; pydantic might list millions.
    """
    if not isinstance(columns, Mapping):
        raise ValueError(f"expected columns by their names, got {shown(columns)}")
    checked = {name: _median_or_categories(name, value) for name, value in columns.items()}
    text = json.dumps(checked)
    if (size := len(json.dumps(text))) > HEADER_BYTES // 2:
        raise ValueError(f"a model file has no room for their names and categories, {size} bytes")
    json_within_bounds(text)
    return checked


def _median_or_categories(name: str, value: Any) -> float | tuple[str | None, ...]:
    """Return the median or the categories of a column."""
    texts = value if isinstance(value, list | tuple) else ()
    where = f"column {name[:40]}"
    if not all(isinstance(text, str | None) for text in texts):
        raise ValueError(f"expected text in {where}, got {shown(value)}")
    if (longest := max(len(text or "") for text in (name, *texts))) > MAX_NAME_LENGTH:
        raise ValueError(f"expected at most {MAX_NAME_LENGTH} characters in {where}, got {longest}")
    if value is texts:
        if not 0 < len({*texts}) == len(texts) <= MOST_CATEGORIES:
            raise ValueError(f"expected up to {MOST_CATEGORIES} different categories in {where}")
        return tuple(texts)
    if not isinstance(value, float | int) or not math.isfinite(value):
        raise ValueError(f"expected a finite number, or a list of text, in {where}, got {shown(value)}")
    return float(value)


Columns = Annotated[dict[str, float | tuple[str | None, ...]], PlainValidator(_checked)]
"""For each column of a model's table, by name and in the order of the table: the median of numbers, or the
categories of text, in which None stands for an empty cell."""


@dataclass(frozen=True, config=STRICT)
class TableEncoder:
    """Turn the rows of a table into features: first the columns of numbers, then those of text.

    A column of numbers is a feature, in which the median fills empty cells. A column of text has a feature
    for each category, which is 1 in its rows and else 0; text of any other category is encoded as zeros.
    """

    columns: Columns

    @property
    def numbers(self) -> dict[str, float]:
        """The columns of numbers and their medians."""
        return {name: median for name, median in self.columns.items() if isinstance(median, float)}

    @property
    def text(self) -> dict[str, tuple[str | None, ...]]:
        """The columns of text and their categories."""
        return {name: texts for name, texts in self.columns.items() if isinstance(texts, tuple)}

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self.numbers) + sum(map(len, self.text.values()))

    @property
    def sha256(self) -> str:
        """The SHA-256 of the meaning of each feature."""
        return hashlib.sha256(json.dumps([[*self.numbers], self.text]).encode()).hexdigest()

    def __call__(self, table: Table) -> Float64[np.ndarray, "m n"]:
        """Return the features of all rows. Columns are matched by name, others are ignored.

        Raises:
            InputError: a column is missing, a cell in a column of numbers is not a number, a number matches
                several categories; or the features need more memory than data may take.
        """
        if missing := [name for name in self.columns if name not in table.cells]:
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            raise InputError(
                f"{table.source} lacks columns that the model was trained on: {', '.join(missing[:5])}{more}"
            )
        if len(table.cells) == 0:
            return np.empty((0, self.width))
        # at the peak, before training, there are three copies in float64
        needed = 3 * 8 * self.width * len(table.cells)
        expect_room(needed, f"{table.source}, encoded as {self.width} features,")
        x = np.zeros((len(table.cells), self.width))
        numbers = _numbers(table, [*self.numbers])
        x[:, : len(self.numbers)] = np.where(np.isnan(numbers), [*self.numbers.values()], numbers)
        first, written = len(self.numbers), table.text([*self.text])
        for name, categories in self.text.items():
            column = {text: first + r for r, text in enumerate(categories)}
            texts = _texts(table, written[name], categories).tolist()
            at = np.array([column.get(text, -1) for text in texts])
            rows = np.flatnonzero(at >= 0)
            x[rows, at[rows]] = 1
            first += len(categories)
        return x


def fit_encoder(table: Table, rows: np.ndarray) -> TableEncoder:
    """Return the encoder fitted to the training rows; other rows do not influence it.

    A column holds numbers if all of its cells are numbers: see ``_as_number``.

    Raises:
        InputError: a column has no values, or too many different texts, or a number or name that no model
            file can hold.
    """
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder

    _expect_columns(table)
    training = table.cells.iloc[rows]
    if empty := [str(name) for name, cells in training.items() if cells.isna().all()]:
        raise InputError(f"{table.source}: no training row has a value in {_left_out(empty)}")
    text = [str(name) for name, cells in training.items() if _is_text(cells).any()]
    _expect_categories(table, rows, table.text(text).iloc[rows])
    numbers = training.columns.difference(text, sort=False).tolist()
    typed = _typed(table, numbers, dict.fromkeys(text, ())).iloc[rows]
    fitted: dict[Any, Any] = {}
    if numbers:
        medians = SimpleImputer(strategy="median").fit(typed[numbers]).statistics_.tolist()
        fitted |= zip(numbers, medians, strict=True)
    if text:
        fitted |= zip(text, map(tuple, OneHotEncoder().fit(typed[text]).categories_), strict=True)
    try:
        return TableEncoder(columns={str(name): fitted[name] for name in training})
    except ValidationError as error:
        raise InputError(f"{table.source}: {one_line(error)}") from None


def stray_texts(table: Table, rows: np.ndarray, encoder: TableEncoder) -> Iterator[str]:
    """Yield a line about each column that is encoded as text although most of its cells are numbers."""
    for name, categories in encoder.text.items():
        if stray := _stray(table, rows, name):
            place, text = stray
            yield f"{place}: {text} is no number, so the column is text, of {len(categories)} categories"


def _stray(table: Table, rows: np.ndarray, name: str) -> tuple[str, str] | None:
    """Return the place and text of the first cell that is not a number, if most cells of its column are."""
    cells = table.cells[name].iloc[rows]
    text = _is_text(cells)
    if 2 * text.sum() >= cells.notna().sum():
        return None
    first = int(text.argmax())
    return table.place(int(rows[first]), name), shown(cells.iloc[first])


def _is_text(cells: pd.Series) -> np.ndarray:
    """Return for each cell whether it is neither empty nor a number."""
    return (cells.notna() & _as_number(cells).isna()).to_numpy(bool)


def _as_number(cells: pd.Series) -> pd.Series:
    """Return cells as numbers in float64, and NaN for cells that are not numbers.

    Text is a number if it is decimal, with or without sign, fraction, exponent and surrounding blanks. True
    and 1_0 are not numbers. A number too large for float64 is infinite, and so is inf.
    """
    import pandas as pd
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if is_bool_dtype(cells) or not is_numeric_dtype(cells):
        cells = cells.astype(object).map(str, na_action="ignore")
    return pd.to_numeric(cells, errors="coerce").astype("float64")


def _expect_columns(table: Table) -> None:
    if table.unknown:
        hint = did_you_mean(table.unknown[0], map(str, table.cells))
        raise InputError(f"dataset.drop: {table.source} has no column {table.unknown[0]!r}; {hint}")
    if table.cells.shape[1] == 0:
        raise InputError(f"{table.source}: expected at least one feature beside the label, found none")


def _expect_categories(table: Table, rows: np.ndarray, text: pd.DataFrame) -> None:
    most, counts = min(MOST_CATEGORIES, len(text) // 2), text.nunique()
    crowded = counts.index[counts > most].tolist()
    for place, got in filter(None, (_stray(table, rows, name) for name in crowded)):
        raise InputError(
            f"{place}: expected a number, got {got}, as most cells of the column are numbers; "
            "leave a cell without a value empty"
        )
    if crowded:
        raise InputError(
            f"{table.source}: expected at most {most} different texts in {len(text)} training rows, got "
            f"{counts[crowded[0]]} in {_left_out(crowded)}"
        )


def _left_out(names: Sequence[str]) -> str:
    """Return the names of columns, and how to leave them out."""
    quoted = ",".join(name if name.isidentifier() else repr(name) for name in names)
    return f"{', '.join(names)}: leave this out with dataset.drop=[{quoted}]"


def _typed(table: Table, numbers: Sequence[Any], text: Mapping[Any, Sequence[str | None]]) -> pd.DataFrame:
    """Return these columns: numbers as float64, text (with its categories) as objects, see ``_texts``."""
    import pandas as pd

    x, written = pd.DataFrame(_numbers(table, numbers), columns=[*numbers]), table.text([*text])
    return x.assign(**{name: _texts(table, written[name], categories) for name, categories in text.items()})


def _numbers(table: Table, names: Sequence[Any]) -> Float64[np.ndarray, "m n"]:
    cells = table.cells[[*names]]
    x: np.ndarray = cells.apply(_as_number).to_numpy(np.float64)
    if (bad := np.isinf(x) | (np.isnan(x) & cells.notna().to_numpy(bool))).any():
        row, column = np.argwhere(bad)[0].tolist()
        got = cells.iloc[:, column].tolist()[row]
        raise InputError(f"{table.place(row, cells.columns[column])}: expected a number, got {shown(got)}")
    return x


def _texts(table: Table, cells: pd.Series, categories: Sequence[str | None]) -> pd.Series:
    """Return cells as text, unchanged, and None where they are empty.

    A cell of a data frame may hold a number or a bool instead, which stands for the category of this value.
    """
    import pandas as pd

    by_value: dict[object, list[str]] = {}
    for name in filter(None, categories):
        by_value.setdefault(_value(name), []).append(name)
    texts: list[str | None] = []
    for row, (cell, empty) in enumerate(zip(cells.tolist(), cells.isna().tolist(), strict=True)):
        if empty or isinstance(cell, str):
            texts.append(None if empty else cell or None)  # "" is an empty cell of a data frame
            continue
        text, *others = by_value.get(_value(cell), [str(cell)])
        if others:
            names = ", ".join([text, *others])
            raise InputError(f"{table.place(row, cells.name)}: {cell} may be any of {names}: expected text")
        texts.append(text)
    return pd.Series(texts, dtype=object)


def _value(cell: object) -> object:
    """Return a key that a number or bool shares with every text that stands for it."""
    text = str(cell)
    if is_number(text):
        return float(text)
    return text.lower() if text.lower() in ("true", "false") else text


def is_number(text: str) -> bool:
    """Return whether text is a number in the form that columns of numbers may hold."""
    return DECIMAL.fullmatch(text.strip()) is not None


def as_numbers(table: Table) -> Float64[np.ndarray, "m n"]:
    """Return the cells of a table all of whose columns are numbers, in their order.

    Raises:
        InputError: a cell is empty or not a number, or there are no columns.
    """
    _expect_columns(table)
    x = _numbers(table, [*table.cells])
    if (empty := np.isnan(x)).any():
        row, column = np.argwhere(empty)[0].tolist()
        raise InputError(
            f"{table.place(row, table.cells.columns[column])}: expected a number, got an empty cell"
        )
    return x


def code_labels(table: Table, kind: str, classes: tuple[str, ...] | None = None) -> Samples:
    """Return samples without features, whose labels are coded, or are real targets.

    Args:
        classes: the classes of a model; None for those of the table, in ascending order.

    Raises:
        InputError: there are no rows, a label is missing or unknown, there is only one class, or a target is
            not a number.
    """
    labels = table.labels.astype(object)
    if labels.empty:
        raise InputError(f"{table.source}: expected rows below its header, found none")
    if (missing := labels.isna()).any():
        raise InputError(f"{table.place(int(np.flatnonzero(missing)[0]))} has no label")
    if kind == "regression":
        y = _targets(table, labels)
        return Samples(np.empty((len(y), 0)), y, (), table.source, table.official_test)
    named = labels.map(str)
    classes = classes or _classes(named.iloc[: table.official_test], table.source)
    if (unknown := ~named.isin(classes)).any():
        row = int(np.flatnonzero(unknown)[0])
        expected = " or ".join(classes) if len(classes) < 6 else f"one of the {len(classes)} in training"
        raise InputError(f"{table.place(row)}: expected label {expected}, got {labels.iloc[row]}")
    y = encode(named.to_numpy(), classes)
    return Samples(np.empty((len(y), 0)), y, classes, table.source, table.official_test)


def _targets(table: Table, labels: pd.Series) -> Float64[np.ndarray, " m"]:
    y: np.ndarray = _as_number(labels).to_numpy()
    for row in np.flatnonzero(~np.isfinite(y)).tolist()[:1]:
        label = shown(labels.iloc[row])
        if np.isinf(y[row]):
            raise InputError(f"{table.place(row)}: expected a finite number, got {label}")
        raise InputError(
            f"{table.place(row)}: expected a number for task=regression, got {label}; "
            "to tell classes apart: task=classification"
        )
    return y


def _classes(labels: pd.Series, source: str) -> tuple[str, ...]:
    """Return the different labels in ascending order: by their values if all are numbers, or else as text."""
    import pandas as pd

    names = pd.Series(sorted(labels.unique()), dtype=object)
    values = _as_number(names)
    numbers = bool(np.isfinite(values).all())
    classes = (names[values.argsort(kind="stable")] if numbers else names).tolist()
    if len(classes) < 2:
        raise InputError(
            f"{source}: expected labels of at least 2 classes, found {len(classes)}: "
            f"{', '.join(classes) or 'no training rows'}"
        )
    fractions = names[values % 1 != 0].tolist() if numbers else []
    if len(classes) > MOST_CLASSES or (fractions and len(classes) > MAX_FRACTIONAL_CLASSES):
        advice = (
            "to predict numbers: task=regression" if numbers else "name another column with dataset.label"
        )
        raise InputError(
            f"{source}: found {len(classes)} different labels, such as {(fractions or classes)[0]}, "
            f"which is too many for classes; {advice}"
        )
    return tuple(classes)
