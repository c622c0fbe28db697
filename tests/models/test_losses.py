"""Losses: their derivatives, and what several classes make of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nsvm_cli.config.registry import build
from nsvm_cli.errors import InputError
from nsvm_cli.models.losses import (
    DEFAULTS,
    LOSSES,
    MULTICLASS,
    Binary,
    CrammerSinger,
    EpsilonInsensitive,
    Formula,
    Hinge,
    Loss,
    OneVsRest,
    Residual,
    Squared,
    SquaredHinge,
    build_loss,
)
from nsvm_cli.tasks import BINARY, MulticlassClassification, Regression
from tests.reference import EPSILON, VALUES, increment

FORMULAS: dict[str, Formula] = {name: build(LOSSES, "loss", {"name": name}) for name in LOSSES}
FORMULAS["epsilon_insensitive"] = EpsilonInsensitive(EPSILON)
THREE = MulticlassClassification(("a", "b", "c"))
U = np.linspace(-4, 4, 801) + 1e-3  # next to the kinks
RNG = np.random.default_rng(0)
G = 2 * RNG.standard_normal((40, 3))
Y = RNG.integers(3, size=40).astype(np.float64)


@pytest.mark.parametrize("name", LOSSES)
def test_the_slope_is_the_derivative(name: str) -> None:
    """-l'(m) of a margin, l'(r) of a residual."""
    l = FORMULAS[name]  # noqa: E741
    u = torch.from_numpy(U).requires_grad_()
    torch.stack([VALUES[name](number) for number in u]).sum().backward()
    assert u.grad is not None
    np.testing.assert_allclose(l.slope(U), sign(l) * u.grad.numpy(), atol=1e-12)


def sign(l: Formula) -> int:  # noqa: E741
    return -1 if l.kind == "classification" else 1


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_convex(name: str) -> None:
    l = FORMULAS[name]  # noqa: E741
    assert (sign(l) * np.diff(l.slope(U)) >= -1e-12).all()


LIMITS = {  # the slope, over -m or |r|, at large errors; and the least margin that costs nothing
    "hinge": (np.ones_like, 1.0),
    "squared_hinge": (lambda e: 2 * (1 + e), 1.0),
    "smoothed_hinge": (np.ones_like, 1.0),
    "logistic": (np.ones_like, np.inf),
    "epsilon_insensitive": (np.ones_like, None),
    "squared": (lambda e: e, None),
}


@pytest.mark.parametrize("name", LIMITS)
def test_what_a_slope_tends_to(name: str) -> None:
    l, (large, free) = FORMULAS[name], LIMITS[name]  # noqa: E741
    errors = np.array([50.0, 700.0, 1e4])
    np.testing.assert_allclose(l.slope(-errors), -sign(l) * large(errors), rtol=1e-12)
    if free is None:
        np.testing.assert_allclose(l.slope(errors), large(errors), rtol=1e-12)
    elif free == np.inf:
        assert (l.slope(np.array([-700.0, 0.0, 30.0])) > 0).all()
        assert l.slope(np.array([800.0]))[0] == 0, "without a warning"
    else:
        above = np.array([free, free + 1e-9, 100.0])
        assert (l.slope(above) == 0).all(), "a margin of exactly 1 is no violation"
        assert l.slope(np.array([free - 1e-9]))[0] > 0


@pytest.mark.parametrize("name", LOSSES)
def test_the_step_is_minus_the_derivative_by_g(name: str) -> None:
    """For numbers, and for each class of several."""
    l = FORMULAS[name]  # noqa: E741
    if l.kind == "regression":
        cases: list[tuple[str, Loss, np.ndarray, np.ndarray]] = [("residual", Residual(l), G[:, 0], G[:, 1])]
    else:
        cases = [("binary", Binary(l), np.sign(G[:, 0]), G[:, 1])]
        cases += [("crammer_singer", CrammerSinger(l), Y, G), ("one_vs_rest", OneVsRest(l), Y, G)]
    for kind, loss, y, g in cases:
        step = loss.step(y, g)
        theirs = [increment(kind, name, *pair) for pair in zip(*map(torch.from_numpy, (y, g)), strict=True)]
        np.testing.assert_allclose(step, torch.stack(theirs), atol=1e-12)
        assert loss.violated(y, g).tolist() == [bool(np.any(row != 0)) for row in step]


@pytest.mark.parametrize("kappa", [0.01, 1.0, 1e4])
@pytest.mark.parametrize(
    "loss",
    [Binary(SquaredHinge()), Residual(Squared()), CrammerSinger(SquaredHinge()), OneVsRest(SquaredHinge())],
    ids=lambda loss: type(loss).__name__,
)
def test_an_implicit_step_is_the_derivative_where_it_leads_to(loss: Loss, kappa: float) -> None:
    """With two classes, of which one is always the other's rival."""
    y, g = (Y % 2, G[:, :2]) if loss.__class__ in (CrammerSinger, OneVsRest) else (np.sign(G[:, 0]), G[:, 1])
    a = (loss.step(y, g).T / (1 + loss.curvature * kappa)).T
    np.testing.assert_allclose(loss.step(y, g + kappa * a), a, rtol=1e-9, atol=1e-12)


