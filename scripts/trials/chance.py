"""How often ``nsvm compare`` finds a difference between candidates that are equal, in simulated studies."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import numpy as np

from nsvm_cli.comparison.cells import Cell
from nsvm_cli.comparison.compare import compare, ranking
from nsvm_cli.comparison.records import RunRecord
from nsvm_cli.comparison.table import markdown_table

SAMPLES, TEST, FEATURES = 1000, 100, 3
LEVEL = 0.05
HEAD = ["errors", "candidates", "seeds", "p < 0.05", "and 0 in its interval", "Friedman", "Nemenyi"]
Study = Callable[[np.random.Generator, int, int], np.ndarray]
"""Draws the errors of candidates, a row each, with a number of seeds."""


def overlapping_splits(rng: np.random.Generator, candidates: int, seeds: int) -> np.ndarray:
    """Return the errors of candidates on random splits of one data set, a tenth for the test.

    Each candidate classifies by the nearer class mean, in features of its own that no other candidate has.
    All features are drawn from the same distribution: over all data sets the candidates are equal, but the
    samples of this one happen to suit some of them better, with every seed.
    """
    y = rng.choice([-1.0, 1.0], SAMPLES)
    x = rng.standard_normal((candidates, SAMPLES, FEATURES)) + 0.6 * y[:, None]
    errors = np.empty((candidates, seeds), dtype=np.int64)
    for seed in range(seeds):
        test, train = np.split(rng.permutation(SAMPLES), [TEST])
        means = [x[:, train[y[train] == label]].mean(1, keepdims=True) for label in (-1.0, 1.0)]
        middle, direction = (means[0] + means[1]) / 2, means[1] - means[0]
        decided = ((x[:, test] - middle) * direction).sum(-1)
        errors[:, seed] = (decided * y[test] <= 0).sum(-1)
    return errors


def own_samples(rng: np.random.Generator, candidates: int, seeds: int) -> np.ndarray:
    """Return the errors of candidates on generated data, of which each seed has its own."""
    return rng.binomial(TEST, 0.15, (candidates, seeds))


def rare_errors(rng: np.random.Generator, candidates: int, seeds: int) -> np.ndarray:
    """Return the errors of candidates that make one or two on their test set, if any."""
    return rng.poisson(1.0, (candidates, seeds))


STUDIES: list[tuple[str, Study, int, int]] = [
    *(("rare errors", rare_errors, 2, seeds) for seeds in (3, 5, 10)),
    *(("overlapping splits", overlapping_splits, 5, seeds) for seeds in (5, 10, 30)),
    *(("overlapping splits", overlapping_splits, k, 10) for k in (3, 10, 20)),
    *(("own samples", own_samples, 5, seeds) for seeds in (5, 10, 30)),
    *(("own samples", own_samples, k, 10) for k in (3, 10, 20)),
]


def chance(folder: Path, arguments: Namespace) -> list[str]:
    """Compare equal candidates; no more than 5 % of the studies may find a difference, beyond noise."""
    number, rows = arguments.studies, []
    most = LEVEL + 3 * (LEVEL / number) ** 0.5
    for kind, study, candidates, seeds in STUDIES:
        rng = np.random.default_rng(0)
        outcomes = [_found(study(rng, candidates, seeds), study is overlapping_splits) for _ in range(number)]
        rates = np.mean(outcomes, axis=0)
        rows.append([kind, str(candidates), str(seeds), *(f"{100 * rate:.1f}" for rate in rates)])
        if max(rates) > most or rates[1] > 0:
            raise SystemExit(f"{rows[-1]}: expected at most {100 * most:.1f} %, and no interval that holds 0")
    title = f"{number} studies each; how many of them find a difference between equal candidates, %"
    return [title, "", *markdown_table(HEAD, rows).splitlines()]


def _found(errors: np.ndarray, overlapping: bool) -> tuple[bool, bool, bool, bool]:
    """Return whether some p-value is below 5 %, with an interval that holds 0, and what the ranks say."""
    data = {
        "sha256": "",
        "official_split": False,
        "generated": not overlapping,
        "origins": [],
        "samples": {"train": SAMPLES - TEST, "test": TEST},
    }
    cells = []
    for name, row in enumerate(errors):
        figures = [{"test_errors": int(number), "data": data} for number in row]
        runs = {seed: RunRecord(Path(), "finished", figures=values) for seed, values in enumerate(figures)}
        cells.append(Cell("data", str(name), "test", runs))
    rows, ranks = compare(cells), ranking(cells)
    differ = [row.minus for row in rows if row.p < LEVEL and row.minus is not None]
    mean_ranks = [0.0] if ranks is None else [*ranks.ranks.values()]
    return (
        bool(differ),
        any(minus.low <= 0 <= minus.high for minus in differ),
        ranks is not None and ranks.p < LEVEL,
        ranks is not None and max(mean_ranks) - min(mean_ranks) >= ranks.critical,
    )
