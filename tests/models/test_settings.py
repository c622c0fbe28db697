"""Invalid settings of kernels, networks and optimizers are refused with a one-line message."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from nsvm_cli.config.registry import build
from nsvm_cli.errors import InputError
from nsvm_cli.models.composed_kernels import build_kernel
from nsvm_cli.models.kernel_gradients import build_gradient
from nsvm_cli.models.networks import build_network
from nsvm_cli.models.optimizers import OPTIMIZERS


def kernel(settings: dict[str, Any]) -> object:
    return build_kernel(settings), build_gradient(settings)


def network(settings: dict[str, Any], shape: tuple[int, ...] = (20,)) -> object:
    return build_network(settings, shape, seed=0)


of_images, of_small_images = (partial(network, shape=(1, size, size)) for size in (28, 8))
of_rows, channels_last = partial(network, shape=(28, 28)), partial(network, shape=(28, 28, 3))
optimizer = partial(build, OPTIMIZERS, "optimizer")


@pytest.mark.parametrize(
    ("settings", "built", "said"),
    [
        ({"name": "rbff"}, kernel, "did you mean rbf?"),
        ({"name": "rbf", "gama": 1}, kernel, "did you mean gamma?"),
        ({"name": "rbf", "gamma": 0}, kernel, "kernel.gamma should be greater than 0, got 0"),
        ({"name": "rbf", "gamma": float("nan")}, kernel, "kernel.gamma should be greater than 0, got nan"),
        ({"name": "polynomial", "degree": 0}, kernel, "kernel.degree"),
        ({"name": "rbf", "normalize": "perhaps"}, kernel, "kernel.normalize should be a valid boolean"),
        ({"gamma": 1}, kernel, "there is no kernel None"),
        ({"name": "rbf", "gradient": "spca"}, kernel, "no kernel.gradient 'spca'; did you mean spsa?"),
        ({"name": "mlp", "widths": []}, network, "network.widths: List should have at least 1 item"),
        ({"name": "cnn", "channels": [1, 2, 3]}, of_images, "network.channels: Tuple should have at most 2"),
        ({"name": "mlp", "widths": [4, 0]}, network, "network.widths.1"),
        ({"name": "mlp"}, network, "network.widths requires a value for network=mlp"),
        ({"name": "mlp", "widths": [4], "dropout": 1}, network, "network.dropout should be less than 1"),
        ({"name": "mlp", "widths": [4], "wdths": 1}, network, "did you mean widths?"),
        ({"name": "cnn"}, network, "requires images"),
        ({"name": "cnn"}, of_small_images, "requires images"),
        ({"name": "cnn"}, of_rows, "; add a channel axis with X[:, None]"),
        ({"name": "torchvision"}, channels_last, "; put the channels first with X.transpose(0, 3, 1, 2)"),
        ({"name": "identity", "eps": 0}, network, "network.eps"),
        ({"name": "torchvision"}, network, "network resnet18 requires images of at least 17x17 pixels, got"),
        ({"name": "torchvision", "model": "resnt18"}, of_images, "network.model should be 'resnet18', "),
        ({"name": "torchvision", "modl": "resnet18"}, of_images, "did you mean model?"),
        ({"name": "torchvison"}, of_images, "there is no network 'torchvison'; did you mean torchvision?"),
        (
            {"name": "sgd", "lr": 1.0, "schedule": "cosin"},
            optimizer,
            "optimizer.schedule: there is no 'cosin'; did you mean cosine",
        ),
    ],
)
def test_a_bad_setting(settings: dict[str, Any], built: Callable[..., object], said: str) -> None:
    with pytest.raises(InputError, match=rf"^[^\n]*{re.escape(said)}[^\n]*$"):
        built(settings)