def test_crammer_singer_written_out() -> None:
    g, y = np.array([[0.5, 0.2, 0.4], [3.0, 0.0, 1.0], [0.0, 0.0, 0.0]]), np.array([0.0, 0.0, 0.0])
    assert CrammerSinger(Hinge()).step(y, g).tolist() == [[1, 0, -1], [0, 0, 0], [1, -1, 0]]
    assert CrammerSinger(SquaredHinge()).step(y[:1], g[:1])[0].tolist() == pytest.approx([1.8, 0, -1.8])


def test_one_versus_rest_written_out() -> None:
    g, y = np.array([[2.0, 0.5, -3.0]]), np.array([0.0])
    assert OneVsRest(Hinge()).step(y, g).tolist() == [[0, -1, 0]]
    assert OneVsRest(Hinge()).step(np.array([2.0]), g).tolist() == [[-1, -1, 1]]


@pytest.mark.parametrize("l", [Hinge(), SquaredHinge()], ids=["hinge", "squared_hinge"])
def test_two_of_several_classes_are_the_binary_loss(l: Formula) -> None:  # noqa: E741
    """With g_2 = -g_1: Crammer-Singer at twice g, and one-versus-rest twice, with opposite signs."""
    f, y = G[:, 0], (Y > 0).astype(np.float64)
    g, signs = np.stack([-f, f], 1), 2 * y - 1
    np.testing.assert_allclose(CrammerSinger(l).step(y, g / 2)[:, 1], Binary(l).step(signs, f))
    np.testing.assert_allclose(OneVsRest(l).step(y, g)[:, 1], Binary(l).step(signs, f))
    for loss in (CrammerSinger(l), OneVsRest(l)):
        np.testing.assert_allclose(loss.step(y, g).sum(1), 0)


def test_the_task_decides_what_is_built() -> None:
    for name, cls in MULTICLASS.items():
        assert type(build_loss({"name": "hinge"}, name, THREE)) is cls
        assert type(build_loss({"name": "hinge"}, name, BINARY)) is Binary
        assert type(build_loss({"name": "squared"}, name, Regression())) is Residual
    for task in (BINARY, THREE, Regression()):
        assert build_loss({"name": DEFAULTS[task.kind]}, "one_vs_rest", task)


@pytest.mark.parametrize(
    ("settings", "task", "said"),
    [
        ({"name": "hing"}, BINARY, "did you mean hinge"),
        (
            {"name": "squared"},
            THREE,
            "loss=squared is for task=regression: expected one of hinge, squared_hinge",
        ),
        ({"name": "hinge"}, Regression(), "loss=hinge is for task=classification: expected one of epsilon_"),
        (
            {"name": "epsilon_insensitive", "epsilon": -1},
            Regression(),
            "loss.epsilon should be greater than or",
        ),
    ],
)
def test_a_loss_that_does_not_fit_is_refused(settings: dict[str, object], task: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        build_loss(settings, "crammer_singer", task)  # type: ignore[arg-type]
