"""torchvision's networks: their stem, their normalisation, and that they can be trained and saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import nn

from nsvm_cli.artifacts.model_file import Facts, SavedModel, load_model, save_model
from nsvm_cli.datasets.scaling import Scaling
from nsvm_cli.models import torchvision_networks
from nsvm_cli.models.feature_map import Batch, FeatureMap, features
from nsvm_cli.models.kernels import RBF
from nsvm_cli.models.networks import build_network, trains_otherwise
from nsvm_cli.models.nsvm import NSVM, Expansion
from nsvm_cli.models.optimizers import SGD
from nsvm_cli.models.torchvision_networks import Model
from nsvm_cli.tasks import BINARY
from tests.small_runs import small_settings

QUICK = ("resnet18", "mobilenet_v2", "mobilenet_v3_small")
MODELS = [
    model if model in QUICK else pytest.param(model, marks=pytest.mark.thorough) for model in get_args(Model)
]
COLOUR = (3, 32, 32)


def network(model: str, shape: tuple[int, ...] = COLOUR) -> nn.Module:
    return build_network({"name": "torchvision", "model": model}, shape, seed=0)


@pytest.mark.parametrize("model", MODELS)
def test_features_depend_on_the_sample_alone_and_a_step_moves_theta(model: str) -> None:
    side = torchvision_networks.SMALLEST
    F = FeatureMap(network(model, (1, side, side)), SGD(0.01), dropout_seed=0)
    x = torch.randn(2, 1, side, side)
    before = F(x)
    torch.testing.assert_close(before[:1], F(x[:1]))
    assert not torch.equal(before[0], before[1])
    assert not trains_otherwise(F.network)
    with torch.no_grad():
        assert torch.equal(F.network.train()(x), before)
    samples = Batch(x, np.arange(2))
    F.descend(lambda F: F(samples).square().sum(), 1, 1)
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


@pytest.mark.parametrize("model", MODELS)
def test_saved_and_loaded(model: str, tmp_path: Path) -> None:
    section = {"name": "torchvision", "model": model, "normalize": True, "scale": 2.0}
    kernel, dataset = {"name": "rbf", "gamma": 0.5}, {"name": "digits", "augment": ["RandomCrop"]}
    settings = small_settings(network=section, kernel=kernel, dataset=dataset)
    built, x = build_network(section, COLOUR, seed=3), torch.rand(4, *COLOUR, dtype=torch.float64)
    scaling = Scaling(torch.tensor(0.1, dtype=torch.float64), torch.tensor(0.3, dtype=torch.float64))
    z = features(built, scaling(x, torch.float32))
    expansion = Expansion(z, torch.tensor([1.0, -1.0, 1.0, -1.0]), scale=1.0)
    facts = Facts(
        scale=1.0, bias=0.0, shape=COLOUR, classes=("0", "1"), steps=1, source="here", sha256="0" * 64
    )
    trained = NSVM(BINARY, scaling, built, RBF(0.5), expansion)
    save_model(tmp_path / "model", SavedModel(trained, settings, facts))
    loaded = load_model(tmp_path / "model")
    assert loaded.settings == settings
    assert torch.equal(loaded.model.decision_function(x), trained.decision_function(x))
    for key, tensor in built.state_dict().items():
        assert torch.equal(loaded.model.network.state_dict()[key], tensor), key
