"""What looks wrong in a table: columns that give the label away, and cells far from all others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float64

from nsvm_cli.config.overrides import override
from nsvm_cli.datasets.encoding import DATE_FEATURES, Dates, TableEncoder, day

MOST_ROWS = 3000
"""The most rows in which one column is tried as the only feature."""

GIVEN_AWAY = 0.95
"""The least share of the errors of the majority, or of the mean, that a suspicious column avoids."""

FEWEST = 5
"""The fewest rows with similar cells."""


def suspicions(
    x: Float64[np.ndarray, "m n"], y: Float64[np.ndarray, " m"] | None, encoder: TableEncoder, classes: bool
) -> dict[str, list[str]]:
    """Return lines about the columns whose features are ``x``, and whose codes or targets are ``y``."""
    found: dict[str, list[str]] = {}
    for name, values in _columns(x, encoder):
        dates = name in encoder.of(Dates)
        lines = _unlike(values, dates) if dates or name in encoder.numbers else []
        if y is not None and len(y) >= 4 * FEWEST and (line := _gives_away(values, y, classes)):
            lines.append(f"it alone predicts {line}: is it known beforehand?")
        if lines:
            found[name] = lines
    return found


def _columns(x: Float64[np.ndarray, "m n"], encoder: TableEncoder) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name and the values of each column: numbers, days, or the codes of categories."""
    start = 0
    for name in encoder.numbers:
        yield name, x[:, start]
        start += 1
    for name in encoder.of(Dates):
        yield name, x[:, start]
        start += len(DATE_FEATURES)
    for name, categories in encoder.of(tuple).items():
        end = start + len(categories)
        yield name, x[:, start:end] @ np.arange(1.0, len(categories) + 1)
        start = end


def _unlike(x: np.ndarray, dates: bool) -> list[str]:
    """Return lines about the least and the largest value if they may be codes, or all may be identifiers.

    These are farther from the others than they spread, or the only negative number. A number is taken for a
    code only if it is whole, repeated, and negative or of nines.
    """
    lines = []
    for value in (float(x.min()), float(x.max())):
        others = x[x != value]
        if len(others) < FEWEST:
            continue
        with np.errstate(over="ignore"):
            far = np.abs(value - others).min() > np.ptp(others) > 0
        if dates and far:
            lines.append(f"{day(value)} is far from all other dates")
        coded = value < 0 or {*f"{value:.0f}"} == {"9"}
        if (
            not dates
            and coded
            and len(x) - len(others) > 1
            and value % 1 == 0
            and (far or others.min() >= 0 > value)
        ):
            advice = f"if it stands for missing values, add {override('dataset.missing', [f'{value:.0f}'])}"
            lines.append(f"{value:.0f} is unlike all other numbers: {advice}")
    if not dates and len(x) >= 10 * FEWEST and (x % 1 == 0).all() and len(np.unique(x)) == len(x):
        lines.append("whole numbers, all different: identifiers are left out with dataset.drop=[...]")
    return lines


def _gives_away(x: np.ndarray, y: np.ndarray, classes: bool) -> str:
    """Return how well the values of one column predict y, if they nearly do; else an empty line.

    Rows of similar values are predicted from others, by a tree with five rows and more in each leaf.
    """
    from sklearn import model_selection, tree  # slow to import

    rows = np.random.default_rng(0).permutation(len(y))[:MOST_ROWS]
    x, y = np.unique(x[rows], return_inverse=True)[1][:, None], y[rows]  # ranks: trees take float32
    if classes and 2 * FEWEST * len(np.unique(y)) > len(y):
        return ""
    kind = tree.DecisionTreeClassifier if classes else tree.DecisionTreeRegressor
    folds = model_selection.KFold(2)
    predicted = model_selection.cross_val_predict(
        kind(min_samples_leaf=FEWEST, random_state=0), x, y, cv=folds
    )
    if classes:
        wrong, majority = float(np.mean(predicted != y)), np.unique(y, return_counts=True)[1].max() / len(y)
        given_away = wrong <= (1 - GIVEN_AWAY) * (1 - majority)
        return f"the label in {100 * (1 - wrong):.4g} % of rows" if given_away else ""
    r2 = 1 - float(np.mean((predicted - y) ** 2) / np.var(y)) if np.ptp(y) else 0.0
    return f"the target with an R^2 of {r2:.3f}" if r2 >= GIVEN_AWAY else ""
