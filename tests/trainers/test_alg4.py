"""The numbers of steps of both parts of Algorithm 4, and the mean of theta at the end of Part 1."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nsvm_cli.compose.composition import compose_settings
from nsvm_cli.models.composed_kernels import learnt
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.trainers import build_trainer
from nsvm_cli.trainers.alg4 import Alg4
from tests.conftest import MakeSmall, parameters
from tests.small_runs import small_settings


@pytest.mark.parametrize(
    ("words", "part_1", "total"),
    [
        ("", 4200, 4200 + 33500),
        ("dataset=mnist", 400, 400 + 35000),
        ("algorithm.steps=500", 56, 500),
        ("algorithm.solver_steps=1000", 4200, 4200 + 1000),
        ("algorithm.steps=500 algorithm.solver_steps=1000", 500, 500 + 1000),
        ("algorithm.solver=svc algorithm.steps=500", 500, 600),
        ("algorithm.split=[1,3] algorithm.steps=400", 100, 400),
        ("algorithm.split=[20,30]", 20, 20 + 30),
        ("algorithm.steps=1", 0, 1),
    ],
)
def test_steps_is_the_whole_budget_unless_solver_steps_is_given_too(
    words: str, part_1: int, total: int
) -> None:
    trainer = build_trainer(compose_settings(words.split())["algorithm"])
    assert (trainer.last_theta_step, trainer.total) == (part_1, total)


@pytest.mark.parametrize(
    ("name", "settings", "m", "theta_steps", "total"),
    [
        ("alg4", {"solver_steps": 50}, 1000, 100, 150),
        ("alg4", {"solver_steps": 50}, 40, 50, 100),
        ("alg4", {"solver": "svc"}, 40, 50, 150),
        ("alg4", {"solver_steps": 50}, 4, 20, 70),
        ("alg3", {}, 40, 50, 50),
        ("cross_entropy", {}, 1, 20, 20),
    ],
)
def test_epochs_limit_the_theta_steps_and_their_batches(
    name: str, settings: dict[str, Any], m: int, theta_steps: int, total: int
) -> None:
    section = {"name": name, "steps": 100, "batch_size": 16, **settings}
    trainer = build_trainer({**section, "epochs": 20}).for_samples(m)
    assert (trainer.last_theta_step, trainer.total, trainer.k) == (theta_steps, total, min(16, m))
    unlimited = build_trainer(section).for_samples(m)
    assert (unlimited.last_theta_step, unlimited.k) == (100, min(16, m))


@pytest.mark.parametrize(
    ("at", "steps"),
    [(40, 30), (40, 10), (20, 10)],
    ids=["longer, in Part 2", "shorter, in Part 2", "shorter, in Part 1"],
)
def test_part_1_keeps_the_steps_that_it_has_taken(at: int, steps: int, small: MakeSmall) -> None:
    s, first = small(1), Alg4(20, 4, solver_steps=50)
    state = first.start(s.problem, s.theta())
    first.advance(s.problem, state, at)
    saved = state.state_dict()
    assert Alg4(20, 4, solver_steps=80).restore(s.problem, s.theta(), saved).t == at
    with pytest.raises(ValueError, match=rf"as in the checkpoint, got {steps}; set algorithm\.steps=20, and"):
        Alg4(steps, 4, solver_steps=50).restore(s.problem, s.theta(), saved)


@pytest.mark.parametrize(("m", "solver"), [(100_000, "svc"), (100_001, "nystroem")])
def test_a_solver_of_null_suits_the_number_of_samples(m: int, solver: str) -> None:
    assert Alg4(solver=None).for_samples(m) == Alg4(solver=solver).for_samples(m)
    assert Alg4(solver="pegasos").for_samples(m) == Alg4()


SETTINGS = {"name": "alg4", "steps": 20, "batch_size": 4, "solver_steps": 30}


@pytest.mark.parametrize(("share", "first"), [(0.25, 16), (1.0, 1), (0.01, 20)])
def test_the_last_theta_becomes_the_mean(share: float, first: int, small: MakeSmall) -> None:
    s = small(1)
    plain, averaged = (build_trainer({**SETTINGS, "average": a}) for a in (None, share))
    F, G = s.theta(), s.theta()
    state, twin = plain.start(s.problem, F), averaged.start(s.problem, G)
    thetas = []
    for t in range(1, 21):
        plain.advance(s.problem, state, t)
        thetas.append(parameters(F.network).clone())
        averaged.advance(s.problem, twin, t)
        if t < 20:
            assert torch.equal(parameters(G.network), thetas[-1]), "averaging changed theta too early"
    expected = torch.stack(thetas[first - 1 :]).mean(0)
    torch.testing.assert_close(parameters(G.network), expected, rtol=0, atol=1e-14)


def test_the_kernels_part_of_theta_is_averaged_too() -> None:
    last = []
    for share in (None, 1.0):
        algorithm = {"name": "alg4", "steps": 20, "solver_steps": 30, "average": share}
        kernel = {"name": "rbf", "gamma": 0.5, "learn": ["gamma"]}
        e = prepare(small_settings(algorithm=algorithm, kernel=kernel, dtype="float64"))
        state, rhos = e.trainer.start(e.problem, e.F), []
        for t in range(1, 21):
            e.trainer.advance(e.problem, state, t)
            rhos.append(learnt(e.problem.K)["gamma"].item())
        last.append(rhos)
    plain, averaged = last
    assert averaged[:-1] == plain[:-1]
    assert averaged[-1] == pytest.approx(sum(plain) / 20, rel=1e-12)
    assert plain[-1] != plain[0]


def test_the_mean_of_another_network_is_refused(small: MakeSmall) -> None:
    s, trainer = small(1), build_trainer({**SETTINGS, "average": 0.5})
    saved = trainer.start(s.problem, s.theta()).state_dict()
    del saved["mean"]["0.layers.0.weight"]
    with pytest.raises(ValueError, match=r"expected the keys 0\.layers"):
        trainer.restore(s.problem, s.theta(), saved)
