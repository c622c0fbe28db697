"""Several classes, real targets, other losses and mini-batches, compared with ``tests/reference.py``."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sklearn.kernel_ridge import KernelRidge

from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.losses import (
    Binary,
    CrammerSinger,
    EpsilonInsensitive,
    Hinge,
    Logistic,
    Loss,
    OneVsRest,
    Residual,
    SmoothedHinge,
    Squared,
    SquaredHinge,
)
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.trainers import Trainer
from nsvm_cli.trainers.alg1 import Alg1
from nsvm_cli.trainers.alg2 import Alg2
from nsvm_cli.trainers.alg3 import Alg3
from nsvm_cli.trainers.alg4 import Alg4
from nsvm_cli.trainers.pegasos import Pegasos
from tests import reference
from tests.conftest import LOSSES, MakeSmall, Small, parameters, train
from tests.trainers.test_against_paper import KINDS, NAMES, Transcribed, assert_same_theta

PROBLEMS = [
    (Binary(SmoothedHinge()), 3, 0.1),
    (CrammerSinger(Hinge()), 1, 0.1),
    (CrammerSinger(Hinge()), 3, 0.1),
    (CrammerSinger(SquaredHinge()), 3, 0.1),
    (OneVsRest(Hinge()), 3, 0.1),
    (OneVsRest(Logistic()), 1, 0.1),
    (Residual(EpsilonInsensitive(reference.EPSILON)), 1, 0.1),
    (Residual(EpsilonInsensitive(reference.EPSILON)), 3, 0.1),
    (Residual(Squared()), 3, 0.1),
]
"""Losses, batch sizes, and values of lambda."""

T, LR = 7, 0.05


def name(value: object) -> str:
    if isinstance(value, Loss):
        return f"{KINDS[type(value)]} {NAMES[type(value.l)]}"
    return str(value) if isinstance(value, int | float | str | None) else type(value).__name__


problems = pytest.mark.parametrize(("loss", "k", "lam"), PROBLEMS, ids=name)


def assert_same(
    s: Small,
    literal: Transcribed,
    F: FeatureMap,
    g: Expansion,
    terms: list[tuple[torch.Tensor, torch.Tensor]],
    moved: bool = True,
) -> None:
    """Check that theta and g equal the reference, and whether theta has moved."""
    assert_same_theta(F, literal)
    assert ((parameters(F.network) - parameters(s.network)).abs().max() > 1e-3) == moved
    z = literal.features()
    expected = torch.stack([literal.problem.f(terms, z_i, T + 1) for z_i in z])
    torch.testing.assert_close(g(s.problem.K, torch.stack(z)), expected, rtol=1e-9, atol=1e-9)


def compare(
    s: Small, literal: Transcribed, trainer: Trainer[Any], alpha: torch.Tensor, error: float = 1e-10
) -> None:
    """Train, and check that alpha, theta and g equal the reference."""
    state, g = train(trainer, s.problem, F := s.theta(LR))
    torch.testing.assert_close(torch.from_numpy(state.coefficients.alpha), alpha, rtol=0, atol=error)
    assert_same(s, literal, F, g, list(zip(alpha, literal.features(), strict=True)), trainer.moves_theta)


@problems
def test_algorithm_1(loss: Loss, k: int, lam: float, small: MakeSmall) -> None:
    s = small(0, m=12, loss=loss)
    literal = Transcribed(s, LR, k, lam)
    terms = reference.mini_batch_algorithm_1(literal.problem, literal.optimizer, T)
    _, g = train(Alg1(T, lam, k), s.problem, F := s.theta(LR))
    torch.testing.assert_close(g.alpha, torch.stack([alpha_s for alpha_s, _ in terms]))
    torch.testing.assert_close(g.z, torch.stack([z_s for _, z_s in terms]), rtol=0, atol=1e-10)
    assert_same(s, literal, F, g, terms)


@problems
def test_algorithm_2(loss: Loss, k: int, lam: float, small: MakeSmall) -> None:
    """The same draws are also used to check Algorithm 0."""
    s = small(0, m=12, loss=loss)
    literal = Transcribed(s, LR, k, lam)
    expected = reference.mini_batch_algorithm_0(literal.problem, literal.features(), T)
    compare(s, literal, Pegasos(T, lam, k), expected, 1e-12)
    expected = reference.mini_batch_algorithm_2(literal.problem, literal.optimizer, T)
    compare(s, literal, Alg2(T, lam, k), expected)


@pytest.mark.parametrize(
    ("loss", "centred"),
    [
        (Binary(Logistic()), None),
        (Binary(Hinge()), True),
        (CrammerSinger(Hinge()), False),
        (OneVsRest(Hinge()), None),
        (Residual(EpsilonInsensitive(reference.EPSILON)), None),
        (Residual(EpsilonInsensitive(reference.EPSILON)), False),
        (OneVsRest(SquaredHinge()), None),
    ],
    ids=name,
)
def test_algorithm_3(loss: Loss, centred: bool | None, small: MakeSmall) -> None:
    """By default, the alignment is centred unless there are two classes."""
    s, k, lam = small(0, m=12, loss=loss), 5, 0.1
    literal = Transcribed(s, LR, k, lam)
    chosen = not isinstance(loss, Binary) if centred is None else centred
    expected = reference.general_algorithm_3(literal.problem, literal.optimizer, T, 0.7, chosen)
    compare(s, literal, Alg3(T, lam, 0.7, k, centred), expected)


@pytest.mark.parametrize(
    ("kind", "L", "centred"),
    [
        ("two classes", "squared", True),
        ("three classes", "squared", None),
        ("three classes", "linear", False),
        ("real targets", "linear", None),
    ],
)
def test_algorithm_4(kind: str, L: str, centred: bool | None, small: MakeSmall) -> None:
    s, k, lam = small(0, m=12, loss=LOSSES[kind]), 5, 0.1
    literal = Transcribed(s, LR, k, lam)
    formula = {"squared": lambda b, c: (b - c) ** 2, "linear": lambda b, c: -b * c}[L]
    args = (literal.problem, literal.optimizer, T, formula, centred is not False)
    reference.general_algorithm_4_part_1(*args)
    trainer = Alg4(T, k, L, solver_steps=T, lam=lam, centred=centred, solver_batch_size=3)
    _, g = train(trainer, s.problem, F := s.theta(LR))
    _, expected = train(Pegasos(T, lam, 3), s.problem, F)
    assert torch.equal(g.alpha, expected.alpha)
    assert_same(s, literal, F, g, list(zip(g.alpha, g.z, strict=True)))


@pytest.mark.parametrize(
    ("trainer", "loss"),
    [
        *((Pegasos(80, batch_size=8), CrammerSinger(SquaredHinge())), (Alg1(80), Residual(Squared()))),
        *((Alg2(80), CrammerSinger(SquaredHinge())), (Alg3(80), Residual(Squared()))),
    ],
    ids=name,
)
def test_squared_losses_do_not_overshoot(trainer: Trainer[Any], loss: Loss, small: MakeSmall) -> None:
    """With the default lambda, explicit steps would at first be thousands of times too long, and overflow."""
    s = small(1, loss=loss)
    _, g = train(trainer, s.problem, F := s.theta(1e-5))
    assert 0.1 < g(s.problem.K, F(s.problem.x)).abs().max() < 2 * max(1.0, float(s.problem.y.abs().max()))


def test_the_squared_loss_leads_to_ridge_regression(small: MakeSmall) -> None:
    """lambda/2 ||f||^2 + 1/m sum_i (y_i - f(x_i))^2 / 2 has the optimum alpha = (K + lambda m I)^-1 y."""
    s, lam = small(1, m=60, loss=Residual(Squared())), 0.1
    _, g = train(Pegasos(1500, lam, 10), s.problem, F := s.theta(0), engine="torch")
    z, y = F(s.problem.x), s.problem.y
    ridge = KernelRidge(alpha=lam * 60, kernel="precomputed").fit(K := s.problem.K(z, z), y)
    ours, theirs = g(s.problem.K, z), torch.from_numpy(ridge.predict(K))
    assert (ours - theirs).square().mean().sqrt() < 0.02 * y.std()
