"""Penalties against overfitting: their limits, their gradients, and their effect on steps in theta."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle, product

import pytest
import torch
from torch import Tensor, nn

from nsvm_cli.engines import for_engine, select
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.models.feature_map import FeatureMap, Training
from nsvm_cli.models.kernel_gradients import build_gradient
from nsvm_cli.models.kernels import RBF, Biased, Kernel, Laplacian, Linear, Polynomial
from nsvm_cli.models.optimizers import SGD
from nsvm_cli.models.penalties import (
    PENALTIES,
    distance_identity,
    distance_ones,
    entropy,
    penalised,
    with_weight,
)
from nsvm_cli.runs.experiment import prepare
from tests.conftest import LOSSES, STEPPING, MakeSmall, batch, parameters, short, train
from tests.small_runs import small_settings

pytestmark = pytest.mark.usefixtures("shapes")

OF_K = {name: PENALTIES[name] for name in ("entropy", "identity", "ones")}
EYE, ONES = torch.eye(5, dtype=torch.float64), torch.ones(5, 5, dtype=torch.float64)


def test_the_limits_are_those_of_the_identity_and_of_a_constant_kernel() -> None:
    """Scaling features turns a constant K into the identity, as in the paper's example F(x) = theta x."""
    x = torch.linspace(-1, 1, 6, dtype=torch.float64)[:, None]
    low, high = (RBF(1.0)(theta * x, theta * x) for theta in (1e-4, 1e4))
    constant, identity = (0.0, 1.0, 0.0), (1.0, 0.0, 1.0)
    for K, figures, error in (
        *((EYE, identity, 1e-9), (ONES, constant, 1e-9), (0 * ONES, constant, 1e-9)),
        *((high, identity, 1e-6), (low, constant, 1e-6)),
    ):
        found = (float(entropy(K)), float(distance_identity(K)), float(distance_ones(K)))
        assert found == pytest.approx(figures, abs=error)


Z = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("term", OF_K.values(), ids=OF_K)
def test_gradients_are_those_of_finite_differences(term: Callable[[Tensor], Tensor]) -> None:
    assert torch.autograd.gradcheck(lambda z: term(RBF(0.5)(z, z)), (Z.clone().requires_grad_(),))


def test_penalties_are_from_0_to_1() -> None:
    for term, gamma in product(OF_K.values(), (0.01, 1.0, 100.0)):
        assert 0 <= float(term(RBF(gamma)(Z, Z))) <= 1 + 1e-9


def test_the_scale_of_a_kernel_does_not_matter() -> None:
    K = Linear()(Z, Z)
    for term in OF_K.values():
        assert float(term(100 * K)) == pytest.approx(float(term(K)), rel=1e-12)


DEGENERATE = {
    "zero": torch.zeros(6, 3, dtype=torch.float64),
    "nearly zero": torch.full((6, 3), 1e-20, dtype=torch.float64),
    "the same": torch.ones(6, 3, dtype=torch.float64),
    "far apart": 1e3 * torch.arange(18, dtype=torch.float64).reshape(6, 3),
    "each twice": Z[:3].repeat(2, 1),
}
"""Features for which K is 0, subnormal in float32, constant, the identity, or singular, for some kernels."""


@pytest.mark.parametrize("K", [RBF(1.0), Laplacian(1.0), Linear(), Polynomial(3, 1.0)], ids=repr)
@pytest.mark.parametrize("case", DEGENERATE)
def test_where_eigenvalues_coincide_gradients_are_finite(case: str, K: Kernel) -> None:
    for (name, term), dtype in product(OF_K.items(), (torch.float32, torch.float64)):
        z = DEGENERATE[case].to(dtype).requires_grad_()
        value = term(K(z, z))
        assert -1e-6 <= value.item() <= 1 + 1e-6, name
        assert torch.autograd.grad(value, z)[0].isfinite().all(), name


@pytest.mark.parametrize("gradient", [None, "finite_difference"])
def test_a_bias_is_no_part_of_the_kernel_matrix(gradient: str | None) -> None:
    """For samples that are far apart, K is the identity, to which the bias adds 1."""
    x, F = batch(DEGENERATE["far apart"]), FeatureMap(nn.Identity(), SGD(0.1), seed=0)
    F.kernel_gradient = build_gradient({"gradient": gradient})
    with F.differentiable(Biased(RBF(1.0)), 1) as kernel:
        for name, value in {"ones": 0, "identity": 1, "entropy": 1}.items():
            objective = penalised(lambda F, K: torch.zeros(()), {name: 1.0}, x)
            assert objective(Training(F, 1), kernel).item() == pytest.approx(value, abs=1e-9), name


@pytest.mark.parametrize(("value", "got"), [(EYE, r"torch.Size\(\[5, 5\]\)"), (0.5, "0.5"), (None, "None")])
def test_a_penalty_that_is_no_number(value: object, got: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PENALTIES, "mine", lambda K: value)
    objective = penalised(lambda F, K: torch.zeros(()), {"mine": 1.0}, batch(Z))
    with pytest.raises(InputError, match=rf"penalties.mine: expected a tensor of shape \(\), got {got}"):
        objective(Training(FeatureMap(nn.Identity(), SGD(0.1), seed=0), 1), RBF(1.0))


def test_what_is_not_finite_stays_so() -> None:
    """``entropy`` must not compute eigenvalues of such matrices, for which LAPACK raises an error."""
    for name, term in OF_K.items():
        for value in (torch.nan, torch.inf):
            assert not term(torch.full((4, 4), value)).isfinite(), name


TRAINED = sorted({*STEPPING} - {"cross_entropy", "linear_pegasos", "pegasos"})


@pytest.mark.parametrize(("name", "kind"), [*zip(TRAINED, cycle(sorted(LOSSES)))])
def test_a_penalty_moves_theta_and_a_weight_of_0_does_not(name: str, kind: str, small: MakeSmall) -> None:
    s = small(1, loss=LOSSES[kind])

    def theta_of(**weights: float) -> Tensor:
        problem, F = replace(s.problem, penalties=with_weight(weights)), s.theta(1e-3)
        trainer = short(name, 8, 4, "literal", lam=1e-2)
        train(for_engine(select("torch", trainer, problem, F), trainer), problem, F)
        assert F.theta_steps > 0
        return parameters(F.network)

    none = theta_of()
    assert torch.equal(theta_of(entropy=0.0, identity=0.0, ones=0.0, l1=0.0), none)
    for penalty in PENALTIES:
        assert (theta := theta_of(**{penalty: 0.1})).isfinite().all()
        assert not torch.equal(theta, none), penalty


def test_a_diverging_run_with_penalties_ends_with_a_line() -> None:
    optimizer = {"name": "sgd", "lr": 1e30}
    diverging = small_settings(engine="torch", optimizer=optimizer, penalties={"entropy": 1.0})
    with pytest.raises(RunError, match="the objective is not finite"):
        prepare(diverging).train()
