"""Networks of torchvision at the size of the data: a stem for small images, and no classifier.

Their weights are initialised as torchvision does it, and never downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

from pydantic import validate_call
from torch import nn

from nsvm_cli.errors import InputError
from nsvm_cli.torchvision_import import import_torchvision

SMALL = 64
"""Images of fewer pixels a side meet a stem that keeps their size: torchvision's own is made for 224 pixels,
and divides the sides by 2 or 4."""

GROUPS = 8
"""Groups of channels in GroupNorm; divides the number of channels of every layer."""

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
"""Modules that compute the same in both modes if their submodules do. By name, so that whoever asks about
another network need not import torchvision."""


@validate_call
def resnet18(shape: tuple[int, ...], norm: Norm = "group") -> nn.Module:
    """Return torchvision's ResNet-18, whose features are in R^512.

    Below 64 pixels a side, its stem is one 3x3 convolution of stride 1 and no max-pooling.

    Args:
        shape: channels, height and width of an image.
        norm: ``group`` for GroupNorm; ``batch`` for BatchNorm, with which F_theta(x) depends on the other
            samples of the batch while theta moves, and on running averages otherwise.
    """
    _expect_images("resnet18", shape, smallest=9)
    network = import_torchvision("models").resnet18(weights=None, norm_layer=_norm_layer(norm))
    if min(shape[1:]) < SMALL:
        network.conv1 = _convolution(shape[0], 64, size=3, stride=1)
        network.maxpool = nn.Identity()
    else:
        network.conv1 = _convolution(shape[0], 64, size=7, stride=2)
    network.fc = nn.Identity()
    return cast(nn.Module, network)


@validate_call
def mobilenet_v3_small(shape: tuple[int, ...], norm: Norm = "group") -> nn.Module:
    """Return torchvision's small MobileNetV3, whose features are in R^576: a tenth of ResNet-18's time.

    Below 64 pixels a side, its first convolution has stride 1.

    Args:
        shape: channels, height and width of an image.
        norm: as in ``resnet18``.
    """
    _expect_images("mobilenet_v3_small", shape, smallest=17)
    network = import_torchvision("models").mobilenet_v3_small(weights=None, norm_layer=_norm_layer(norm))
    stride = 1 if min(shape[1:]) < SMALL else 2
    network.features[0][0] = _convolution(shape[0], 16, size=3, stride=stride)
    network.classifier = nn.Identity()
    return cast(nn.Module, network)


def _expect_images(name: str, shape: tuple[int, ...], smallest: int) -> None:
    """With ``smallest`` pixels a side the last layers see 2x2 pixels; of one alone, BatchNorm could not tell
    a variance where a batch is a single sample."""
    if len(shape) != 3 or min(shape[1:]) < smallest:
        raise InputError(
            f"network {name} expects images of at least {smallest}x{smallest} pixels, got samples of "
            f"shape {shape}"
        )


def _norm_layer(norm: Norm) -> Callable[[int], nn.Module]:
    return nn.BatchNorm2d if norm == "batch" else lambda channels: nn.GroupNorm(GROUPS, channels)


def _convolution(channels: int, out: int, size: int, stride: int) -> nn.Conv2d:
    """Return a first convolution, initialised as torchvision does it."""
    convolution = nn.Conv2d(channels, out, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return convolution
