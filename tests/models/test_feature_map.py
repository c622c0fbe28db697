"""Theta steps: with autograd, with gradients in closed form, and from earlier evaluations."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nsvm_cli.engines.look_ahead.features import Evaluator
from nsvm_cli.models.feature_map import FeatureMap, Training, distinct
from nsvm_cli.models.kernels import Kernel, Linear
from nsvm_cli.models.optimizers import SGD
from tests.conftest import batch


def theta() -> FeatureMap:
    network = nn.Sequential(nn.Linear(3, 2)).double()
    with torch.no_grad():
        for p in network.parameters():
            p.copy_(torch.arange(float(p.numel())).view(p.shape) / 10)
    return FeatureMap(network.eval(), SGD(0.1), seed=0)


def test_a_network_without_free_parameters_stays_unchanged() -> None:
    """This includes its buffers, such as running averages."""
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


def test_augmentation_acts_only_in_the_passes_that_move_theta() -> None:
    x, seen = batch(torch.ones(4, 2)), []

    def augment(x: Tensor, i: Any, key: int) -> Tensor:
        return x + torch.rand(x.shape, generator=torch.Generator().manual_seed(abs(key)))

    def objective(F: Training, K: Kernel) -> Tensor:
        seen.append(F(x))
        return seen[-1].sum()

    network = nn.Sequential(nn.Linear(2, 2))
    nn.init.eye_(network[0].weight)
    nn.init.zeros_(network[0].bias)
    F, again = (FeatureMap(network, SGD(0.0), 0, augment) for _ in range(2))
    assert torch.equal(Evaluator(F)(x).z, x.x)
    assert torch.equal(F(x), x.x)
    F.descend(objective, Linear(), 1, 2)
    assert (seen[0] > x.x).all()
    for each in (F, again):
        each.descend(objective, Linear(), 2, 2)
    assert torch.equal(seen[1], seen[2]), "what step 2 sees does not depend on the steps before it"
    assert not torch.equal(seen[0], seen[1])
