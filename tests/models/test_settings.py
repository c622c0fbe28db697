"""Settings of kernels, networks and optimizers: a bad one is refused in one line."""

from __future__ import annotations

import re
from typing import Any

import pytest

from nsvm_cli.config.registry import build
from nsvm_cli.errors import InputError
from nsvm_cli.models.kernel_gradients import build_gradient
from nsvm_cli.models.kernels import build_kernel
from nsvm_cli.models.networks import build_network
from nsvm_cli.models.optimizers import OPTIMIZERS

TABLE, MNIST = (20,), (1, 28, 28)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"name": "rbff"}, "did you mean rbf?"),
        ({"name": "rbf", "gama": 1}, "did you mean gamma?"),
        ({"name": "rbf", "gamma": 0}, "kernel.gamma should be greater than 0, got 0"),
        ({"name": "rbf", "gamma": float("nan")}, "kernel.gamma should be greater than 0, got nan"),
        ({"name": "polynomial", "degree": 0}, "kernel.degree"),
        ({"name": "rbf", "normalize": "perhaps"}, "kernel.normalize should be true or false"),
        ({"gamma": 1}, "there is no kernel None"),
        ({"name": "rbf", "gradient": "spca"}, "no kernel.gradient 'spca'; did you mean spsa?"),
    ],
)
def test_of_a_kernel(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=rf"^[^\n]*{re.escape(said)}[^\n]*$"):
        build_kernel(settings), build_gradient(settings)


@pytest.mark.parametrize(
    ("settings", "shape", "said"),
    [
        ({"name": "mlp", "widths": []}, TABLE, "network.widths: List should have at least 1 item"),
        ({"name": "cnn", "channels": [1, 2, 3]}, MNIST, "network.channels: Tuple should have at most 2"),
        ({"name": "mlp", "widths": [4, 0]}, TABLE, "network.widths.1"),
        ({"name": "mlp"}, TABLE, "network.widths: mlp needs a value"),
        ({"name": "mlp", "widths": [4], "dropout": 1}, TABLE, "network.dropout should be less than 1"),
        ({"name": "mlp", "widths": [4], "wdths": 1}, TABLE, "did you mean widths?"),
        ({"name": "cnn"}, TABLE, "expects images"),
        ({"name": "cnn"}, (1, 8, 8), "expects images"),
        ({"name": "identity", "eps": 0}, TABLE, "network.eps"),
        ({"name": "torchvision"}, TABLE, "network resnet18 expects images of at least 17x17 pixels, got"),
        ({"name": "torchvision", "model": "resnt18"}, MNIST, "network.model should be 'resnet18', "),
        ({"name": "torchvision", "modl": "resnet18"}, MNIST, "did you mean model?"),
        ({"name": "torchvison"}, MNIST, "there is no network 'torchvison'; did you mean torchvision?"),
    ],
)
def test_of_a_network(settings: dict[str, Any], shape: tuple[int, ...], said: str) -> None:
    with pytest.raises(InputError, match=rf"^[^\n]*{re.escape(said)}[^\n]*$"):
        build_network(settings, shape, seed=0)


def test_of_an_optimizer() -> None:
    with pytest.raises(InputError, match=r"optimizer\.schedule: there is no 'cosin'; did you mean cosine"):
        build(OPTIMIZERS, "optimizer", {"name": "sgd", "lr": 1.0, "schedule": "cosin"})
