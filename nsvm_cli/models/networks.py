"""The networks F_theta, and the normalisation of their output.

A network is an ``nn.Module`` that maps samples of shape (batch, ...) to features of shape (batch, n). The
first argument of its constructor is the shape of one sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Annotated, Any, Literal, cast

import torch
from jaxtyping import Float
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn import functional

from nsvm_cli.config.registry import STRICT, Fraction, Positive, Registry, build, construct, keeps
from nsvm_cli.datasets.torchvision_import import import_torchvision
from nsvm_cli.errors import InputError, first_line, out_of_memory
from nsvm_cli.models.dropout import TORCH_LAYERS, Dropout, TorchDropout
from nsvm_cli.plugins import location
from nsvm_cli.randomness import seeded

Shape = tuple[int, ...]
Width = Annotated[int, Field(ge=1, le=2**30)]
Widths = Annotated[list[Width], Field(min_length=1, max_length=1000)]


class Identity(nn.Flatten):
    """F(x) = x, with images flattened."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()


class MLP(nn.Module):
    """Fully connected layers, each followed by ReLU (paper, Section 5.1: widths 40, 30, 20, 20)."""

    def __init__(
        self, shape: Shape, widths: Widths, dropout: Fraction = 0.0, shared_dropout: bool | None = None
    ) -> None:
        super().__init__()
        sizes = zip([math.prod(shape), *widths], widths, strict=False)
        self.layers = cast(Sequence[nn.Linear], nn.ModuleList(nn.Linear(p, q) for p, q in sizes))
        self.dropout = Dropout(dropout, bool(shared_dropout))

    def forward(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch n"]:
        z = x.flatten(1)
        for i, layer in enumerate(self.layers):
            if i > 0 and self.dropout.p > 0:  # the features themselves have no dropout
                z = self.dropout(z)
            # for small layers, calling the module would take twice as long
            z = functional.linear(z, layer.weight, layer.bias).relu()
        return z


class MaxPool(nn.Module):
    """The maximum of each 2x2 square. A trailing odd row or column is ignored."""

    def forward(self, h: Float[Tensor, "batch c p q"]) -> Float[Tensor, "batch c r s"]:
        if torch.is_grad_enabled():
            return functional.max_pool2d(h, 2)
        p, q = (side // 2 * 2 for side in h.shape[-2:])  # on a CPU, torch's pooling would take twice as long
        rows = torch.maximum(h[:, :, :p:2, :q], h[:, :, 1:p:2, :q])
        return torch.maximum(rows[..., ::2], rows[..., 1::2])


def expect_images(network: str, shape: Shape, side: int) -> None:
    """Raise an InputError unless samples are images (channels, height, width) of ``side`` pixels or more."""
    if len(shape) == 3 and min(shape[1:]) >= side:
        return
    hint = ""
    if len(shape) == 2:
        hint = "; add a channel axis with X[:, None]"
    elif len(shape) == 3 and shape[2] in (1, 3) and min(shape[:2]) >= side:
        hint = "; put the channels first with X.transpose(0, 3, 1, 2)"
    expected = f"images of at least {side}x{side} pixels"
    raise InputError(f"network {network} requires {expected}, got samples of shape {shape}{hint}")


class CNN(nn.Sequential):
    """Two 5x5 convolutions, each followed by max-pooling and ReLU (paper, Section 5.2: features in R^320)."""

    def __init__(
        self,
        shape: Shape,
        channels: tuple[Width, Width] = (10, 20),
        dropout: Fraction = 0.0,
        shared_dropout: bool | None = None,
    ) -> None:
        expect_images("cnn", shape, 16)
        c1, c2 = channels
        super().__init__(
            nn.Conv2d(shape[0], c1, 5),
            MaxPool(),
            nn.ReLU(),
            nn.Conv2d(c1, c2, 5),
            Dropout(dropout, bool(shared_dropout)),
            MaxPool(),
            nn.ReLU(),
            nn.Flatten(),
        )


Norm = Literal["group", "batch"]

GROUPS = 8
"""Number of groups in GroupNorm, which divides the number of channels of every layer."""


def group_norm(channels: int) -> nn.Module:
    return nn.GroupNorm(GROUPS, channels)


class DeepCNN(nn.Sequential):
    """A 5x5 convolution and blocks of two 3x3 convolutions, with max-pooling before each block.

    Each convolution is followed by normalisation and ReLU, and ``channels`` contains the number of channels
    of each block, as in VGG networks (Simonyan and Zisserman 2015). The features are the means of the last
    channels over all pixels.
    """

    def __init__(
        self,
        shape: Shape,
        channels: Annotated[tuple[Width, ...], Field(min_length=2, max_length=4)] = (32, 64, 128),
        norm: Norm = "group",
    ) -> None:
        expect_images("deep_cnn", shape, 4 + 2 ** (len(channels) - 1))
        normalise = group_norm if norm == "group" else nn.BatchNorm2d
        if norm == "group" and any(c % GROUPS for c in channels):
            raise ValueError(f"channels={[*channels]}: expected multiples of {GROUPS} with norm=group")

        def convolution(c: int, d: int, side: int, padding: int) -> list[nn.Module]:
            return [nn.Conv2d(c, d, side, padding=padding, bias=False), normalise(d), nn.ReLU()]

        layers = convolution(shape[0], channels[0], 5, 0)
        for c, d in pairwise(channels):
            layers += [MaxPool(), *convolution(c, d, 3, 1), *convolution(d, d, 3, 1)]
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


SMALLEST_SIDE = 17
"""Minimum number of pixels per side, with which the last layers receive 2x2 pixels."""

LARGE_SIDE = 64
"""Minimum number of pixels per side for torchvision's own first layers, which divide the sides by 2 or 4."""

Model = Literal[
    "resnet18",
    "resnet34",
    "resnet50",
    "resnext50_32x4d",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "mobilenet_v3_large",
]
"""The supported classifiers of torchvision, which have no dropout before the features."""


def torchvision_network(shape: Shape, model: Model = "resnet18", norm: Norm = "group") -> nn.Module:
    """Return one of torchvision's classifiers, randomly initialised and without its last layer.

    With GroupNorm instead of BatchNorm, F_theta(x) depends on x alone, also in training. For images below 64
    pixels per side, the first convolution is 3x3 with stride 1, and ResNets have no max-pooling after it.
    """
    expect_images(model, shape, SMALLEST_SIDE)
    factory = getattr(import_torchvision("models"), model)
    network: Any = factory(weights=None, norm_layer=group_norm if norm == "group" else None)
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
    return network


class Normalize(nn.Module):
    """Map z to scale z / max(||z||, eps)  (paper, Section 5: scale 1 for Ringnorm, sqrt 2 for MNIST)."""

    def __init__(self, scale: float, eps: float) -> None:
        super().__init__()
        self.scale, self.eps = scale, eps

    def forward(self, z: Float[Tensor, "batch n"]) -> Float[Tensor, "batch n"]:
        norm = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
        return z * (self.scale / norm.clamp_min(self.eps))


class WithOutput(nn.Sequential):
    """A network followed by a module that a setting in ``Output`` adds."""


def own_name(network: nn.Module, name: str) -> str:
    """Return a parameter's or module's name without the prefixes of ``WithOutput``, or ``head.NAME``."""
    place, _, rest = name.partition(".")
    if not isinstance(network, WithOutput):
        return name
    return own_name(network[0], rest) if place == "0" else f"head.{rest}".strip(".")


@dataclass(frozen=True, config=STRICT)
class Output:
    """Settings that apply to the output of any network.

    ``normalize`` adds ``Normalize(scale, eps)``. ``head`` adds a linear layer onto R, or R^C for C > 2
    classes.
    """

    normalize: bool = False
    scale: Positive = 1.0
    eps: Positive = 1e-8
    head: bool = False


TUNED = {"normalize": "${tuned:network.normalize,false}", "scale": "${tuned:network.scale,1.0}"}
OUTPUT = asdict(Output()) | TUNED

NETWORKS: Registry[Callable[..., nn.Module]] = Registry("network", nn.Module, 1, **OUTPUT)
NETWORKS |= {
    "mlp": MLP,
    "cnn": CNN,
    "deep_cnn": DeepCNN,
    "identity": Identity,
    "torchvision": torchvision_network,
}


_NO_MODES = {nn.Sequential, nn.ModuleList, nn.Flatten, nn.Linear, nn.Conv2d, nn.ReLU, nn.Tanh, nn.MaxPool2d}
_NO_MODES |= {nn.GroupNorm, nn.AdaptiveAvgPool2d, nn.Hardswish, nn.Hardsigmoid, nn.ReLU6, nn.Identity}
_NO_MODES |= {MLP, MaxPool, Normalize, Dropout}
_CONTAINERS = "torchvision.models.", "torchvision.ops.misc"  # have modes only if their submodules have


def has_modes(network: nn.Module) -> bool:
    """Return whether training mode may change the network's outputs, apart from dropout."""
    return not all(
        any(keeps(type(module), kind, "forward") for kind in _NO_MODES)
        or type(module).__module__.startswith(_CONTAINERS)
        for module in network.modules()
    )


def trains_otherwise(network: nn.Module) -> bool:
    """Return whether features may differ between training and evaluation."""
    drops = any(isinstance(module, Dropout) and module.p > 0 for module in network.modules())
    return drops or has_modes(network)


def build_network(settings: Mapping[str, Any], shape: Shape, seed: int, outputs: Shape = ()) -> nn.Module:
    """Return the network selected in a ``network:`` section, with initial parameters and in evaluation mode.

    ``settings`` may contain the settings in ``Output``. ``shape`` is the shape of one sample, and ``outputs``
    the shape of one decision value, which a head needs. An InputError is raised for invalid settings.
    """
    values = dict(settings)
    output = construct(Output, "network", {key: values.pop(key) for key in OUTPUT if key in values})
    with seeded(seed):
        try:
            network = build(NETWORKS, "network", values, shape)
        except (RuntimeError, MemoryError, OverflowError) as error:  # torch's messages may be long
            raise out_of_memory(error) or InputError(
                f"network {settings['name']} cannot be built: {first_line(error)[:200]}{location(error)}"
            ) from error
        if output.normalize:
            network = WithOutput(network, Normalize(output.scale, output.eps))
        if output.head:
            with torch.no_grad():
                n = network.eval()(torch.zeros(1, *shape)).shape[1]
            network = WithOutput(network, nn.Linear(n, math.prod(outputs)))
    for name, module in [*network.named_modules(remove_duplicate=False)]:
        if name and type(module) in TORCH_LAYERS and module.p < 1:
            network.set_submodule(name, TorchDropout(module))
    return network.eval()
