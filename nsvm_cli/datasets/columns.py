"""Descriptions of a table's columns for the user: kinds, empty cells, first cells and likely mistakes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64

from nsvm_cli.config.overrides import override
from nsvm_cli.config.registry import construct
from nsvm_cli.datasets.base import Table
from nsvm_cli.datasets.csv import read_cells
from nsvm_cli.datasets.encoding import (
    DATE_FEATURES,
    EMPTY,
    ID,
    Dates,
    TableEncoder,
    date_formats,
    day,
    days,
    is_nested,
    labelled,
    numbers,
    read_columns,
    texts,
)
from nsvm_cli.datasets.layout import Dialect
from nsvm_cli.datasets.notation import FEW, MOST_CATEGORIES, Doubt, NumberFormat, is_number, remedies, remedy
from nsvm_cli.datasets.splits import FEWEST_ROWS, rare_classes
from nsvm_cli.errors import InputError
from nsvm_cli.output import shortened

if TYPE_CHECKING:
    import pandas as pd

LONGEST_LINE = 300
"""Maximum length of a line that lists columns."""

MOST_CELLS = 6
"""Number of cells of a column to show."""

GIVEN_AWAY = 0.95
"""A column is suspicious if it avoids this fraction of the errors of a constant prediction."""

FEWEST = 5
"""Minimum number of rows on which a warning about a column is based."""

LIKELY = ("label", "class", "target", "y", "outcome", "diagnosis", "survived", "churn", "species", "quality")
"""Common names of label columns."""


@dataclass(frozen=True)
class Column:
    """The description of a column. ``categories`` and ``missing`` count categories and empty cells."""

    name: str
    kind: str
    categories: int | None
    missing: int
    values: tuple[str | float | None, ...]
    remarks: tuple[str, ...]


def describe(
    table: Table, columns: Mapping[str, Any], doubtful: Mapping[str, Sequence[str]]
) -> tuple[Column, ...]:
    """Describe each column.

    ``columns`` is the result of ``read_columns``. ``doubtful`` holds additional remarks by column name.
    """

    def described(name: Any) -> Column:
        raw, read = table.rows[name], columns.get(str(name), ID)
        cells = texts(raw) if raw.dtype == "object" else raw  # Parquet may hold lists
        empty = cells.isna() | (cells == "")
        count, values, remarks = None, texts(cells.iloc[:MOST_CELLS]), []
        kind = table.roles.get(name, read if isinstance(read, str) else "text")
        if isinstance(read, Doubt):
            kind, remarks = "number", [f"{read}; {remedy({str(name): read})}"]
        elif isinstance(read, Dates):
            kind, values = "date", days(raw.iloc[:MOST_CELLS], read.format).map(day, na_action="ignore")
        elif isinstance(read, NumberFormat):
            kind, values = "number", numbers(table, raw.iloc[:MOST_CELLS], read)
            remarks = [] if read.is_plain else [str(read)]
        elif kind in ("text", ID, "label"):
            count = None if kind == ID else cells[~empty].nunique()
            share = max(date_formats(cells).values(), default=0) if kind != "label" else 0
            doubt = "all cells are dates, but it is ambiguous whether the day or the month comes first"
            partly = f"only {share:.0%} of the cells are dates in the same format"
            remarks = [partly if share < 1 else doubt] * (share >= 0.9)
        if empty.all():
            kind = EMPTY
        elif not isinstance(read, str | Doubt) and (cells == cells.iloc[0]).all():
            kind = "constant"
        first = tuple(None if gap else value for value, gap in zip(values, empty, strict=False))
        if kind == ID and all(map(is_number, filter(None, values))):
            remarks = [f"looks like a row number; if it is a time, add {override('dataset.time', str(name))}"]
        remarks += doubtful.get(str(name), ())
        return Column(str(name), kind, count, int(empty.sum()), first, tuple(remarks))

    return tuple(map(described, table.rows))


@dataclass(frozen=True)
class Survey:
    """The description of a table: number of rows, fraction of each class, columns and remarks."""

    rows: int
    classes: dict[str, float]
    columns: tuple[Column, ...]
    lines: tuple[str, ...]


def survey(path: str, written: Mapping[str, Any], label: str | None) -> Survey:
    """Describe a table file as training would read it with all rows in the training set.

    ``written`` holds settings of a ``Dialect``. The default label is "label", if that column exists.
    """
    dialect = construct(Dialect, "", written)
    rows, lines = read_cells(path, "", dialect, label)
    if label is None and "label" in rows:
        return survey(path, written, "label")
    table = Table(rows, (path,), label, signs=dialect.signs)
    kinds = read_columns(table, np.arange(len(rows)))
    many = [name for name, c in kinds.items() if isinstance(c, list) and len(c) > MOST_CATEGORIES]
    used = {n: c for n, c in kinds.items() if n not in many and not isinstance(c, str | Doubt)}
    encoder = TableEncoder(used)
    x, y, counts = encoder(table), None, dict[str, int]()
    if label is not None:
        with_label = (rows[label] != "").to_numpy()
        x, (y, names) = x[with_label], _targets(replace(table, rows=rows[with_label]))
        counts = {name: int((rows[label] == name).sum()) for name in names}
    columns = describe(table, kinds | encoder.kinds, suspicions(x, y, encoder, bool(counts)))
    classes = {name: count / len(x) for name, count in counts.items()}
    rare = rare_classes(counts)
    lines += [*_about_rows(rows, classes), *remarks_on(columns)]
    if rare:
        advice = f"add {override('dataset.min_count', FEWEST_ROWS)} to remove them"
        lines.append(f"rare classes: {shortened(', '.join(rare), LONGEST_LINE)}; {advice}")
    if many:
        advice = f"add {override('dataset.drop', many)} to exclude them"
        lines.append(f"columns with more than {MOST_CATEGORIES} different texts: {', '.join(many)}; {advice}")
    if label is None:
        named = [c.name for c in columns if c.kind not in (ID, EMPTY)]
        likely = [name for name in named if name.lower() in LIKELY] or named[-1:]
        flags = [f"--label {shlex.quote(name)}" for name in likely]
        lines.append(f"choose the column to predict with {' or '.join(flags)}")
    else:
        doubts = {name: doubt for name, doubt in kinds.items() if isinstance(doubt, Doubt)}
        settings = {"path": path, "label": label, **written}
        settings |= {key: value for key, value, _ in remedies(doubts)[:1]}
        extra = {"drop": many, "skip_unlabelled": len(x) < len(rows), "min_count": FEWEST_ROWS * bool(rare)}
        settings |= {key: value for key, value in extra.items() if value}
        how = [override(f"dataset.{key}", value) for key, value in settings.items()]
        how += ["task=regression"] * (not counts)
        lines.append(f"to train: {' '.join(['nsvm train dataset=csv', *how])}")
    return Survey(len(rows), classes, columns, tuple(lines))


def _about_rows(rows: pd.DataFrame, classes: Mapping[str, float]) -> Iterator[str]:
    if classes:
        shares = ", ".join(f"{name} {share:.1%}" for name, share in classes.items())
        yield shortened(f"{len(classes)} classes: {shares}", LONGEST_LINE)
    if twice := int(rows.duplicated([name for name in rows if not is_nested(rows[name])]).sum()):
        yield f"duplicate rows: {twice}; the training set and the test set may contain the same row"


def remarks_on(columns: Sequence[Column]) -> list[str]:
    """Return one line for each distinct remark, with the names of the columns that the remark is about."""
    names: dict[str, list[str]] = {}
    for column in columns:
        for remark in column.remarks:
            names.setdefault(remark, []).append(column.name)
    return [shortened(f"{', '.join(group)}: {remark}", LONGEST_LINE) for remark, group in names.items()]


def _targets(table: Table) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return coded labels and classes. Numbers with many rare values are real targets, with () as classes."""
    try:
        samples = labelled(table, "classification")
        counts = table.rows[table.label].value_counts()
        if len(counts) <= FEW or counts.min() >= FEWEST_ROWS or not all(map(is_number, samples.classes)):
            return samples.y, samples.classes
    except InputError:
        if not all(map(is_number, table.rows[table.label].unique())):
            raise
    samples = labelled(table, "regression")
    return samples.y, ()


