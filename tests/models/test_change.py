"""How far training has moved theta and the kernel, compared with the definitions."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nsvm_cli.models.kernels import RBF, Linear, Polynomial
from nsvm_cli.models.objectives import feature_change, theta_change
from tests.conftest import parameters


def linear(seed: int, scale: float = 1.0) -> nn.Module:
    """Return a random linear map of R^3 to R^2, in float64."""
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
    assert theta_change((zero, K), (after, K)) is None, "there is no relative change from zero"


@pytest.mark.parametrize("K", [RBF(0.3), Linear(), Polynomial(3, 0.5, 1.0)])
def test_feature_change_is_one_minus_the_centred_alignment(K: RBF) -> None:
    before, after = linear(0), linear(1)
    H = torch.eye(30, dtype=torch.float64) - 1 / 30
    K_0, K_T = (H @ K(network(X), network(X)) @ H for network in (before, after))
    expected = 1 - float((K_0 * K_T).sum() / (K_0.norm() * K_T.norm()))
    assert feature_change((before, K), (after, K), X, seed=0) == pytest.approx(expected, abs=1e-12)
    assert 0.01 < expected < 1
    assert feature_change((before, K), (linear(0), K), X, seed=0) == 0, "exactly"
