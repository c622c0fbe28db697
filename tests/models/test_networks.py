"""Networks: the shapes of the paper, their initialisation, their two modes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from nsvm_cli.models.dropout import Dropout, Masks, dropout_masks
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import Linear
from nsvm_cli.models.networks import NETWORKS, MaxPool, build_network, trains_otherwise
from nsvm_cli.models.optimizers import SGD
from tests.conftest import batch

pytestmark = pytest.mark.usefixtures("shapes")

MLP = {"name": "mlp", "widths": [40, 30, 20, 20]}


def count(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def test_the_papers_networks() -> None:
    mlp = build_network(MLP, (20,), seed=0)
    assert [m.out_features for m in mlp.modules() if isinstance(m, nn.Linear)] == [40, 30, 20, 20]
    assert count(mlp) == 20 * 40 + 40 + 40 * 30 + 30 + 30 * 20 + 20 + 20 * 20 + 20
    assert (mlp(torch.randn(8, 20)) >= 0).all(), "the last layer is rectified as well"
    cnn = build_network({"name": "cnn", "dropout": 0.5}, (1, 28, 28), seed=0)
    assert [type(m).__name__ for m in cnn] == [
        *("Conv2d", "MaxPool", "ReLU", "Conv2d", "Dropout", "MaxPool", "ReLU", "Flatten")
    ]
    assert cnn(torch.randn(3, 1, 28, 28)).shape == (3, 320)
    assert count(cnn) == 10 * 25 + 10 + 20 * 10 * 25 + 20


def test_output_normalisation() -> None:
    scale = 2**0.5
    settings = {"name": "identity", "normalize": True, "scale": scale, "eps": 0.1}
    network = build_network(settings, (2,), seed=0)
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.03, 0.04]])
    expected = scale * torch.tensor([[0.6, 0.8], [0.0, 0.0], [0.3, 0.4]])
    torch.testing.assert_close(network(x), expected)


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_theta_depends_only_on_the_seed(name: str) -> None:
    settings, shape = ({**MLP, "name": name} if name == "mlp" else {"name": name}), (1, 28, 28)
    before = torch.get_rng_state()
    first, again, other = (build_network(settings, shape, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before), "the global generator is as it was"
    torch.rand(3)
    for p, q in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(p, q)
    differs = any(not torch.equal(p, q) for p, q in zip(first.parameters(), other.parameters(), strict=True))
    assert differs == (name != "identity")


def test_pooling_is_torchs_to_the_bit() -> None:
    h = torch.randint(0, 3, (20, 2, 7, 8), generator=torch.Generator().manual_seed(0)).float()
    with torch.no_grad():
        assert torch.equal(MaxPool()(h), torch.nn.functional.max_pool2d(h, 2))


class Swapping(nn.Module):
    """A custom module that depends on the mode."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -x if self.training else x


def test_a_network_that_may_depend_on_the_mode_is_run_in_both() -> None:
    linear = nn.Linear(3, 2)
    plain, minding = nn.Sequential(linear, nn.ReLU()), nn.Sequential(linear, Swapping())
    assert not trains_otherwise(plain)
    assert trains_otherwise(minding)
    assert not trains_otherwise(build_network({**MLP, "dropout": 0.0, "normalize": True}, (20,), seed=0))
    assert trains_otherwise(build_network({"name": "cnn", "dropout": 0.5}, (1, 28, 28), seed=0))
    x, seen = torch.randn(4, 3), []
    for network in (plain.eval(), minding.eval()):
        F = FeatureMap(network, SGD(0.0), seed=0)
        F.descend(lambda F, K: (seen.append(F(batch(x))), seen[-1].sum())[1], Linear(), 1, 1)
        torch.testing.assert_close(F(x), network(x).detach())
    torch.testing.assert_close(seen[1], -linear(x).detach())


def masks(t: int, i: Sequence[int], seed: int = 0) -> Masks:
    return Masks(seed, t, np.array(i, np.int64))


def test_a_sample_has_the_same_mask_in_every_batch() -> None:
    x, dropout = torch.ones(6, 5, 2), Dropout(0.5)
    with dropout_masks(masks(7, range(6))):
        whole, next_layer = dropout(x), dropout(x)
    with dropout_masks(masks(7, [4, 1])):
        assert torch.equal(dropout(x[:2]), whole[[4, 1]])
        assert torch.equal(dropout(x[:2]), next_layer[[4, 1]])
    with dropout_masks(masks(8, range(6))):
        assert not torch.equal(dropout(x), whole)
    assert not torch.equal(next_layer, whole)


def test_shared_dropout_has_one_mask_for_a_batch() -> None:
    x, dropout = torch.ones(6, 50), Dropout(0.5, shared=True)
    with dropout_masks(masks(7, range(6))):
        first, second = dropout(x), dropout(x)
    assert set(first.unique().tolist()) == {0.0, 2.0}
    assert (first == first[0]).all()
    assert not torch.equal(first, second), "each layer has a mask of its own"
    with dropout_masks(masks(7, [9, 3])):
        assert torch.equal(dropout(x[:2]), first[:2]), "every batch of the step has it"


def test_masks_are_independent_of_each_other() -> None:
    """Of samples, channels, layers, steps and seeds: each pair agrees in about half of 2^16 places."""
    drawn = []
    for seed, t in product((0, 1), (1, 2)):
        both = masks(t, range(256), seed)
        drawn += [both.next(torch.empty(256, 256), 0.5, False) > 0 for _ in range(2)]
    one = drawn[0]
    shifted = [one.roll(1, 0), one.roll(1, 1), one.roll(7, 1), one.T]
    deviations = [float((one == other).double().mean() - 0.5) for other in (*drawn[1:], *shifted)]
    assert max(map(abs, deviations)) < 4 * 0.5 / 256
    assert abs(float(one.double().mean()) - 0.5) < 4 * 0.5 / 256
    rows = one.double().mean(1)
    assert stats.kstest((rows - 0.5) * 2 * 16, "norm").pvalue > 1e-4


def test_dropout_drops_whole_channels_and_keeps_the_mean() -> None:
    with dropout_masks(masks(0, range(400))):
        y = Dropout(0.3)(torch.ones(400, 50, 2, 2))
    per_channel = y.flatten(2)
    assert torch.equal(per_channel.amin(-1), per_channel.amax(-1))
    torch.testing.assert_close(y.unique(), torch.tensor([0.0, 1 / 0.7]))
    assert abs(float(y.mean()) - 1) < 0.02
