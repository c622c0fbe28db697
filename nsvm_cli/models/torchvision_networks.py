"""torchvision's networks without their classifier, and with a stem that suits small images.

Weights are initialised as in torchvision and never downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

from pydantic import validate_call
from torch import nn

from nsvm_cli.errors import InputError
from nsvm_cli.torchvision_import import import_torchvision

LARGE_SIDE = 64
"""Images with fewer pixels per side get a stem that keeps their size: torchvision's stems are made for 224
pixels, and divide the sides by 2 or 4."""

GROUPS = 8
"""Number of groups in GroupNorm; it divides the number of channels of every layer."""

Norm = Literal["group", "batch"]

MODELESS = frozenset(
    {
        "torchvision.models.resnet.ResNet",
        "torchvision.models.resnet.BasicBlock",
        "torchvision.models.mobilenetv3.MobileNetV3",
        "torchvision.models.mobilenetv3.InvertedResidual",
        "torchvision.ops.misc.Conv2dNormActivation",
        "torchvision.ops.misc.SqueezeExcitation",
    }
)
"""Modules that compute the same in both modes if their submodules do; by name, so that other networks can be
checked without importing torchvision."""


@validate_call
def resnet18(shape: tuple[int, ...], norm: Norm = "group") -> nn.Module:
    """Return torchvision's ResNet-18, with features in R^512.

    For images below 64 pixels per side, the stem is a 3x3 convolution of stride 1 without max-pooling.

    Args:
        shape: channels, height and width of an image.
        norm: ``group`` for GroupNorm; ``batch`` for BatchNorm, which makes F_theta(x) depend on the other
            samples of the batch in theta steps, and on running averages otherwise.

    Raises:
        InputError: samples of this shape are not images, or too small.
    """
    _expect_images("resnet18", shape, smallest=9)
    network = import_torchvision("models").resnet18(weights=None, norm_layer=_norm_layer(norm))
    if min(shape[1:]) < LARGE_SIDE:
        network.conv1 = _convolution(shape[0], 64, size=3, stride=1)
        network.maxpool = nn.Identity()
    else:
        network.conv1 = _convolution(shape[0], 64, size=7, stride=2)
    network.fc = nn.Identity()
    return cast(nn.Module, network)


@validate_call
def mobilenet_v3_small(shape: tuple[int, ...], norm: Norm = "group") -> nn.Module:
    """Return torchvision's small MobileNetV3, with features in R^576. It takes a tenth of ResNet-18's time.

    For images below 64 pixels per side, the first convolution has stride 1.

    Args:
        shape: channels, height and width of an image.
        norm: as in ``resnet18``.

    Raises:
        InputError: samples of this shape are not images, or too small.
    """
    _expect_images("mobilenet_v3_small", shape, smallest=17)
    network = import_torchvision("models").mobilenet_v3_small(weights=None, norm_layer=_norm_layer(norm))
    stride = 1 if min(shape[1:]) < LARGE_SIDE else 2
    network.features[0][0] = _convolution(shape[0], 16, size=3, stride=stride)
    network.classifier = nn.Identity()
    return cast(nn.Module, network)


def _expect_images(name: str, shape: tuple[int, ...], smallest: int) -> None:
    """Raise an InputError for anything but images of at least ``smallest`` pixels per side.

    At that size the last layers see 2x2 pixels: with a single one, BatchNorm could not estimate a variance
    from a batch of one sample.
    """
    if len(shape) != 3 or min(shape[1:]) < smallest:
        raise InputError(
            f"network {name} expects images of at least {smallest}x{smallest} pixels, got samples of "
            f"shape {shape}"
        )


def _norm_layer(norm: Norm) -> Callable[[int], nn.Module]:
    return nn.BatchNorm2d if norm == "batch" else lambda channels: nn.GroupNorm(GROUPS, channels)


def _convolution(channels: int, out: int, size: int, stride: int) -> nn.Conv2d:
    """Return a first convolution, initialised as in torchvision."""
    convolution = nn.Conv2d(channels, out, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return convolution
