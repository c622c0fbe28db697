"""torchvision's networks: their stem, their two kinds of normalisation, and that they can be saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nsvm_cli.artifacts.model_file import Facts, SavedModel, load_model, save_model
from nsvm_cli.datasets.scaling import Scaling
from nsvm_cli.models.feature_map import Batch, FeatureMap, features
from nsvm_cli.models.kernels import RBF
from nsvm_cli.models.networks import build_network, trains_otherwise, uses_batch_statistics
from nsvm_cli.models.nsvm import NSVM, Expansion
from nsvm_cli.models.optimizers import SGD
from nsvm_cli.tasks import BINARY
from tests.small_runs import small_settings

FEATURES = {"resnet18": 512, "mobilenet_v3_small": 576}
SMALLEST = {"resnet18": 9, "mobilenet_v3_small": 17}
NAMES = sorted(FEATURES)
MNIST = (1, 28, 28)


def network(name: str, norm: str = "group", shape: tuple[int, ...] = MNIST, **output: Any) -> nn.Module:
    return build_network({"name": name, "norm": norm, **output}, shape, seed=0)


def step(F: FeatureMap, x: Tensor) -> None:
    samples = Batch(x, np.arange(len(x)))
    F.descend(lambda F: F(samples).square().sum(), 1, 1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [MNIST, (3, 32, 32)])
def test_features_of_small_images(name: str, shape: tuple[int, ...]) -> None:
    z = features(network(name, shape=shape), torch.randn(3, *shape))
    assert z.shape == (3, FEATURES[name])
    assert len(z.unique(dim=0)) == 3


@pytest.mark.parametrize(("name", "below_64", "from_64"), [("resnet18", 1, 4), ("mobilenet_v3_small", 1, 2)])
def test_the_stem_keeps_the_size_of_small_images(name: str, below_64: int, from_64: int) -> None:
    for pixels, factor in ((63, below_64), (64, from_64)):
        built, sizes = network(name, shape=(1, pixels, pixels)), []
        first: Any = built.layer1 if name == "resnet18" else built.get_submodule("features")[1]  # type: ignore[index]
        first.register_forward_pre_hook(lambda _, inputs, sizes=sizes: sizes.append(inputs[0].shape[-1]))
        features(built, torch.randn(1, 1, pixels, pixels))
        assert sizes == [-(-pixels // factor)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("norm", ["group", "batch"])
def test_only_batch_norm_depends_on_the_batch_and_only_in_training(name: str, norm: str) -> None:
    built, x = network(name, norm), torch.randn(4, *MNIST)
    assert trains_otherwise(built) == uses_batch_statistics(built) == (norm == "batch")
    with torch.no_grad():
        before = built(x)
        torch.testing.assert_close(before[:1], built(x[:1]))
        alone, together = built.train()(x[:1]), built(x)
    if norm == "group":
        assert torch.equal(together, before)
    else:
        assert not torch.allclose(alone, together[:1], atol=1e-3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("norm", ["group", "batch"])
def test_theta_moves_and_a_single_small_image_is_enough(name: str, norm: str) -> None:
    side = SMALLEST[name]
    F = FeatureMap(network(name, norm, (1, side, side)), SGD(0.01), dropout_seed=0)
    x = torch.randn(1, 1, side, side)
    before = F(x)
    step(F, x)
    assert F(x).isfinite().all()
    assert not torch.equal(F(x), before)
    assert not F.network.training


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_holds_the_running_averages(name: str) -> None:
    first, second = (FeatureMap(network(name, "batch"), SGD(0.01, momentum=0.9), 0) for _ in range(2))
    x = torch.randn(3, *MNIST)
    step(first, x)
    second.load_state_dict(first.state_dict())
    assert torch.equal(second(x), first(x))
    for F in (first, second):
        step(F, x)
    assert torch.equal(second(x), first(x))


@pytest.mark.parametrize(
    ("name", "norm"),
    [
        *(("resnet18", "group"), ("mobilenet_v3_small", "batch")),
        pytest.param("resnet18", "batch", marks=pytest.mark.thorough),
        pytest.param("mobilenet_v3_small", "group", marks=pytest.mark.thorough),
    ],
)
def test_saved_and_loaded(name: str, norm: str, tmp_path: Path) -> None:
    section = {"name": name, "norm": norm, "normalize": True, "scale": 2.0}
    kernel, dataset = {"name": "rbf", "gamma": 0.5}, {"name": "digits", "augment": ["RandomCrop"]}
    settings = small_settings(network=section, kernel=kernel, dataset=dataset)
    built, x = build_network(section, MNIST, seed=3), torch.rand(4, *MNIST, dtype=torch.float64)
    with torch.no_grad():
        built.train()(x.float())  # running averages, if there are any, that are not the initial ones
    built.eval()
    scaling = Scaling(torch.tensor(0.1, dtype=torch.float64), torch.tensor(0.3, dtype=torch.float64))
    z = features(built, scaling(x, torch.float32))
    expansion = Expansion(z, torch.tensor([1.0, -1.0, 1.0, -1.0]), scale=1.0)
    facts = Facts(
        scale=1.0, bias=0.0, shape=MNIST, classes=("0", "1"), steps=1, source="here", sha256="0" * 64
    )
    model = NSVM(BINARY, scaling, built, RBF(0.5), expansion)
    save_model(tmp_path / "model", SavedModel(model, settings, facts))
    loaded = load_model(tmp_path / "model")
    assert loaded.settings == settings
    assert torch.equal(loaded.model.decision_function(x), model.decision_function(x))
    for key, tensor in built.state_dict().items():
        assert torch.equal(loaded.model.network.state_dict()[key], tensor), key
