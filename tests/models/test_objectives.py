"""Objectives for theta, the alignment of a data set, and measures of how far training has moved theta."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from sklearn.kernel_ridge import KernelRidge
from torch import nn

from nsvm_cli.errors import RunError
from nsvm_cli.models.kernels import RBF, Linear, Polynomial
from nsvm_cli.models.losses import Binary, CrammerSinger, Hinge
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.models.objectives import (
    KERNEL_OBJECTIVES,
    KERNEL_ROWS,
    alignment,
    dataset_alignment,
    feature_change,
    full_objective,
    leave_one_out,
    norm_surrogate,
    theta_change,
)
from nsvm_cli.tasks import MulticlassClassification
from tests.conftest import parameters, sloped

pytestmark = pytest.mark.usefixtures("shapes")

Batch = tuple[torch.Tensor, torch.Tensor]


@pytest.fixture
def batch() -> Batch:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(10, 4, generator=generator, dtype=torch.float64)
    y = torch.tensor([-1.0, 1.0] * 5, dtype=torch.float64)
    return RBF(0.3)(z, z), y


def test_norm_surrogate_is_0_without_coefficients_and_so_is_its_gradient(batch: Batch) -> None:
    K, y = batch
    # if K is small, dividing by a lower bound on the norm of alpha would give a NaN gradient
    value, slope = sloped(lambda K: norm_surrogate(K, torch.zeros_like(y)), 1e-3 * K)
    assert value == 0
    assert (slope == 0).all()


def test_the_papers_alignment(batch: Batch) -> None:
    K, y = batch
    expected = (torch.outer(y, y) * K).sum() / (10 * K.square().sum().sqrt())
    torch.testing.assert_close(alignment(K, y), expected)


@pytest.mark.parametrize("centred", [False, True])
def test_alignment_losses(centred: bool, batch: Batch) -> None:
    A = alignment(*batch, centred)
    assert KERNEL_OBJECTIVES["squared"](*batch, centred, None) == (1 - A) ** 2
    assert KERNEL_OBJECTIVES["linear"](*batch, centred, None) == -A


@pytest.mark.parametrize(("C", "weighted"), [(0, False), (0, True), (2, True), (5, False)])
def test_the_leave_one_out_error_is_that_of_ridge_regression_without_a_sample(
    C: int, weighted: bool, batch: Batch
) -> None:
    """The regularisation is RIDGE (0.01) times the mean diagonal (3) times the number of samples (10)."""
    (K, _), c = batch, codes(C, 10)
    w = torch.arange(1.0, 11.0, dtype=torch.float64) if weighted else torch.ones(10, dtype=torch.float64)
    K, c = 3 * K, (c if C else c[:, None])
    centred = c - (w @ c) / w.sum()
    expected = torch.zeros((), dtype=torch.float64)
    for j in range(10):
        rest = [i for i in range(10) if i != j]
        ridge = KernelRidge(alpha=10 * 0.01 * 3, kernel="precomputed")
        ridge.fit(K[rest][:, rest].numpy(), centred[rest].numpy(), sample_weight=w[rest].numpy())
        error = centred[j] - torch.from_numpy(ridge.predict(K[[j]][:, rest].numpy()))[0]
        expected += w[j] * error.square().sum()
    expected /= (w[:, None] * centred.square()).sum()
    value = leave_one_out(K, c if C else c[:, 0], w if weighted else None)
    torch.testing.assert_close(value, expected)
    z = torch.randn(10, 3, generator=torch.Generator().manual_seed(0)).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: leave_one_out(RBF(0.3)(z, z), c, w), z)


def test_the_leave_one_out_error_of_a_matrix_that_is_no_kernel_matrix_is_not_a_number() -> None:
    K = torch.tensor([[1.0, 2.0], [2.0, 1.0]])
    assert leave_one_out(K, torch.tensor([1.0, -1.0])).isnan()


def codes(C: int, m: int) -> torch.Tensor:
    """Return the codes of C classes, or real targets for C = 0."""
    generator = torch.Generator().manual_seed(2)
    if C == 0:
        return torch.randn(m, generator=generator, dtype=torch.float64)
    task = MulticlassClassification(tuple(str(r) for r in range(C)))
    return task.code(torch.randint(C, (m,), generator=generator).double())


@pytest.mark.parametrize("C", [0, 2, 5])
def test_centred_alignment_is_that_of_centred_matrices(C: int, batch: Batch) -> None:
    """The centred alignment is <H K H, H U H> / (||H K H|| ||H U H||) with H = I - 1 1^T / k."""
    (K, _), c = batch, codes(C, 10)
    H = torch.eye(10, dtype=torch.float64) - 1 / 10
    U = H @ (torch.outer(c, c) if C == 0 else c @ c.T) @ H
    expected = (U * (H @ K @ H)).sum() / (U.norm() * (H @ K @ H).norm())
    torch.testing.assert_close(alignment(K, c, centred=True), expected)
    torch.testing.assert_close(alignment(3 * K + 7, c, centred=True), expected)


@pytest.mark.parametrize("C", [2, 3, 10])
def test_a_batch_of_one_class_has_no_centred_alignment(C: int) -> None:
    """Normalised rounding errors would move theta as far as a real alignment, so all slopes must be 0."""
    for k in range(2, 12):
        z = torch.randn(k, 3, generator=torch.Generator().manual_seed(0))
        c = codes(C, 1).float().expand(k, -1)
        for objective in (lambda K, c=c: alignment(K, c, centred=True), lambda K, c=c: leave_one_out(K, c)):
            value, slope = sloped(objective, RBF(1.0)(z, z))
            assert value == 0
            assert (slope == 0).all()


def test_the_norm_surrogate_takes_inner_products_of_rows(batch: Batch) -> None:
    (K, _), alpha = batch, torch.randn(10, 3, generator=torch.Generator().manual_seed(3)).double()
    A = alpha @ alpha.T
    torch.testing.assert_close(norm_surrogate(K, alpha), (A * K).sum() / (A.norm() * K.norm()))
    column = norm_surrogate(K, alpha[:, :1])
    torch.testing.assert_close(column, norm_surrogate(K, alpha[:, 0]))


@pytest.mark.parametrize("C", [0, 2, 4])
@pytest.mark.parametrize("centred", [False, True])
def test_the_alignment_of_a_data_set_is_that_of_its_whole_matrix(C: int, centred: bool) -> None:
    m = 2 * KERNEL_ROWS + 17
    z, c = torch.randn(m, 3, generator=torch.Generator().manual_seed(1)).double(), codes(C, m)
    expected = float(alignment(RBF(1.0)(z, z), c, centred))
    got = dataset_alignment(RBF(1.0), z, c, centred=centred)
    assert got == {"alignment": pytest.approx(expected), "alignment_samples": m, "alignment_centred": centred}


def test_an_alignment_that_is_not_defined_is_none_and_one_that_overflows_stops_the_run() -> None:
    y = torch.tensor([-1.0, 1.0])
    assert dataset_alignment(Linear(), torch.zeros(2, 3), y)["alignment"] is None
    z, constant = torch.arange(9.0)[:, None], torch.full((9,), 0.1, dtype=torch.float64)
    assert dataset_alignment(RBF(1.0), z, constant, centred=True)["alignment"] is None
    with pytest.raises(RunError, match="not finite"):
        dataset_alignment(Polynomial(degree=200, gamma=1.0), torch.full((2, 3), 9.0), y)


@pytest.mark.parametrize("outputs", [(), (3,)])
def test_the_full_objective(outputs: tuple[int, ...]) -> None:
    draw = torch.Generator().manual_seed(2)
    z, terms = torch.randn(20, 4, generator=draw), torch.randn(300, 4, generator=draw)
    alpha = torch.randn(300, *outputs, generator=draw)
    f = Expansion(terms, alpha, scale=7.0, bias=0.5)
    y = torch.arange(20.0) % 3 if outputs else torch.arange(20.0) % 2 * 2 - 1
    loss = (CrammerSinger if outputs else Binary)(Hinge())
    K, a = RBF(0.3), alpha.double().reshape(300, -1) / 7
    norm = (a.T @ K(terms.double(), terms.double()) @ a).trace()
    g = (K(z.double(), terms.double()) @ a + 0.5).reshape(20, *outputs)
    assert full_objective(f, K, z, y, loss, 0.1) == pytest.approx(float(0.05 * norm + loss.of(y, g).mean()))
    assert full_objective(replace(f, one_vs_one=True), K, z, y, loss, 0.1) is None


def linear(seed: int, scale: float = 1.0) -> nn.Module:
    """Return a random linear layer from R^3 to R^2 in float64, with its parameters times ``scale``."""
    torch.manual_seed(seed)
    layer = nn.Linear(3, 2).double()
    return layer.requires_grad_(False).apply(lambda module: [p.mul_(scale) for p in module.parameters()])


X = torch.randn(30, 3, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


def test_theta_change_is_the_relative_distance_of_all_parameters() -> None:
    before, after = linear(0), linear(1)
    a, b, K = parameters(before), parameters(after), Linear()
    assert theta_change((before, K), (after, K)) == pytest.approx(float((b - a).norm() / a.norm()))
    assert theta_change((before, K), (linear(0), K)) == 0
    assert theta_change((nn.Flatten(), K), (nn.Flatten(), K)) is None
    zero = linear(0, scale=0.0)
    assert theta_change((zero, K), (after, K)) is None, "the change is undefined if the initial theta is 0"


@pytest.mark.parametrize("K", [RBF(0.3), Linear(), Polynomial(3, 0.5, 1.0)])
def test_feature_change_is_one_minus_the_centred_alignment(K: RBF) -> None:
    before, after = linear(0), linear(1)
    H = torch.eye(30, dtype=torch.float64) - 1 / 30
    K_0, K_T = (H @ K(network(X), network(X)) @ H for network in (before, after))
    expected = 1 - float((K_0 * K_T).sum() / (K_0.norm() * K_T.norm()))
    assert feature_change((before, K), (after, K), X, seed=0) == pytest.approx(expected, abs=1e-12)
    assert 0.01 < expected < 1
    assert feature_change((before, K), (linear(0), K), X, seed=0) == 0, "expected exactly 0 for equal theta"
