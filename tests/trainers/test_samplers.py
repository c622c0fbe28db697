"""Samplers: distributions of draws, equal draws by all engines, and user-defined samplers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from nsvm_cli.errors import InputError
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.tasks import Regression, task_for
from nsvm_cli.trainers import Problem
from nsvm_cli.trainers.pegasos import Pegasos
from nsvm_cli.trainers.samplers import SAMPLERS, Uniform
from tests.conftest import MakeSmall, train
from tests.small_runs import small_settings

BALANCED = {"name": "balanced"}


def rare(small: MakeSmall, classes: int) -> Problem:
    """Return a problem of 100 samples, in which the last class has 5 samples."""
    problem = small(3, m=100).problem
    index = np.minimum(np.arange(100) // (95 // (classes - 1)), classes - 2)
    index[-5:] = classes - 1
    y = problem.y.new_tensor(2 * index - 1 if classes == 2 else index)
    names = [*"abc"[:classes]]
    return replace(problem, y=y, task=task_for(names), draws=BALANCED)


@pytest.mark.parametrize("classes", [2, 3])
def test_balanced_draws_every_class_equally_often(classes: int, small: MakeSmall) -> None:
    problem = rare(small, classes)
    drawn = problem.sampler().rest_of_block(0)[:, 0]
    counts = np.unique(problem.host_y[drawn], return_counts=True)[1]
    assert stats.chisquare(counts).pvalue > 1e-4
    within = np.bincount(drawn, minlength=100)[-5:]
    assert stats.chisquare(within).pvalue > 1e-4


def test_balanced_batches_have_no_repeats_and_more_of_the_rare_class(small: MakeSmall) -> None:
    problem = rare(small, 2)
    draw = problem.sampler(8)
    batches = [draw(t) for t in range(1, 200)]
    assert all(len({*batch.tolist()}) == 8 for batch in batches)
    share = np.mean(problem.host_y[np.concatenate(batches)] > 0)
    assert 0.2 < share < 0.5  # the class has a share of 0.05, and at most 5 of the 8 samples of a batch
    assert sorted(problem.sampler(100)(1).tolist()) == [*range(100)]


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("algorithm", ["pegasos", "alg1", "alg2", "alg3", "alg4"])
def test_every_engine_draws_the_same(algorithm: str) -> None:
    """The terms of g belong to drawn samples, so equal terms imply equal draws."""
    steps: dict[str, Any] = {"steps": 20} | ({"solver_steps": 20} if algorithm == "alg4" else {})
    trained = []
    for engine in ("literal", "torch", "numba"):
        settings = small_settings(
            algorithm={"name": algorithm, **steps}, sampler=BALANCED, engine=engine, dtype="float64"
        )
        trained.append(prepare(settings).train())
    assert len({len(model.expansion.alpha) for model in trained}) == 1
    for model in trained[1:]:
        np.testing.assert_allclose(model.expansion.alpha, trained[0].expansion.alpha, rtol=1e-6)
        np.testing.assert_allclose(model.expansion.z, trained[0].expansion.z, rtol=1e-6, atol=1e-6)


class Alternating(Uniform):
    """Draws the samples in order."""

    def draw(self, rng: np.random.Generator, steps: int) -> np.ndarray:
        return np.arange(steps * self.k).reshape(steps, self.k) % self.m


class Beyond(Uniform):
    def draw(self, rng: np.random.Generator, steps: int) -> np.ndarray:
        return np.full((steps, self.k), self.m)


class Twice(Uniform):
    def draw(self, rng: np.random.Generator, steps: int) -> np.ndarray:
        return np.zeros((steps, self.k), np.int64)


class Unnormalised(Uniform):
    def __init__(self, problem: Problem, k: int) -> None:
        super().__init__(problem, k)
        self.p = np.ones(self.m)


def test_one_of_ones_own(small: MakeSmall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SAMPLERS, "alternating", Alternating)
    problem = replace(small(3, m=30).problem, draws={"name": "alternating"})
    assert [problem.sampler()(t).item() for t in (1, 2, 31)] == [1, 2, 1]
    state, _ = train(Pegasos(12), problem, small(3, m=30).theta())
    assert {*np.flatnonzero(state.coefficients.alpha)} <= {*range(1, 13)}
    for name, sampler, says in (
        ("beyond", Beyond, r"sampler=beyond: expected draws of shape \(1024, 2\), from 0 to 29"),
        ("twice", Twice, "sampler=twice: expected different samples in each batch, got a sample twice"),
        ("unnormalised", Unnormalised, "sampler=unnormalised: [Pp]robabilities do not sum to 1"),
    ):
        monkeypatch.setitem(SAMPLERS, name, sampler)
        with pytest.raises(InputError, match=says):
            replace(problem, draws={"name": name}).sampler(2)


def test_what_it_does_not_suit(small: MakeSmall) -> None:
    problem = replace(small(3).problem, task=Regression(), draws=BALANCED)
    with pytest.raises(InputError, match="sampler=balanced requires task=classification"):
        problem.sampler()
    with pytest.raises(InputError, match="sampler=balanced: algorithm=svc uses all training samples; remove"):
        prepare(small_settings(algorithm={"name": "svc"}, sampler=BALANCED))
    with pytest.raises(InputError, match="there is no sampler 'balanc'; did you mean balanced"):
        prepare(small_settings(sampler={"name": "balanc"}))
