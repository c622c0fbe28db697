"""The paper's remarks between its algorithms, each as a test of the code that it concerns.

``tests/trainers/test_against_paper.py`` compares the algorithms themselves with the paper, and
``docs/paper.md`` names the test of every sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from nsvm_cli.errors import NotFiniteError
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernel_gradients import WithGradient, build_gradient, directions
from nsvm_cli.models.kernels import RBF, Kernel, Linear, Normalized, Polynomial
from nsvm_cli.models.networks import build_network
from nsvm_cli.models.objectives import alignment, norm_surrogate
from nsvm_cli.models.optimizers import SGD
from nsvm_cli.models.penalties import PENALTIES, distance_identity
from nsvm_cli.trainers import Trainer
from nsvm_cli.trainers.alg1 import Alg1
from nsvm_cli.trainers.alg2 import Alg2
from nsvm_cli.trainers.alg3 import Alg3
from nsvm_cli.trainers.alg4 import Alg4
from nsvm_cli.trainers.coefficients import projected
from tests import reference
from tests.conftest import MakeSmall, Small, parameters, train
from tests.trainers.test_against_paper import Transcribed, assert_same_theta

pytestmark = pytest.mark.usefixtures("shapes")


LAM, LR = 0.02, 0.01


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def plain(s: Small) -> FeatureMap:
    """Return a feature map with plain gradient descent: a step is the rate times the gradient."""
    return FeatureMap(deepcopy(s.network), SGD(LR), seed=0)


def descended(theta: Sequence[Tensor], grad_theta: Sequence[Tensor]) -> Tensor:
    """Return theta after a step of plain gradient descent, as one vector."""
    return torch.cat([(p - LR * g).detach().flatten() for p, g in zip(theta, grad_theta, strict=True)])


def squared_norm(K: Tensor, c: Tensor) -> Tensor:
    """Return ||sum_s c_s K(z_s, .)||^2_H, given the kernel matrix of the z_s."""
    return c @ K @ c


def balanced(k: int) -> Tensor:
    """Return labels of two classes of the same size."""
    return torch.tensor([-1.0, 1.0] * (k // 2), dtype=torch.float64)


# Section 3: the output of the algorithms


@pytest.mark.parametrize("trainer", [Alg1(80, LAM), Alg2(80, LAM), Alg3(30, LAM), Alg4(30, solver_steps=80)])
def test_all_but_algorithm_1_have_the_features_of_the_final_theta(
    trainer: Trainer[Any], small: MakeSmall
) -> None:
    """The test also checks that no alpha_i is negative: the terms of g have the signs of their labels."""
    s = small(0)
    _, g = train(trainer, s.problem, F := s.theta(1e-2))
    assert (g.alpha * s.problem.y[g.i] > 0).all()
    fresh = torch.allclose(g.z, F(s.problem.x[g.i]), rtol=0, atol=1e-9)
    assert fresh == (not isinstance(trainer, Alg1))


# Sections 4.1.1 and 4.1.2: Algorithm 1 descends on C_t(f, theta) = lambda/2 ||f||^2 + max(0, 1 - y f(F(x)))


def test_a_step_in_f_descends_on_the_objective_of_its_sample(small: MakeSmall) -> None:
    """The rate is 1/(lambda t), and the direction is the Riesz representer of the derivative in H.

    If f = sum_s c_s K(z_s, .), the representer is in the span of the K(z_s, .), with coefficients K^-1 dC/dc.
    """
    s, trainer = small(0, m=12), Alg1(40, LAM)
    K, state = s.problem.K, trainer.start(s.problem, F := s.theta(LR))
    taken = []
    for t in range(2, 41):
        f_t, (x_t, y_t) = trainer.finish(s.problem, state), s.problem[state.sampler(t)]
        z_t, before = F(x_t), state.violations
        trainer.step(s.problem, state)
        f_next, taken = trainer.finish(s.problem, state), [*taken, state.violations > before]
        points, at = torch.unique(torch.cat([f_t.z, z_t]), dim=0, return_inverse=True)
        c = torch.zeros(len(points), dtype=torch.float64).index_add(0, at[:-1], f_t.alpha / f_t.scale)
        c.requires_grad_()
        K_pp = K(points, points)
        C_t = LAM / 2 * squared_norm(K_pp, c) + (1 - y_t * (K_pp @ c)[at[-1]]).clamp_min(0).sum()
        riesz = torch.linalg.solve(K_pp, torch.autograd.grad(C_t, c)[0])
        expected = K(u := random(20, 6), points) @ (c - riesz / (LAM * t)).detach()
        torch.testing.assert_close(f_next(K, u), expected, rtol=1e-6, atol=1e-6)
    assert 5 < sum(taken) < 35


def test_a_step_in_theta_descends_on_the_objective_of_its_sample(small: MakeSmall) -> None:
    """The step follows the gradient of C_t(f_t, .) at theta_t, which is 0 without a violation."""
    s, trainer = small(0, m=12), Alg1(40, LAM)
    K, state = s.problem.K, trainer.start(s.problem, F := plain(s))
    moved = []
    assert torch.equal(parameters(F.network), parameters(s.network)), "expected theta_2 = theta_1 for f_1 = 0"
    for t in range(2, 41):
        f_t, (x_t, y_t) = trainer.finish(s.problem, state), s.problem[state.sampler(t)]
        norm = squared_norm(K(f_t.z, f_t.z), f_t.alpha) / f_t.scale**2
        hinge = (1 - y_t * f_t(K, F.network(x_t.x))).clamp_min(0).sum()
        theta = [*F.network.parameters()]
        grad_theta = torch.autograd.grad(LAM / 2 * norm + hinge, theta)
        expected = descended(theta, grad_theta)
        trainer.step(s.problem, state)
        torch.testing.assert_close(parameters(F.network), expected, rtol=0, atol=1e-12)
        moved.append(any(slope.any() for slope in grad_theta))
    assert 5 < sum(moved) < 35


@pytest.mark.parametrize(("how", "matrices"), [("finite_difference", 2 * 7), ("spsa", 2)])
def test_only_finite_differences_become_expensive_with_many_features(how: str, matrices: int) -> None:
    calls = []

    class Counted(Kernel):
        def __call__(self, a: Tensor, b: Tensor) -> Tensor:
            calls.append(len(a))
            return RBF(0.5)(a, b)

    a, b = random(3, 7), random(4, 7, seed=1)
    estimate = build_gradient({"gradient": how})
    assert estimate is not None
    K = WithGradient(Counted(), estimate, directions(seed=0, t=1))
    G = K(a, b)
    calls.clear()
    K.gradient(a, b, G, G)
    assert len(calls) == matrices


# Section 4.1.3: adjusting the kernel


@pytest.mark.parametrize("K", [Linear(), Polynomial(2, c=0)])
def test_a_normalised_kernel_gains_nothing_from_scaling_the_feature_map(K: Kernel) -> None:
    a, b = random(4, 3), random(5, 3, seed=1)
    torch.testing.assert_close(Normalized(K)(7 * a, 7 * b), Normalized(K)(a, b))
    assert not torch.allclose(K(7 * a, 7 * b), K(a, b))


@pytest.mark.parametrize("trainer", [Alg1(30, LAM), Alg2(30, LAM)])
def test_algorithms_1_and_2_take_an_adjusted_kernel(trainer: Trainer[Any], small: MakeSmall) -> None:
    s, k = small(0, m=12, K=Normalized(Polynomial(2, 1.0))), lambda a, b: (a @ b + 1) ** 2
    theirs = Transcribed(s, LR, lam=LAM)
    run = reference.algorithm_1 if isinstance(trainer, Alg1) else reference.algorithm_2
    K_tilde = lambda a, b: k(a, b) / (torch.sqrt(k(a, a)) * torch.sqrt(k(b, b)))  # noqa: E731
    run(theirs.data, theirs.optimizer, theirs.draw, 30, LAM, K_tilde)
    state, _ = train(trainer, s.problem, F := s.theta(LR))
    assert state.violations > 5
    assert_same_theta(F, theirs)


# Section 4.2: Algorithm 2


def test_a_function_outside_of_the_span_of_the_samples_is_not_optimal() -> None:
    """Representer theorem: the projection has the same values at the samples and a smaller norm."""
    z, K = random(8, 4), RBF(0.3)
    points, c = torch.cat([z, random(3, 4, seed=1)]), random(11, seed=2)
    inside = projected(K, points, c, onto=z)
    torch.testing.assert_close(K(z, z) @ inside, K(z, points) @ c, rtol=0, atol=1e-5)
    assert squared_norm(K(z, z), inside) < 0.99 * squared_norm(K(points, points), c)


def test_an_exact_projection_is_nearer_than_the_same_coefficients(small: MakeSmall) -> None:
    s, found = small(0), {}
    for how in ("approximate", "exact"):
        trainer, F = Alg2(60, LAM, projection=how), s.theta(LR)  # type: ignore[arg-type]
        state = trainer.start(s.problem, F)
        while F.theta_steps < 1:
            trainer.step(s.problem, state)
        found[how] = state.coefficients, F
    (kept, F), (exact, F_exact) = found["approximate"], found["exact"]
    assert torch.equal(parameters(F.network), parameters(F_exact.network))
    j = kept.support
    alpha, K = torch.from_numpy(kept.alpha[j]), s.problem.K
    old, new = FeatureMap(s.network, SGD(0.0), 0)(s.problem.x[j]), F(s.problem.x[j])

    def distance(coefficients: Tensor) -> Tensor:
        return squared_norm(K(z := torch.cat([old, new]), z), torch.cat([alpha, -coefficients]))

    assert distance(torch.from_numpy(exact.alpha[j])) < 0.9 * distance(alpha)


# Section 4.3: Algorithm 3


def test_the_first_fraction_does_not_fall_by_scaling_f_or_the_kernel_matrix() -> None:
    """Up to these two scales, the fraction is ||f||^2 for the samples of the batch."""
    z, alpha = random(6, 3), random(6, seed=1)
    K = RBF(0.4)(z, z)
    value = norm_surrogate(K, alpha)
    torch.testing.assert_close(norm_surrogate(3 * K, 0.1 * alpha), value)
    torch.testing.assert_close(value * K.norm() * alpha.square().sum(), squared_norm(K, alpha))


def test_the_derived_objective_is_the_papers_problem_on_the_batch(small: MakeSmall) -> None:
    """The problem is to minimize lambda/2 ||f||^2 plus the mean hinge loss, with f after its update."""
    s, trainer = small(0, m=12), Alg3(15, LAM, batch_size=4, objective="derived")
    K, y, state = s.problem.K, s.problem.y, trainer.start(s.problem, F := plain(s))
    for t in range(2, 16):
        A, before = state.sampler(t), deepcopy(F.network)
        trainer.step(s.problem, state)
        alpha = torch.from_numpy(state.coefficients.alpha) / (LAM * t)
        z = before(s.problem.x)
        K_zz = K(z, z)
        hinge = (1 - y[A] * (K_zz @ alpha)[A]).clamp_min(0).mean()
        theta = [*before.parameters()]
        grad_theta = torch.autograd.grad(LAM / 2 * squared_norm(K_zz, alpha) + hinge, theta)
        torch.testing.assert_close(parameters(F.network), descended(theta, grad_theta), rtol=0, atol=1e-12)


@pytest.mark.parametrize("trainer", [Alg3(9), Alg4(9, solver_steps=9)])
def test_a_kernel_that_is_0_everywhere_stops_algorithms_3_and_4(
    trainer: Trainer[Any], small: MakeSmall
) -> None:
    """Both algorithms assume that K(a, a) is not 0."""
    s = small(0, K=Linear(), network={"name": "mlp", "widths": [4]})
    for p in s.network.parameters():
        torch.nn.init.zeros_(p)
    with pytest.raises(NotFiniteError, match="the objective"):
        train(trainer, s.problem, s.theta())


# Section 4.4: Algorithm 4


def test_the_alignment_is_from_minus_1_to_1_and_1_for_the_ideal_kernel_alone() -> None:
    """By the Cauchy-Schwarz inequality, with equality if the kernel matrix is a multiple of y y^T."""
    y = balanced(6)
    values = [float(alignment(B @ B.T, y)) for B in (random(6, 2, seed=seed) for seed in range(50))]
    assert -1 < min(values) < max(values) < 1
    for multiple, value in ((0.1, 1.0), (-2.0, -1.0)):
        assert float(alignment(multiple * torch.outer(y, y), y)) == pytest.approx(value)


# Section 6: overfitting


@pytest.mark.parametrize("trainer", [Alg1(9, LAM, 4), Alg2(9, LAM, 4), Alg3(9, LAM), Alg4(9, solver_steps=9)])
def test_terms_are_added_to_the_objective_of_every_algorithm(trainer: Trainer[Any], small: MakeSmall) -> None:
    """The penalties move theta by the rate times their gradient on the batch of the step."""
    s, weights = small(0), {"entropy": 0.3, "identity": 0.5, "ones": 0.7, "l1": 0.02}
    thetas = []
    for penalties in ({}, weights):
        problem, F = replace(s.problem, penalties=penalties), plain(s)
        state = trainer.start(problem, F)
        while F.theta_steps < 1:
            trainer.step(problem, state)
        thetas.append(parameters(F.network))
    theta, x_A = [*s.network.parameters()], problem[state.sampler(state.t)][0].x
    K_A = problem.K(z := s.network(x_A), z)
    terms = sum(weights[name] * PENALTIES[name](K_A) for name in ("entropy", "identity", "ones"))
    grad_theta = torch.autograd.grad(terms + weights["l1"] * sum(p.abs().sum() for p in theta), theta)
    moved = descended(theta, grad_theta) - parameters(s.network)
    torch.testing.assert_close(thetas[1] - thetas[0], moved, rtol=0, atol=1e-12)
    assert moved.abs().max() > 1e-4


@pytest.mark.parametrize(("scale", "bound"), [(1.0, 4.0), (2**0.5, 8.0)])
def test_normalised_features_keep_an_rbf_kernel_away_from_the_identity(scale: float, bound: float) -> None:
    """K(a, b) is at least exp(-4 gamma scale^2): with the paper's networks, exp(-4) and exp(-8)."""
    settings = {"name": "identity", "normalize": True, "scale": scale}
    z = build_network(settings, (2,), seed=0)(torch.cat([1000 * random(50, 2), -1000 * random(50, 2)]))
    K = RBF(1.0)(z, z)
    assert float(K.min().log()) == pytest.approx(-bound), "expected opposite features to reach the bound"
    assert distance_identity(K) >= K.min()


def test_the_alignment_of_a_matrix_that_is_not_well_behaved_is_small() -> None:
    y = balanced(16)
    assert float(alignment(torch.eye(16, dtype=torch.float64), y)) == pytest.approx(1 / 4), "not 1/sqrt(k)"
    assert float(alignment(torch.ones(16, 16, dtype=torch.float64), y)) == pytest.approx(0)
