"""torchvision's classifiers without their last layers, and with a stem that suits small images.

Weights are initialised as in torchvision and never downloaded.
"""

from __future__ import annotations

from typing import Any, Literal, cast

from torch import nn

from nsvm_cli.datasets.torchvision_import import import_torchvision
from nsvm_cli.errors import InputError

SMALLEST = 17
"""The fewest pixels per side: the last layers of a small image then see 2x2 pixels."""

LARGE_SIDE = 64
"""Images with fewer pixels per side get a stem that keeps their size: torchvision's stems are made for 224
pixels, and divide the sides by 2 or 4."""

GROUPS = 8
"""Number of groups in GroupNorm; it divides the number of channels of every layer."""

Model = Literal[
    "resnet18",
    "resnet34",
    "resnet50",
    "resnext50_32x4d",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "mobilenet_v3_large",
]
"""The classifiers that were tried: what is kept of them has no dropout and no statistics of a batch."""


def torchvision_network(
    shape: tuple[int, ...], model: Model = "resnet18", norm: Literal["group", "batch"] = "group"
) -> nn.Module:
    """Return one of torchvision's classifiers up to its features.

    With GroupNorm in place of BatchNorm, F_theta(x) depends on x alone in training, too; torchvision's own
    weights need BatchNorm. For images below 64 pixels per side, the first convolution is 3x3 with
    stride 1, and ResNets have no max-pooling after it.

    Raises:
        InputError: samples of this shape are not images, or too small.
    """
    if len(shape) != 3 or min(shape[1:]) < SMALLEST:
        raise InputError(
            f"network {model} expects images of at least {SMALLEST}x{SMALLEST} pixels, got samples of "
            f"shape {shape}"
        )
    factory = getattr(import_torchvision("models"), model)
    group = lambda channels: nn.GroupNorm(GROUPS, channels)  # noqa: E731
    network: Any = factory(weights=None, norm_layer=group if norm == "group" else None)
    place, first = next((n, m) for n, m in network.named_modules() if isinstance(m, nn.Conv2d))
    size, stride = first.kernel_size[0], first.stride[0]
    if min(shape[1:]) < LARGE_SIDE:
        size, stride = 3, 1
        if hasattr(network, "maxpool"):
            network.maxpool = nn.Identity()
    stem = nn.Conv2d(shape[0], first.out_channels, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(stem.weight, mode="fan_out", nonlinearity="relu")
    network.set_submodule(place, stem)
    setattr(network, "fc" if hasattr(network, "fc") else "classifier", nn.Identity())
    return cast(nn.Module, network)
