"""Networks: the paper's architectures, initialisation, training mode, dropout, and torchvision's models."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from nsvm_cli.datasets.torchvision_import import import_torchvision
from nsvm_cli.errors import InputError
from nsvm_cli.models.dropout import Dropout, Masks, dropout_masks
from nsvm_cli.models.feature_map import FeatureMap, at_start, features
from nsvm_cli.models.kernels import Linear
from nsvm_cli.models.networks import NETWORKS, SMALLEST_SIDE, MaxPool, Model, build_network, trains_otherwise
from nsvm_cli.models.optimizers import SGD
from tests.conftest import batch
from tests.small_runs import small_settings

pytestmark = pytest.mark.usefixtures("shapes")

MLP = {"name": "mlp", "widths": [40, 30, 20, 20]}


def count(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def test_the_papers_networks() -> None:
    mlp = build_network(MLP, (20,), seed=0)
    assert [m.out_features for m in mlp.modules() if isinstance(m, nn.Linear)] == [40, 30, 20, 20]
    assert count(mlp) == 20 * 40 + 40 + 40 * 30 + 30 + 30 * 20 + 20 + 20 * 20 + 20
    assert (mlp(torch.randn(8, 20)) >= 0).all(), "expected a ReLU after the last layer"
    cnn = build_network({"name": "cnn", "dropout": 0.5}, (1, 28, 28), seed=0)
    assert [type(m).__name__ for m in cnn] == [
        *("Conv2d", "MaxPool", "ReLU", "Conv2d", "Dropout", "MaxPool", "ReLU", "Flatten")
    ]
    assert cnn(torch.randn(3, 1, 28, 28)).shape == (3, 320)
    assert count(cnn) == 10 * 25 + 10 + 20 * 10 * 25 + 20


def test_the_deep_cnn() -> None:
    network = build_network({"name": "deep_cnn", "channels": [8, 16, 24]}, (1, 28, 28), seed=0)
    assert network(torch.randn(3, 1, 28, 28)).shape == (3, 24)
    convolutions = 8 * 25 + 9 * (8 * 16 + 16 * 16 + 16 * 24 + 24 * 24)
    assert count(network) == convolutions + 2 * (8 + 16 + 16 + 24 + 24)
    assert not trains_otherwise(network)
    assert trains_otherwise(build_network({"name": "deep_cnn", "norm": "batch"}, (1, 8, 8), seed=0))
    with pytest.raises(InputError, match=r"channels=\[8, 12\]: expected multiples of 8"):
        build_network({"name": "deep_cnn", "channels": [8, 12]}, (1, 28, 28), seed=0)
    with pytest.raises(InputError, match="images of at least 8x8 pixels"):
        build_network({"name": "deep_cnn"}, (1, 7, 8), seed=0)


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
    assert torch.equal(torch.get_rng_state(), before), "building a network changed the global generator"
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
    """A user-defined module that depends on the mode."""

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
    assert not torch.equal(first, second), "expected a different mask for each layer"
    with dropout_masks(masks(7, [9, 3])):
        assert torch.equal(dropout(x[:2]), first[:2]), "expected the same mask in every batch of a step"


def test_masks_are_independent_of_each_other() -> None:
    """Masks of different samples, channels, layers, steps or seeds agree in about half of 2^16 places."""
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


QUICK = ("resnet18", "mobilenet_v2", "mobilenet_v3_small")
MODELS = [
    model if model in QUICK else pytest.param(model, marks=pytest.mark.thorough) for model in get_args(Model)
]


def network(model: str, shape: tuple[int, ...]) -> nn.Module:
    return build_network({"name": "torchvision", "model": model}, shape, seed=0)


@pytest.mark.parametrize("model", MODELS)
def test_features_depend_on_the_sample_alone_and_a_step_moves_theta(model: str) -> None:
    side = SMALLEST_SIDE
    F = FeatureMap(network(model, (1, side, side)), SGD(0.01), seed=0)
    x = torch.randn(2, 1, side, side)
    before = F(x)
    torch.testing.assert_close(before[:1], F(x[:1]))
    assert not torch.equal(before[0], before[1])
    assert not trains_otherwise(F.network)
    with torch.no_grad():
        assert torch.equal(F.network.train()(x), before)
    F.descend(lambda F, K: F(batch(x)).square().sum(), Linear(), 1, 1)
    assert F(x).isfinite().all()
    assert not torch.equal(F(x), before)


@pytest.mark.parametrize(
    ("model", "below_64", "from_64"),
    [("resnet18", 1, 4), ("mobilenet_v2", 1, 2), ("mobilenet_v3_small", 1, 2)],
)
def test_the_stem_keeps_the_size_of_small_images(model: str, below_64: int, from_64: int) -> None:
    for pixels, factor in ((63, below_64), (64, from_64)):
        built, sizes = network(model, shape=(1, pixels, pixels)), []
        first: Any = built.layer1 if model == "resnet18" else built.get_submodule("features")[1]  # type: ignore[index]
        first.register_forward_pre_hook(lambda _, inputs, sizes=sizes: sizes.append(inputs[0].shape[-1]))
        features(built, torch.randn(1, 1, pixels, pixels))
        assert sizes == [-(-pixels // factor)]


def test_weights_of_torchvision_are_taken_and_frozen_with_their_statistics(tmp_path: Path) -> None:
    theirs: Any = import_torchvision("models").resnet18(weights=None)
    for module in theirs.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean)
    file = tmp_path / "resnet18.pth"
    torch.save(theirs.state_dict(), file)
    settings = small_settings(
        network={"name": "torchvision", "model": "resnet18", "norm": "batch"}, init={"run": str(file)}
    )
    ours, _ = at_start(settings, (3, 64, 64), (), torch.zeros(()))
    x = torch.randn(4, 3, 64, 64)
    expected = nn.Sequential(*[*theirs.eval().children()][:-1], nn.Flatten())(x)
    torch.testing.assert_close(features(ours, x), expected)
    F = FeatureMap(ours, SGD(1e-3), seed=0, freeze=["conv1", "bn1", "layer1", "layer2", "layer3"])
    before = deepcopy(ours.state_dict())
    F.descend(lambda F, K: F(batch(x)).square().mean(), Linear(), 1, 1)
    moved = {name.partition(".")[0] for name, v in ours.state_dict().items() if not v.equal(before[name])}
    assert moved == {"layer4"}
