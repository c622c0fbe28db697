"""Options beyond the paper's experiments: refreshed evaluations, budgets, and linear Pegasos."""

from __future__ import annotations

import pytest
import torch

from nsvm_cli.models.kernels import RBF, Biased, Linear
from nsvm_cli.trainers.alg1 import Alg1
from nsvm_cli.trainers.budget import MAINTENANCE, Terms, merging, projection
from nsvm_cli.trainers.linear_pegasos import LinearPegasos
from nsvm_cli.trainers.pegasos import Pegasos
from tests.conftest import LOSSES, MakeSmall, train


@pytest.mark.parametrize("kind", ["two classes", "three classes"])
def test_with_refresh_every_1_stored_evaluations_are_fresh(small: MakeSmall, kind: str) -> None:
    s = small(0, loss=LOSSES[kind])
    trainer, F = Alg1(80, 0.01, refresh_every=1), s.theta(2e-3)
    state = trainer.start(s.problem, F)
    while state.t < trainer.total:
        trainer.step(s.problem, state)
        torch.testing.assert_close(state.z.tensor, F(s.problem[state.i.tensor.numpy()][0]))
    assert F.theta_steps > 5


@pytest.mark.parametrize("kind", ["two classes", "three classes"])
@pytest.mark.parametrize("how", sorted(MAINTENANCE))
def test_a_budget_is_kept(small: MakeSmall, how: str, kind: str) -> None:
    s = small(0, loss=LOSSES[kind])
    state, g = train(Alg1(100, 0.01, budget=5, maintenance=how), s.problem, s.theta(2e-3))
    assert len(g.alpha) <= state.support_vectors == len(state.z.tensor) == 5
    assert state.removed > 5


def test_projection_is_the_nearest_function_of_the_span() -> None:
    z = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    alpha = torch.tensor([1.0, -2.0, 0.1, 1.5, -1.0, 2.0], dtype=torch.float64)
    points = torch.linalg.cholesky(RBF(0.5)(z, z))  # with the inner products of H
    kept = [0, 1, 3, 4, 5]
    expected = torch.linalg.lstsq(points[kept].mT, (points.mT @ alpha)[:, None]).solution[:, 0]
    found = projection(RBF(0.5), Terms(torch.arange(6), z, alpha))
    assert found.i.tolist() == kept
    torch.testing.assert_close(found.alpha, expected, rtol=1e-5, atol=1e-5)


def test_merging_equal_points_adds_their_coefficients() -> None:
    z = torch.tensor([[0.0, 1.0], [2.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    terms = Terms(torch.arange(3), z, torch.tensor([0.5, 3.0, 1.0], dtype=torch.float64))
    merged = merging(RBF(1.0), terms)
    torch.testing.assert_close(merged.z, z[1:])
    torch.testing.assert_close(merged.alpha, torch.tensor([3.0, 1.5], dtype=torch.float64))


@pytest.mark.parametrize("kind", sorted(LOSSES))
@pytest.mark.parametrize("K", [Linear(), Biased(Linear())], ids=["linear", "bias"])
def test_linear_pegasos_is_pegasos(small: MakeSmall, K: Linear, kind: str) -> None:
    s = small(0, K=K, loss=LOSSES[kind])
    (ours, f), (theirs, g) = (train(t(200, 0.01), s.problem, s.theta()) for t in (LinearPegasos, Pegasos))
    z = s.theta()(s.problem.x)
    torch.testing.assert_close(f(K, z), g(K, z), rtol=1e-12, atol=1e-12)
    assert ours.violations == theirs.violations > 5
