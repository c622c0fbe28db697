"""torchvision's networks: their stem, their normalisation, and that they can be trained and saved."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import nn

from nsvm_cli.datasets.torchvision_import import import_torchvision
from nsvm_cli.models.feature_map import FeatureMap, at_start, features
from nsvm_cli.models.kernels import Linear
from nsvm_cli.models.networks import SMALLEST_SIDE, Model, build_network, trains_otherwise
from nsvm_cli.models.optimizers import SGD
from tests.conftest import batch
from tests.small_runs import small_settings

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
