"""Means and intervals of a reproduction, and what its table says."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from nsvm_cli.studies.figure import draw_results
from nsvm_cli.studies.reproduce import Row
from nsvm_cli.studies.statistics import estimate, markdown, summarise


def row(cell: str, method: str, seed: int, errors: int, samples: int = 740) -> Row:
    return Row(
        cell=cell,
        dataset=cell.partition("_")[0] if "_alg" in cell else cell,
        method=method,
        seed=seed,
        accuracy=1 - errors / samples,
        errors=errors,
        samples=samples,
        overlap=1 / 9 if cell.startswith("ringnorm") else 0.0,
        seconds=2.0 + seed,
        support_vectors=100,
        theta_steps=7,
    )


ROWS = [row("ringnorm_alg1", "nsvm", seed, errors) for seed, errors in enumerate([10, 14, 12])]
ROWS += [row("ringnorm_alg1", "network", seed, 20 + seed) for seed in range(3)]
ROWS += [row("ringnorm", "svc", seed, errors) for seed, errors in enumerate([9, 13, 11])]
ROWS += [row("mnist_alg3", "nsvm", seed, errors, 2115) for seed, errors in enumerate([0, 0, 1])]
ROWS += [row("mnist", "svc", seed, 1, 2115) for seed in range(3)]


def test_the_interval_is_students() -> None:
    values = [97.1, 98.2, 98.0, 97.7]
    e = estimate(values)
    assert (e.mean, e.std) == pytest.approx((np.mean(values), np.std(values, ddof=1)))
    theirs = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (e.low, e.high) == pytest.approx((theirs.low, theirs.high))
    apart = estimate(values, overlap=0.25)
    assert apart.high - apart.mean == pytest.approx(2**0.5 * (e.high - e.mean)), "1/4 + 1/4 for 1/4"
    alone = estimate([98.0])
    assert alone.mean == 98.0
    assert math.isnan(alone.std)
    assert math.isnan(alone.low)


def test_accuracy_for_ringnorm_and_errors_for_images() -> None:
    by = {(s.cell, s.method): s for s in summarise(ROWS)}
    assert by["ringnorm_alg1", "nsvm"].score.mean == pytest.approx(100 * (1 - 12 / 740))
    assert by["mnist_alg3", "nsvm"].scores == [0, 0, 1]
    assert by["mnist_alg3", "nsvm"].unit == "errors of 2115"
    assert by["ringnorm_alg1", "nsvm"].seconds == 3.0


def test_baselines_are_compared_seed_by_seed() -> None:
    by = {(s.cell, s.method): s for s in summarise(ROWS)}
    assert "share one test set" in markdown(summarise(ROWS), full=True)
    gain = by["ringnorm_alg1", "svc"].gain
    assert (gain.mean, gain.std) == pytest.approx((-100 / 740, 0), abs=1e-9), "one error more, every time"
    assert by["mnist_alg3", "svc"].gain.mean == pytest.approx(-2 / 3)


def test_the_table_says_it_all() -> None:
    text = markdown(summarise(ROWS), full=True)
    assert "| `ringnorm_alg1` | 98.38 ± 0.27 | [97.60, 99.15] | 98.1 | 3.0 | 100 | 97.16 ± 0.14 |" in text
    assert "| `mnist_alg3` | 0.33 ± 0.58 | [-1.10, 1.77] | 0 | 3.0 | 100 | 1.00 ± 0.00 |" in text
    assert "paper" not in markdown(summarise(ROWS), full=False)
    for table in (block.splitlines() for block in text.split("\n\n") if block.startswith("|")):
        assert len({line.count("|") for line in table}) == 1


def test_the_figure_is_a_picture_even_of_one_seed(tmp_path: Path) -> None:
    for rows in (ROWS, [r for r in ROWS if r.seed == 0]):
        draw_results(summarise(rows), True, tmp_path / "figure.png")
        assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
