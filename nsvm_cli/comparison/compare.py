"""Runs compared: means over seeds, paired tests and ranks of the settings that were tried."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from typing import Any

import numpy as np
from scipy.stats import friedmanchisquare, rankdata, studentized_range

from nsvm_cli.comparison.cells import Cell
from nsvm_cli.comparison.intervals import LEVEL, Estimate, holm
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.words import sign_of


@dataclass(frozen=True)
class Comparison:
    """One candidate on one data set, next to the others.

    Attributes:
        minus: the mean score minus the reference's, over the seeds that both have; None for the reference.
        p: the p-value of the paired t-test with the reference, adjusted for all tests on the data set: those
            of all pairs, unless the reference was named before the scores were known; NaN without a test.
        rank: 1 for the best mean score on the data set, ties share the mean of their ranks; NaN
            without a score.
    """

    cell: Cell
    minus: Estimate | None
    p: float
    rank: float


def compare(found: Sequence[Cell], against: str | None = None) -> list[Comparison]:
    """Compare the candidates of each data set, the best first, with the best or the one named ``against``.

    Raises:
        InputError: there is no such candidate.
    """
    names = sorted({cell.candidate for cell in found})
    if against is not None and against not in names:
        raise InputError(f"--against {against}: there is no such candidate; {did_you_mean(against, names)}")
    groups = groupby(found, lambda cell: cell.dataset)
    return [row for _, group in groups for row in _compared([*group], against)]


def _compared(group: Sequence[Cell], against: str | None) -> list[Comparison]:
    ranks = rankdata([-sign_of(cell.figure) * cell.score.mean for cell in group], nan_policy="omit")
    order = np.argsort(ranks, kind="stable")  # those without a score, whose rank is NaN, last
    ordered = [group[n] for n in order]
    reference = next((cell for cell in ordered if cell.candidate == against), None if against else ordered[0])
    others = [cell for cell in ordered if cell is not reference]
    minus, p = {}, {}
    if reference is not None:
        minus = {cell.candidate: cell.minus(reference) for cell in others}
        p = _p_values([reference, *others], named=against is not None)
    return [
        Comparison(cell, minus.get(cell.candidate), p.get(cell.candidate, math.nan), float(rank))
        for cell, rank in zip(ordered, ranks[order], strict=True)
    ]


def _p_values(group: Sequence[Cell], named: bool) -> dict[str, float]:
    """Return the adjusted p-values of the tests with the reference, which is the first.

    The best is the one that chance has favoured most. Some of k equal candidates would seem worse than it
    far too often if the k - 1 tests with it were all that counted; so unless the reference was named, the
    p-values are adjusted for all k (k - 1) / 2 pairs. They then hold for whichever pairs the scores choose.
    """
    others = group[1:]
    pairs = [(group[0], other) for other in others] if named else [*combinations(group, 2)]
    adjusted = holm([one.minus(other).p for one, other in pairs])
    return {other.candidate: p for other, p in zip(others, adjusted, strict=False)}


FEWEST_BLOCKS = 3
"""Candidates, and data sets or seeds, that Friedman's test needs."""


@dataclass(frozen=True)
class Ranking:
    """The mean ranks of the candidates over several data sets, or over the seeds of one.

    Attributes:
        ranks: the mean rank of each candidate, the best first.
        over: what the ranks are means over, such as ``5 data sets``.
        p: the p-value of Friedman's test that all candidates have the same mean rank.
        critical: the difference of mean ranks from which on two candidates differ at the 5 % level (Nemenyi's
            test; Demsar, Statistical comparisons of classifiers over multiple data sets, 2006).
    """

    ranks: Mapping[str, float]
    over: str
    p: float
    critical: float

    @property
    def test(self) -> str:
        """The outcome of Friedman's test."""
        p = "undefined, as all are equal" if math.isnan(self.p) else f"p = {self.p:.3g}"
        return f"Friedman's test of equal mean ranks: {p}"


def ranking(found: Sequence[Cell]) -> Ranking | None:
    """Rank the candidates over the data sets that all were tried on, or over the seeds of a single data set.

    Those with scores on fewer than three have no rank. None for fewer than three candidates, or fewer than
    three data sets or seeds that all have, or if these are not independent: see ``shared_samples``.
    """
    import pandas as pd  # slow to import, and needed only here

    found = [cell for cell in found if cell.scores]
    if shared_samples(found):
        return None
    over_seeds, scores = len({cell.dataset for cell in found}) == 1, defaultdict[str, dict[Any, float]](dict)
    for cell in found:
        scores[cell.candidate] |= cell.scores if over_seeds else {cell.dataset: cell.score.mean}
    table = pd.DataFrame(scores).dropna(axis="columns", thresh=FEWEST_BLOCKS).dropna()
    n, k = table.shape
    if k < FEWEST_BLOCKS or n < FEWEST_BLOCKS:
        return None
    ranks = table.rank(axis=1, ascending=sign_of(found[0].figure) < 0).mean().sort_values(kind="stable")
    with np.errstate(invalid="ignore"):  # NaN if all are equal
        p = float(friedmanchisquare(*table.to_numpy().T).pvalue)
    q = float(studentized_range.ppf(LEVEL, k, np.inf)) / math.sqrt(2)
    critical = q * math.sqrt(k * (k + 1) / (6 * n))
    over = f"{n} {'seeds' if over_seeds else 'data sets'}"
    return Ranking({str(name): rank for name, rank in ranks.items()}, over, p, critical)


def shared_samples(found: Sequence[Cell]) -> bool:
    """Return whether candidates are ranked in blocks that are not independent, as Friedman's test assumes.

    Seeds that split the same samples are not: a candidate that these samples happen to suit is ranked high
    with every seed. Nor are data sets with a source in common, such as one with several sizes of its
    validation set, or several choices of its classes.
    """
    sources: dict[str, set[str]] = {}
    for cell in found:
        sources.setdefault(cell.dataset, set()).update(cell.sources)
    if len(sources) == 1:
        return any(cell.overlap for cell in found)
    return sum(map(len, sources.values())) > len(set().union(*sources.values()))