def summary(columns: Sequence[Column]) -> list[str]:
    """Return lines that summarise the columns of a table."""
    names: dict[str, list[str]] = {}
    for column in columns:
        names.setdefault(column.kind, []).append(column.name)
    counts = ", ".join(f"{len(group)} {kind}" for kind, group in names.items())
    missing = sum(column.missing for column in columns)
    advice = {
        "date": f"dates, which are converted to the features {', '.join(DATE_FEATURES)}",
        ID: "excluded as identifiers (add dataset.include=[...] to use them)",
        EMPTY: "excluded because they are empty",
    }
    lines = [f"columns: {counts}; {missing} empty cells"] if columns else []
    lines += [f"{text}: {', '.join(names[kind])}" for kind, text in advice.items() if kind in names]
    lines += remarks_on(columns)
    return [shortened(line, LONGEST_LINE) for line in lines]


def unseen_categories(counts: Mapping[str, int], rows: int) -> list[str]:
    """Return messages about unseen categories, given the number of affected cells in each column."""
    everywhere = [name for name, count in counts.items() if count == rows > 1]
    warning = f"none of the {rows} cells occurs in the training data; check the encoding of the file"
    lines = [f"{name}: {warning}" for name in everywhere]
    if others := [f"{count} in {name}" for name, count in counts.items() if name not in everywhere]:
        lines.append(f"cells with categories unseen in training: {', '.join(others)}")
    return [shortened(line, LONGEST_LINE) for line in lines]


