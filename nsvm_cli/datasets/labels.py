"""The labels of a table as codes or targets, and its columns of groups, times and weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64

from nsvm_cli.datasets.base import Samples, Table, expect_column
from nsvm_cli.datasets.encoding import expect_cells, numbers, parsed, texts, times
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.tasks import Task, encode

if TYPE_CHECKING:
    import pandas as pd

MOST_CLASSES = 1000
"""The maximum number of classes, each with a coefficient for every support vector and a row of confusions."""

MAX_FRACTIONAL_CLASSES = 20
"""The maximum number of distinct labels that are classes if some labels are not integers."""


def labelled(table: Table, kind: str, task: Task | None = None) -> Samples:
    """Return the samples of a table without their features.

    Args:
        task: the task of a trained model, which has the classes and does not need groups, times and weights;
            None for the classes of the table, in ascending order.

    Raises:
        InputError: there are no rows, a label is missing or unknown, a target is not a number, or a column of
            groups, times or weights is missing or has invalid cells.
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
        groups=_by_role(table, "group", lambda _, cells: texts(cells).to_numpy(str), lenient),
        times=_by_role(table, "time", times, lenient),
        weight=_by_role(table, "weight", _weights, lenient),
        numbers=table.rows.index.to_numpy() + 1,
        remarks=table.remarks,
    )


def _code_labels(
    table: Table, kind: str, classes: tuple[str, ...] | None
) -> tuple[Float64[np.ndarray, " m"], tuple[str, ...]]:
    labels = table.rows[table.label]
    if labels.empty:
        raise InputError(f"{table.source}: expected rows below its header, found none")
    hint = "; dataset.skip_unlabelled=true skips such rows"
    expect_cells(table, labels, labels.isna() | (labels == ""), "a label", hint)
    if kind == "regression":
        hint = "; to tell classes apart: task=classification"
        return numbers(table, labels, what="a finite number for task=regression", hint=hint).to_numpy(), ()
    named = labels if labels.dtype == "str" else labels.map(str)
    classes = classes or _classes(named.iloc[: table.official_test], table)
    expected = " or ".join(classes) if len(classes) < 6 else f"one of the {len(classes)} in training"
    expect_cells(table, labels, ~named.isin(classes), f"label {expected}")
    return encode(named.to_numpy(), classes), classes


def _classes(labels: pd.Series, table: Table) -> tuple[str, ...]:
    """Return the classes in ascending order, of numbers if all are numbers; the positive class last."""
    import pandas as pd

    names = pd.Series(sorted(labels.unique()), dtype=object)
    values = parsed(names)[0]
    numeric = bool(np.isfinite(values).all())
    classes = (names[values.argsort(kind="stable")] if numeric else names).tolist()
    fractions = names[values % 1 != 0].tolist() if numeric else []
    if len(classes) > MOST_CLASSES or (fractions and len(classes) > MAX_FRACTIONAL_CLASSES):
        advice = (
            "to predict numbers: task=regression" if numeric else "name another column with dataset.label"
        )
        raise InputError(
            f"{table.source}: found {len(classes)} different labels, such as {(fractions or classes)[0]}, "
            f"which is too many for classes; {advice}"
        )
    if (last := table.settings.positive) is not None:
        if last not in classes:
            raise InputError(f"dataset.positive: there is no class {last}; {did_you_mean(last, classes)}")
        classes = [*(name for name in classes if name != last), last]
    return tuple(classes)


def _weights(table: Table, cells: pd.Series) -> Float64[np.ndarray, " m"]:
    weights = numbers(table, cells)
    expect_cells(table, cells, weights < 0, "a weight of 0 or more")
    return weights.to_numpy()


def _by_role(table: Table, role: str, read: Callable[..., np.ndarray], lenient: bool) -> np.ndarray | None:
    """Return the column with a role; None if the settings name none, or, if ``lenient``, if it is missing."""
    name = getattr(table.settings, role)
    if name is None or (lenient and name not in table.rows):
        return None
    expect_column(f"dataset.{role}", table.source, name, table.rows)
    cells = table.rows[name]
    expect_cells(table, cells, cells.isna(), f"the {role} of the row")
    return read(table, cells)
