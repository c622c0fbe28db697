"""Losses: their definitions, their derivatives, and what several classes make of them."""

from __future__ import annotations

import numpy as np
import pytest

from nsvm_cli.config.registry import build
from nsvm_cli.errors import InputError
from nsvm_cli.models.losses import (
    DEFAULTS,
    LOSSES,
    MULTICLASS,
    Binary,
    CrammerSinger,
    Formula,
    Hinge,
    Loss,
    OneVsRest,
    Residual,
    SquaredHinge,
    build_loss,
)
from nsvm_cli.tasks import BINARY, MulticlassClassification, Regression

FORMULAS = [build(LOSSES, "loss", {"name": name}) for name in LOSSES]
THREE = MulticlassClassification(("a", "b", "c"))
U = np.linspace(-4, 4, 801) + 1e-3  # next to the kinks
RNG = np.random.default_rng(0)
G = 2 * RNG.standard_normal((40, 3))
Y = RNG.integers(3, size=40).astype(np.float64)

every_formula = pytest.mark.parametrize("l", FORMULAS, ids=lambda l: type(l).__name__)  # noqa: E741


@every_formula
def test_the_slope_is_the_derivative(l: Formula) -> None:  # noqa: E741
    """-l'(m) of a margin, l'(r) of a residual."""
    h, sign = 1e-6, -1 if l.kind == "classification" else 1
    difference = (l(U + h) - l(U - h)) / (2 * h)
    np.testing.assert_allclose(l.slope(U), sign * difference, atol=1e-6)


@every_formula
def test_a_loss_is_convex_and_not_negative(l: Formula) -> None:  # noqa: E741
    value = l(U)
    assert (value >= 0).all()
    assert (value[1:-1] <= (value[2:] + value[:-2]) / 2 + 1e-12).all()
    steepness = np.diff(l.slope(U)) * (-1 if l.kind == "classification" else 1)
    assert (steepness >= -1e-12).all()


LIMITS = {  # the loss, over -m or |r|, of large errors; and the least margin that costs nothing
    "hinge": (lambda e: 1 + e, 1.0),
    "squared_hinge": (lambda e: (1 + e) ** 2, 1.0),
    "smoothed_hinge": (lambda e: 0.5 + e, 1.0),
    "logistic": (lambda e: e, np.inf),
    "epsilon_insensitive": (lambda e: e - 0.1, None),
    "squared": (lambda e: e**2 / 2, None),
}


@pytest.mark.parametrize("name", LIMITS)
def test_what_a_loss_tends_to(name: str) -> None:
    l, (large, free) = build(LOSSES, "loss", {"name": name}), LIMITS[name]  # noqa: E741
    errors = np.array([50.0, 700.0, 1e4])
    np.testing.assert_allclose(l(-errors), large(errors), rtol=1e-12)
    if free is None:
        np.testing.assert_allclose(l(errors), large(errors), rtol=1e-12)
    elif free == np.inf:
        assert (l.slope(np.array([-700.0, 0.0, 30.0])) > 0).all()
        assert l(np.array([800.0]))[0] == 0, "without a warning"
    else:
        above = np.array([free, free + 1e-9, 100.0])
        assert (l(above) == 0).all()
        assert (l.slope(above) == 0).all(), "a margin of exactly 1 is no violation"
        assert l.slope(np.array([free - 1e-9]))[0] > 0


@every_formula
def test_the_step_is_minus_the_derivative_by_g(l: Formula) -> None:  # noqa: E741
    """For numbers, and for each class of several."""
    h = 1e-6
    if l.kind == "regression":
        cases: list[tuple[Loss, np.ndarray, np.ndarray]] = [(Residual(l), G[:, 0], G[:, 1])]
    else:
        cases = [(Binary(l), np.sign(G[:, 0]), G[:, 1])]
        cases += [(CrammerSinger(l), Y, G), (OneVsRest(l), Y, G)]
    for loss, y, g in cases:
        step = loss.step(y, g)
        assert step.shape == g.shape
        for r in np.ndindex(g.shape[1:]):
            change = np.zeros_like(g)
            change[(slice(None), *r)] = h
            difference = (loss.value(y, g + change) - loss.value(y, g - change)) / (2 * h)
            np.testing.assert_allclose(step[(slice(None), *r)], -difference, atol=1e-6)
        assert loss.violated(y, g).tolist() == [bool(np.any(row != 0)) for row in step]


def test_crammer_singer_written_out() -> None:
    g, y = np.array([[0.5, 0.2, 0.4], [3.0, 0.0, 1.0], [0.0, 0.0, 0.0]]), np.array([0.0, 0.0, 0.0])
    assert CrammerSinger(Hinge()).value(y, g).tolist() == pytest.approx([0.9, 0.0, 1.0])
    assert CrammerSinger(Hinge()).step(y, g).tolist() == [[1, 0, -1], [0, 0, 0], [1, -1, 0]]
    assert CrammerSinger(SquaredHinge()).step(y[:1], g[:1])[0].tolist() == pytest.approx([1.8, 0, -1.8])


def test_one_versus_rest_written_out() -> None:
    g, y = np.array([[2.0, 0.5, -3.0]]), np.array([0.0])
    assert OneVsRest(Hinge()).value(y, g).tolist() == [1.5]
    assert OneVsRest(Hinge()).step(y, g).tolist() == [[0, -1, 0]]
    assert OneVsRest(Hinge()).step(np.array([2.0]), g).tolist() == [[-1, -1, 1]]


@pytest.mark.parametrize("l", [Hinge(), SquaredHinge()], ids=["hinge", "squared_hinge"])
def test_two_of_several_classes_are_the_binary_loss(l: Formula) -> None:  # noqa: E741
    """With g_2 = -g_1: Crammer-Singer at twice g, and one-versus-rest twice the loss."""
    f, y = G[:, 0], (Y > 0).astype(np.float64)
    g, sign = np.stack([-f, f], 1), 2 * y - 1
    np.testing.assert_allclose(CrammerSinger(l).value(y, g / 2), Binary(l).value(sign, f))
    np.testing.assert_allclose(CrammerSinger(l).step(y, g / 2)[:, 1], Binary(l).step(sign, f))
    np.testing.assert_allclose(OneVsRest(l).value(y, g), 2 * Binary(l).value(sign, f))
    np.testing.assert_allclose(OneVsRest(l).step(y, g)[:, 1], Binary(l).step(sign, f))
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
