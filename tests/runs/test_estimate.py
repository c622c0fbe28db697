"""Estimates of training time: runs that are tried to their end, and extrapolation for longer runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.runs import estimate as module
from nsvm_cli.runs.estimate import estimate, extrapolated, extrapolated_by_power_law
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.runs.loop import run
from nsvm_cli.trainers import Problem
from nsvm_cli.trainers.direct import Majority, Trees
from tests.small_runs import small_settings

SLOW = pytest.mark.thorough  # their imports take long
HEAD = {"network": {"name": "mlp", "widths": [10], "head": True}, "kernel": {"name": "linear"}}


@pytest.mark.parametrize(
    ("name", "options", "parts"),
    [
        *((name, {}, {}) for name in ("alg1", "alg2", "alg3", "pegasos")),
        ("alg4", {"solver_steps": 30}, {}),
        pytest.param("alg4", {"solver": "svc"}, {}, marks=SLOW),
        pytest.param("cross_entropy", {}, HEAD, marks=SLOW),
    ],
)
def test_a_run_that_was_tried_to_its_end(
    name: str, options: dict[str, Any], parts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SECONDS", 60)
    settings = small_settings(engine="torch", algorithm={"name": name, "steps": 40, **options}, **parts)
    tried = estimate(prepare(settings))
    e = prepare(settings)
    state = run(e.trainer, e.problem, e.F, log_every=40)
    assert all(part.tried == part.steps for part in tried)
    expansion = e.trainer.finish(e.problem, state)
    assert tried[-1].support_vectors == (0 if name == "cross_entropy" else len(expansion.z))


def test_a_run_that_was_tried_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.02)
    long = {"name": "alg4", "steps": 10**6, "solver_steps": 10**8}
    part_1, part_2 = estimate(prepare(small_settings(engine="torch", algorithm=long)))
    assert part_1.steps == 10**6 > part_1.tried
    assert part_2.steps == 10**8 > part_2.tried
    assert part_1.seconds > 1


class Slow(Majority):
    """A method that seems to take 3 + n^2 / 1000 seconds for n samples."""

    growth = 2
    seconds: ClassVar[float] = 0

    def solve(self, problem: Problem, z: torch.Tensor) -> Expansion:
        Slow.seconds += 3 + len(z) ** 2 / 1000
        return super().solve(problem, z)


def test_a_solver_follows_its_law_of_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", lambda: Slow.seconds)
    e = prepare(small_settings(engine="torch", algorithm={"name": "majority"}))
    (part,) = estimate(replace(e, algorithm=Slow()))
    m = len(e.problem.y)
    assert part.tried < part.steps == m
    assert part.unit == "samples"
    np.testing.assert_allclose(part.seconds, 3 + m**2 / 1000)


@pytest.mark.parametrize("name", ["svc", "nystroem", "linear_svm", "logistic"])
def test_a_share_of_the_samples_has_the_same_C(name: str) -> None:
    kernel = "linear" if name in ("linear_svm", "logistic") else "rbf"
    e = prepare(small_settings(algorithm={"name": name, "lam": 1e-3}, kernel={"name": kernel}))
    m = len(e.problem.y)
    trainer, some = e.algorithm.share(e.problem, m // 4)
    assert len(some.x) == len(some.y) == m // 4
    assert trainer.lam * len(some.y) == pytest.approx(e.algorithm.lam * m)


def test_the_work_of_trees_is_iterations() -> None:
    e = prepare(small_settings(algorithm={"name": "trees", "max_iter": 7}))
    trainer, problem = e.algorithm.share(e.problem, 3)
    assert e.algorithm.size(len(e.problem.y)) == 7
    assert isinstance(trainer, Trees)
    assert trainer.max_iter == 3
    assert problem is e.problem


def test_powers_go_on() -> None:
    t, at = np.arange(2.0, 100), np.array([400.0, 900.0])
    np.testing.assert_allclose(extrapolated_by_power_law(t, 3 * np.sqrt(t), at), [60, 90])
    np.testing.assert_allclose(extrapolated_by_power_law(t, t, at), at)
    np.testing.assert_array_equal(extrapolated_by_power_law(t, np.full(98, 7.0), at), 7)
    np.testing.assert_array_equal(extrapolated_by_power_law(t, np.zeros(98), at), 0)


def test_powers_that_fall_go_on_falling() -> None:
    """log y is a parabola in log t up to its maximum at t = exp(10), and constant from there on."""
    t, at = np.geomspace(2, 1000, 500), np.array([2e3, 1e4, 1e5, 1e7])
    x, x_at = np.log(t), np.minimum(np.log(at), 10)
    later = extrapolated_by_power_law(t, np.exp(x - x**2 / 20), at)
    np.testing.assert_allclose(later, np.exp(x_at - x_at**2 / 20), rtol=0.15)
    assert later[2] == later[3]


def test_the_cost_of_a_step_grows_with_the_support_vectors() -> None:
    """The points of the course are powers of 2, because the training loop doubles its chunks of steps."""
    t = 2.0 ** np.arange(1, 21)
    s = 10 * np.sqrt(t)
    seconds = 1e-4 * t + 1e-7 * 10 * t**1.5 / 1.5  # the integral of a + b s
    course = np.stack([t, seconds, s], 1)
    part = extrapolated(course[:14], steps=int(t[-1]))
    assert part.tried == 2**14
    np.testing.assert_allclose([part.seconds, part.support_vectors], [seconds[-1], s[-1]], rtol=0.05)
    assert extrapolated(course[:14], int(t[-1]), most=500).support_vectors == 500
    assert extrapolated(course, int(t[-1])).seconds == seconds[-1]
