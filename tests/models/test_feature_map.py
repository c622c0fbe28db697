"""Theta steps: with closed forms, with autograd, and from earlier evaluations."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from nsvm_cli.models.feature_map import FeatureMap, differentiate
from nsvm_cli.models.optimizers import SGD


def theta() -> FeatureMap:
    network = nn.Sequential(nn.Linear(3, 2)).double()
    with torch.no_grad():
        for p in network.parameters():
            p.copy_(torch.arange(float(p.numel())).view(p.shape) / 10)
    return FeatureMap(network.eval(), SGD(0.1), dropout_seed=0)


def closed(z: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    return z.square().sum(), [2 * z]


def test_descend_takes_an_optimizer_step() -> None:
    """Compare with theta - 0.1 times the gradient of ||W x + b||^2."""
    x = torch.tensor([[1.0, -2.0, 0.5]]).double()
    before, F = theta(), theta()
    W, b = before.network[0].weight, before.network[0].bias
    z = x @ W.T + b
    z.square().sum().backward()
    assert W.grad is not None
    assert b.grad is not None
    assert F.descend([x], closed, 1, 1) == z.square().sum()
    torch.testing.assert_close(F.network[0].weight, W - 0.1 * W.grad)
    torch.testing.assert_close(F.network[0].bias, b - 0.1 * b.grad)


def test_evaluations_and_autograd_give_the_same_theta() -> None:
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).double()
    results = []
    for way in ("x", "evaluation", "rows", "autograd"):
        F = theta()
        seen = F.evaluate(x)
        if way == "rows":
            two = lambda a, b: (a.sum() * 0, [*closed(a)[1], *closed(b)[1]])  # noqa: E731
            F.descend([seen.rows(np.array([1])), seen.rows(np.array([0, 3]))], two, 1, 1)
            other = theta()
            other.descend([x[[0, 1, 3]]], closed, 1, 1)
            torch.testing.assert_close(F(x), other(x))
            continue
        at = seen if way == "evaluation" else x
        objective = differentiate(lambda z: z.square().sum()) if way == "autograd" else closed
        F.descend([at], objective, 1, 1)
        results.append(F(x))
    for result in results[1:]:
        torch.testing.assert_close(result, results[0])


def test_a_network_without_free_parameters_stays_unchanged() -> None:
    """This includes its buffers, such as running averages."""
    network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).eval().requires_grad_(False)
    F, x = FeatureMap(network, SGD(0.1), dropout_seed=0), torch.randn(6, 3)
    assert F.fixed
    before = F(x)
    F.descend([F.evaluate(x)], closed, 1, 1)
    assert torch.equal(F(x), before)


def test_augmentation_acts_only_in_the_pass_that_moves_theta() -> None:
    x, seen = torch.ones(4, 2), []

    def augment(x: torch.Tensor, generator: torch.Generator, rows: object) -> torch.Tensor:
        return x + torch.rand(x.shape, generator=generator)

    def objective(z: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        seen.append(z)
        return z.sum(), [torch.ones_like(z)]

    def feature_map() -> FeatureMap:
        network = torch.nn.Sequential(torch.nn.Linear(2, 2))
        torch.nn.init.eye_(network[0].weight)
        torch.nn.init.zeros_(network[0].bias)
        return FeatureMap(network, SGD(0.0), 0, augment, augment_seed=7)

    F = feature_map()
    assert torch.equal(F.evaluate(x).z, x)
    assert torch.equal(F(x), x)
    F.descend([F.evaluate(x)], objective, 1, 2)
    assert (seen[0] > x).all()
    again = feature_map()
    again.load_state_dict(F.state_dict())
    for each in (F, again):
        each.descend([x], objective, 2, 2)
    assert torch.equal(seen[1], seen[2]), "a resumed run augments as the run that never stopped"
    assert not torch.equal(seen[0], seen[1])
