"""Random draws: uniform, different for each stream, and determined by the seed and t alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from nsvm_cli.randomness import BLOCK, Sampler, Stream, derived_seed, generator


@pytest.mark.parametrize("k", [1, 4])
def test_a_draw_depends_on_the_seed_and_t_alone(k: int) -> None:
    in_order, backwards = Sampler(7, 50, k), Sampler(7, 50, k)
    ts = [1, 2, 3, BLOCK - 1, BLOCK, 5 * BLOCK + 3]
    drawn = {t: in_order(t).tolist() for t in ts}
    assert drawn == {t: backwards(t).tolist() for t in reversed(ts)}
    other = Sampler(8, 50, k)
    assert [other(t).tolist() for t in ts] != [drawn[t] for t in ts]
    first, second = (in_order.rest_of_block(block * BLOCK) for block in (1, 2))
    assert first.tolist() != second.tolist()


@pytest.mark.parametrize(("m", "k"), [(10, 1), (10, 3), (5, 5)])
def test_uniform_without_replacement(m: int, k: int) -> None:
    sampler, draws = Sampler(0, m, k), 4000
    batches = [sampler(t).tolist() for t in range(draws)]
    assert all(len(set(batch)) == k for batch in batches)
    counts = np.bincount(np.concatenate(batches), minlength=m)
    assert counts.sum() == draws * k
    if k < m:
        assert stats.chisquare(counts).pvalue > 1e-4


def test_subsets_are_uniform() -> None:
    sampler = Sampler(0, 5, 2)
    pairs = [tuple(sorted(sampler(t).tolist())) for t in range(5000)]
    _, counts = np.unique(pairs, axis=0, return_counts=True)
    assert len(counts) == 10
    assert stats.chisquare(counts).pvalue > 1e-4


def test_streams_of_one_seed_differ() -> None:
    assert len({derived_seed(3, stream) for stream in Stream}) == len(Stream)
    assert generator(3, Stream.DATA).random() != generator(3, Stream.DATA, 1).random()