@np.errstate(over="ignore")
def suspicions(
    x: Float64[np.ndarray, "m n"], y: Float64[np.ndarray, " m"] | None, encoder: TableEncoder, classes: bool
) -> dict[str, list[str]]:
    """Return warnings by column name, given features x and coded labels or targets y."""
    lines: dict[str, list[str]] = {}
    rows = np.random.default_rng(0).permutation(len(x))[:3000]  # to save time
    for name, kind, part in encoder.parts(x):
        sample = part[rows, 0]
        if isinstance(kind, Dates):
            lines[name] = [
                f"{day(value)} is far from all other dates" for value, _, far in _ends(part[:, 0]) if far
            ]
        elif isinstance(kind, NumberFormat):
            lines[name] = _codes(np.ascontiguousarray(part[:, 0]))
        else:
            sample = part[rows] @ np.arange(1.0, part.shape[1] + 1)
        if y is not None and len(y) >= 4 * FEWEST and (share := _gives_away(sample, y[rows], classes)):
            advice = "if its values are unknown at the time of prediction, add dataset.drop=[...]"
            lines[name] = [*lines.get(name, []), f"this column alone predicts {share}; {advice}"]
    return lines


def _ends(x: np.ndarray) -> Iterator[tuple[float, float, bool]]:
    """Yield the minimum and maximum of x, each with the smallest other value and whether it is an outlier."""
    for value in (float(x.min()), float(x.max())):
        if np.count_nonzero(others := x != value) >= FEWEST:
            low = float(x.min(where=others, initial=np.inf))
            high = float(x.max(where=others, initial=-np.inf))
            yield value, low, min(abs(value - low), abs(value - high)) > high - low > 0


def _codes(x: np.ndarray) -> list[str]:
    """Return warnings about identifiers, and about codes of missing values such as -999 or 9999."""
    lines = []
    for value, low, far in _ends(x):
        alone = value < 0 <= low
        nines = value < 0 or {*f"{value:.0f}"} == {"9"}
        if (alone or (far and nines)) and value % 1 == 0 and (x == value).sum() > 1:
            codes = override("dataset.missing", [f"{value:.0f}"])
            advice = f"if it means a missing value, add {codes}"
            lines.append(f"{value:.0f} is unlike all other numbers; {advice}")
    wide = len(x) >= 10 * FEWEST and np.ptp(x) >= len(x) - 1  # to save time
    if wide and (x % 1 == 0).all() and len(np.unique(x)) == len(x):
        lines.append("contains a different whole number in each row; for identifiers, add dataset.drop=[...]")
    return lines


def _gives_away(x: np.ndarray, y: np.ndarray, classes: bool) -> str:
    """Return how well a column x predicts y, or "" unless y is predicted almost perfectly on unseen rows."""
    codes = np.unique(y)
    if classes and 2 * FEWEST * len(codes) > len(y):
        return ""
    targets = (y[:, None] == codes) * 1.0 if classes else y[:, None]
    predicted, first = np.empty_like(targets), np.arange(len(y)) % 2 == 0
    for train in (first, ~first):
        group = np.searchsorted(np.unique(np.sort(x[train])[::FEWEST])[1:], x, "right")
        members = (group[train, None] == np.arange(group.max() + 1)).T * 1.0
        means = members @ targets[train] / np.maximum(members.sum(1), 1)[:, None]
        predicted[~train] = means[group[~train]]
    if classes:
        wrong = float(np.mean(codes[predicted.argmax(1)] != y))
        given_away = wrong <= (1 - GIVEN_AWAY) * (1 - targets.mean(0).max())
        return f"the label in {100 * (1 - wrong):.4g} % of rows" if given_away else ""
    r2 = 1 - float(np.mean((predicted[:, 0] - y) ** 2) / np.var(y)) if np.ptp(y) else 0.0
    return f"the target with an R^2 of {r2:.3f}" if r2 >= GIVEN_AWAY else ""
