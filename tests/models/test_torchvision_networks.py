"""torchvision's networks: their stem, their two kinds of normalisation, and that they can be saved."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nsvm_cli.artifacts.model_file import Facts, SavedModel, load_model, save_model
from nsvm_cli.config.settings import parse_settings
from nsvm_cli.datasets.scaling import Scaling
from nsvm_cli.errors import InputError
from nsvm_cli.models.feature_map import Batch, FeatureMap, features
from nsvm_cli.models.kernels import RBF
from nsvm_cli.models.networks import build_network, trains_otherwise, uses_batch_statistics
from nsvm_cli.models.nsvm import NSVM, Expansion
from nsvm_cli.models.optimizers import SGD
from nsvm_cli.tasks import BINARY

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
def test_with_group_norm_features_depend_only_on_x_and_theta(name: str) -> None:
    built, x = network(name), torch.randn(4, *MNIST)
    assert not trains_otherwise(built)
    assert not uses_batch_statistics(built)
    with torch.no_grad():
        assert torch.equal(built.train()(x), built.eval()(x))
        torch.testing.assert_close(built(x)[:1], built(x[:1]))


@pytest.mark.parametrize("name", NAMES)
def test_with_batch_norm_training_depends_on_the_batch(name: str) -> None:
    built, x = network(name, "batch"), torch.randn(4, *MNIST)
    assert trains_otherwise(built)
    assert uses_batch_statistics(built)
    with torch.no_grad():
        torch.testing.assert_close(built(x)[:1], built(x[:1]))
        alone, together = built.train()(x[:1]), built(x)[:1]
    assert not torch.allclose(alone, together, atol=1e-3)


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
    settings = parse_settings(
        {
            "dataset": {"name": "digits", "augment": ["crop"]},
            "network": section,
            "kernel": {"name": "rbf", "gamma": 0.5},
            "optimizer": {"name": "sgd", "lr": 0.1},
            "algorithm": {"name": "alg4", "steps": 1, "solver_steps": 1},
            "device": "cpu",
        }
    )
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


@pytest.mark.parametrize(
    ("settings", "shape", "said"),
    [
        (
            {"name": "resnet18"},
            (20,),
            "network resnet18 expects images of at least 9x9 pixels, got",
        ),
        ({"name": "resnet18"}, (1, 8, 28), "expects images of at least 9x9 pixels"),
        ({"name": "mobilenet_v3_small"}, (1, 16, 16), "expects images of at least 17x17 pixels"),
        (
            {"name": "resnet18", "norm": "layer"},
            MNIST,
            "network.norm should be 'group' or 'batch'",
        ),
        ({"name": "resnet18", "nrm": "batch"}, MNIST, "did you mean norm?"),
        ({"name": "resnet"}, MNIST, "did you mean resnet18?"),
    ],
)
def test_bad_settings_are_refused_in_one_line(
    settings: dict[str, Any], shape: tuple[int, ...], said: str
) -> None:
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        build_network(settings, shape, seed=0)
    assert "\n" not in str(caught.value)
