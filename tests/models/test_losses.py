"""Losses: slopes, explicit and implicit steps, and the loss of each kind of task."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nsvm_cli.config.registry import build
from nsvm_cli.models.losses import (
    DEFAULTS,
    LOSSES,
    MULTICLASS,
    Binary,
    CrammerSinger,
    EpsilonInsensitive,
    Formula,
    Loss,
    OneVsRest,
    Residual,
    Squared,
    SquaredHinge,
    build_loss,
)
from nsvm_cli.tasks import BINARY, MulticlassClassification, Regression
from tests.reference import EPSILON, VALUES, increment

pytestmark = pytest.mark.usefixtures("shapes")

FORMULAS: dict[str, Formula] = {name: build(LOSSES, "loss", {"name": name}) for name in LOSSES}
FORMULAS["epsilon_insensitive"] = EpsilonInsensitive(EPSILON)
THREE = MulticlassClassification(("a", "b", "c"))
U = np.append(np.linspace(-4, 4, 801) + 1e-3, [-700, 700])  # avoid kinks, and include extreme values
RNG = np.random.default_rng(0)
G = 2 * RNG.standard_normal((40, 3))
G[0] = G[1, 1:] = 0  # ties
Y = RNG.integers(3, size=40).astype(np.float64)


@pytest.mark.parametrize("name", LOSSES)
def test_the_slope_is_the_derivative(name: str) -> None:
    """The slope is -l'(m) for a margin m, and l'(r) for a residual r."""
    l = FORMULAS[name]  # noqa: E741
    sign = -1 if l.kind == "classification" else 1
    u = torch.from_numpy(U).requires_grad_()
    torch.stack([VALUES[name](number) for number in u]).sum().backward()
    np.testing.assert_allclose(l.slope(U), sign * u.grad.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["hinge", "squared_hinge", "smoothed_hinge"])
def test_a_margin_of_exactly_1_is_no_violation(name: str) -> None:
    assert FORMULAS[name].slope(np.array([1.0, 1 - 1e-9])).astype(bool).tolist() == [False, True]


@pytest.mark.parametrize("name", LOSSES)
def test_the_step_is_minus_the_derivative_by_g(name: str) -> None:
    l = FORMULAS[name]  # noqa: E741
    if l.kind == "regression":
        cases: list[tuple[str, Loss, np.ndarray, np.ndarray]] = [("residual", Residual(l), G[:, 0], G[:, 1])]
    else:
        cases = [("binary", Binary(l), np.sign(G[:, 0]), G[:, 1])]
        cases += [("crammer_singer", CrammerSinger(l), Y, G), ("one_vs_rest", OneVsRest(l), Y, G)]
    for kind, loss, y, g in cases:
        step = loss.increments(y, g)
        theirs = [increment(kind, name, *pair) for pair in zip(*map(torch.from_numpy, (y, g)), strict=True)]
        np.testing.assert_allclose(step, torch.stack(theirs), atol=1e-12)


@pytest.mark.parametrize("kappa", [0.01, 1.0, 1e4])
@pytest.mark.parametrize(
    "loss",
    [Binary(SquaredHinge()), Residual(Squared()), CrammerSinger(SquaredHinge()), OneVsRest(SquaredHinge())],
    ids=lambda loss: type(loss).__name__,
)
def test_an_implicit_step_is_the_derivative_where_it_leads_to(loss: Loss, kappa: float) -> None:
    """Multiclass losses get two classes, so that the step does not change a sample's rival class."""
    y, g = (Y % 2, G[:, :2]) if loss.__class__ in (CrammerSinger, OneVsRest) else (np.sign(G[:, 0]), G[:, 1])
    a = (loss.increments(y, g).T / (1 + loss.curvature * kappa)).T
    np.testing.assert_allclose(loss.increments(y, g + kappa * a), a, rtol=1e-9, atol=1e-12)


def test_the_task_decides_what_is_built() -> None:
    for name, cls in MULTICLASS.items():
        assert type(build_loss({"name": "hinge"}, name, THREE)) is cls
        assert type(build_loss({"name": "hinge"}, name, BINARY)) is Binary
        assert type(build_loss({"name": "squared"}, name, Regression())) is Residual
    for task in (BINARY, THREE, Regression()):
        assert build_loss({"name": DEFAULTS[task.kind]}, "one_vs_rest", task)
