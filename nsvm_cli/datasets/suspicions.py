"""What looks wrong in a table: columns that give the label away, and cells far from all others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float64

from nsvm_cli.config.overrides import override
from nsvm_cli.datasets.encoding import Dates, Numbers, TableEncoder, day

MOST_ROWS = 3000
"""The most rows in which one column is tried as the only feature."""

GIVEN_AWAY = 0.95
"""The least share of the errors of the majority, or of the mean, that a suspicious column avoids."""

FEWEST = 5
"""The fewest rows with similar cells."""


@np.errstate(over="ignore")
def suspicions(
    x: Float64[np.ndarray, "m n"], y: Float64[np.ndarray, " m"] | None, encoder: TableEncoder, classes: bool
) -> dict[str, list[str]]:
    """Return lines about the columns whose features are ``x``, and whose codes or targets are ``y``."""
    lines: dict[str, list[str]] = {}
    rows = np.random.default_rng(0).permutation(len(x))[:MOST_ROWS]
    for name, known, part in encoder.parts(x):
        few = part[rows, 0]
        if isinstance(known, Dates):
            lines[name] = [
                f"{day(value)} is far from all other dates" for value, _, far in _ends(part[:, 0]) if far
            ]
        elif isinstance(known, Numbers):
            lines[name] = _codes(np.ascontiguousarray(part[:, 0]))
        else:
            few = part[rows] @ np.arange(1.0, part.shape[1] + 1)
        if y is not None and len(y) >= 4 * FEWEST and (share := _gives_away(few, y[rows], classes)):
            lines[name] = [*lines.get(name, []), f"it alone predicts {share}: is it known beforehand?"]
    return lines


def _ends(x: np.ndarray) -> Iterator[tuple[float, float, bool]]:
    """Yield the least and the largest value, each with the least of the other values, and whether it is
    farther from these than they spread.
    """
    for value in (float(x.min()), float(x.max())):
        if np.count_nonzero(others := x != value) >= FEWEST:
            low, high = (
                float(x.min(where=others, initial=np.inf)),
                float(x.max(where=others, initial=-np.inf)),
            )
            yield value, low, min(abs(value - low), abs(value - high)) > high - low > 0


def _codes(x: np.ndarray) -> list[str]:
    """Return lines about numbers that may be codes of missing values, or identifiers.

    A number is taken for a code only if it is whole, repeated, and either negative, the only one, or as far
    from all others as -999 or 9999.
    """
    lines = []
    for value, low, far in _ends(x):
        alone = value < 0 <= low
        nines = value < 0 or {*f"{value:.0f}"} == {"9"}
        if (alone or (far and nines)) and value % 1 == 0 and (x == value).sum() > 1:
            advice = f"if it stands for missing values, add {override('dataset.missing', [f'{value:.0f}'])}"
            lines.append(f"{value:.0f} is unlike all other numbers: {advice}")
    wide = len(x) >= 10 * FEWEST and np.ptp(x) >= len(x) - 1  # to save time
    if wide and (x % 1 == 0).all() and len(np.unique(x)) == len(x):
        lines.append("whole numbers, all different: identifiers are left out with dataset.drop=[...]")
    return lines


def _gives_away(x: np.ndarray, y: np.ndarray, classes: bool) -> str:
    """Return how well the values of one column predict y, if they nearly do; else an empty line.

    Each half of the rows is predicted from the other: by the mean, or the most frequent class, of the rows
    with similar values, five and more.
    """
    known = np.unique(y)
    if classes and 2 * FEWEST * len(known) > len(y):
        return ""
    targets = (y[:, None] == known) * 1.0 if classes else y[:, None]
    predicted, first = np.empty_like(targets), np.arange(len(y)) % 2 == 0
    for train in (first, ~first):
        group = np.searchsorted(np.unique(np.sort(x[train])[::FEWEST])[1:], x, "right")
        members = (group[train, None] == np.arange(group.max() + 1)).T * 1.0
        means = members @ targets[train] / np.maximum(members.sum(1), 1)[:, None]
        predicted[~train] = means[group[~train]]
    if classes:
        wrong = float(np.mean(known[predicted.argmax(1)] != y))
        given_away = wrong <= (1 - GIVEN_AWAY) * (1 - targets.mean(0).max())
        return f"the label in {100 * (1 - wrong):.4g} % of rows" if given_away else ""
    r2 = 1 - float(np.mean((predicted[:, 0] - y) ** 2) / np.var(y)) if np.ptp(y) else 0.0
    return f"the target with an R^2 of {r2:.3f}" if r2 >= GIVEN_AWAY else ""
