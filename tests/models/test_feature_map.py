"""The feature map: fixed networks, passes over distinct samples, and dropout and augmentation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nsvm_cli.models.feature_map import FeatureMap, Training, distinct
from nsvm_cli.models.kernels import Kernel, Linear
from nsvm_cli.models.networks import build_network
from nsvm_cli.models.optimizers import SGD
from tests.conftest import batch

pytestmark = pytest.mark.usefixtures("shapes")


def test_a_network_without_free_parameters_stays_unchanged() -> None:
    """A pass in training mode would update the running averages of BatchNorm."""
    network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).eval().requires_grad_(False)
    F, x = FeatureMap(network, SGD(0.1), seed=0), batch(torch.randn(6, 3))
    assert F.fixed
    before = F(x)
    F.descend(lambda F, K: F(x).square().sum(), Linear(), 1, 1)
    assert torch.equal(F(x), before)


def test_a_pass_takes_each_sample_once() -> None:
    x = batch(torch.randn(6, 3))
    one, other = x[np.array([4, 1])], x[np.array([1, 5, 4])]
    whole, (first, second) = distinct([one, other])
    assert whole.i.tolist() == [4, 1, 5]
    assert torch.equal(whole.x, x.x[[4, 1, 5]])
    assert (first.tolist(), second.tolist()) == ([0, 1], [1, 2, 0])

    def objective(F: Training, K: Kernel) -> Tensor:
        a, b = F(one, other)
        assert torch.equal(a[0], b[2])
        torch.testing.assert_close(b, F(other))
        return (a.sum() + b.sum()) * 0

    FeatureMap(nn.Linear(3, 2), SGD(0.1), seed=0).descend(objective, Linear(), 1, 1)


def augment(x: Tensor, i: Any, key: int) -> Tensor:
    return x + torch.rand(x.shape, generator=torch.Generator().manual_seed(abs(key)))


@pytest.mark.parametrize(("dropout", "augment"), [(0.5, None), (0.0, augment)], ids=["dropout", "augment"])
def test_dropout_and_augmentation_act_only_while_theta_moves(dropout: float, augment: Any) -> None:
    settings = {"name": "mlp", "widths": [40, 30, 20], "dropout": dropout}
    network, x, seen = build_network(settings, (20,), seed=0), batch(torch.randn(50, 20)), []

    def objective(F: Training, K: Kernel) -> Tensor:
        seen.append(F(x))
        return seen[-1].sum()

    F, again = (FeatureMap(network, SGD(0.0), 3, augment) for _ in range(2))
    plain = network.eval()(x.x)
    for t in (1, 2):
        F.descend(objective, Linear(), t, 2)
        assert torch.equal(F(x), plain), "dropout or augmentation acted outside training passes"
        assert not torch.equal(seen[-1], plain)
    assert not torch.equal(seen[0], seen[1])
    again.descend(objective, Linear(), 2, 2)
    assert torch.equal(seen[1], seen[2]), "the random choices of step 2 depend on earlier steps"
