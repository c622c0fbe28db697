"""The arguments of compiled functions: named tuples of numbers and arrays that describe a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from nsvm_cli.engines.coverage import covered_parts
from nsvm_cli.models import kernels
from nsvm_cli.models.dropout import dropped_below
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import Kernel, or_one_over_n
from nsvm_cli.models.networks import CNN, MLP
from nsvm_cli.randomness import BLOCK

Real = Any
"""A number in the dtype of the features, so that nothing is computed in float64 by accident."""


class RBF(NamedTuple):
    """The RBF kernel. If ``normalized``, all features have the same length, and need not be centred."""

    gamma: Real
    normalized: bool


def kernel_form(K: Kernel, z: Tensor, normalized: bool = False) -> RBF:
    return RBF(z.numpy().dtype.type(or_one_over_n(cast(kernels.RBF, K).gamma, z)), normalized)


class Layer(NamedTuple):
    """A layer from c channels of h x w pixels to d channels of p x q pixels, followed by ReLU."""

    c: int
    h: int
    w: int
    d: int
    p: int
    q: int
    side: int  # of filters, whose output is max-pooled (2x2); 1 if the layer is fully connected
    masked: bool  # whether dropout acts on the channels
    weights: int  # index in theta of the first weight; the bias follows the weights
    below: int  # number of values of a sample that are stored before the layer's input


class Network(NamedTuple):
    """F_theta and the state of SGD. For the masks of dropout, see ``nsvm_cli.models.dropout``."""

    theta: np.ndarray  # W_1, b_1, W_2, ...; each W_l has a row for each output or channel
    layers: np.ndarray  # a row for each ``Layer``
    width: int  # number of features of a sample
    height: int  # number of values of a sample in all layers
    normalize: bool
    scale: Real
    eps: Real
    drops: bool  # whether the network has dropout
    factor: Real  # multiplies the values that are not dropped
    shared: bool  # whether the samples of a batch have the same mask
    seed: int
    dropped_below: int
    rates: np.ndarray  # the learning rate of step t at index t modulo ``BLOCK``
    momentum: Real
    weight_decay: Real
    momenta: np.ndarray  # in the layout of theta


def network_form(F: FeatureMap, shape: Sequence[int]) -> Network:
    """Return a supported F as a ``Network`` for samples of this shape. ``Network.rates`` are not set yet."""
    rule: Any = F.optimizer
    network, dropout, normalize = cast(Any, covered_parts(F.network))
    theta, layers = vector([*network.parameters()]), _layers(network, dropout.p > 0, shape)
    last, real = layers[-1], theta.dtype.type
    width = last.d * last.p * last.q
    return Network(
        theta,
        np.array(layers),
        width,
        last.below + last.c * last.h * last.w + width,
        normalize is not None,
        real(normalize.scale if normalize else 1),
        real(normalize.eps if normalize else 1),
        dropout.p > 0,
        real(1 / (1 - dropout.p)),
        dropout.shared,
        F.dropout_seed,
        dropped_below(dropout.p),
        np.empty(BLOCK, theta.dtype),
        real(rule.settings.momentum),
        real(rule.settings.weight_decay),
        vector(rule.state["momenta"]),
    )


def _layers(network: MLP | CNN, drops: bool, shape: Sequence[int]) -> list[Layer]:
    connected, layers, weights, below = isinstance(network, MLP), [], 0, 0
    parts: list[Any] = [part for part in network.modules() if isinstance(part, nn.Linear | nn.Conv2d)]
    c, h, w = (math.prod(shape), 1, 1) if connected else shape
    for part in parts:
        side = 1 if connected else part.kernel_size[0]
        d, p, q = len(part.weight), *((1, 1) if connected else ((h - side + 1) // 2, (w - side + 1) // 2))
        masked = drops and connected != (part is parts[-1])
        layers.append(Layer(c, h, w, d, p, q, side, masked, weights, below))
        weights += part.weight.numel() + d
        below += c * h * w
        c, h, w = d, p, q
    return layers


def vector(tensors: Sequence[Tensor]) -> np.ndarray:
    """Return a new vector with the numbers of all tensors."""
    return torch.cat([tensor.detach().flatten() for tensor in tensors]).numpy()


def fill(tensors: Sequence[Tensor], numbers: np.ndarray) -> None:
    """Copy the numbers of a vector to the tensors; the inverse of ``vector``."""
    sizes = [tensor.numel() for tensor in tensors]
    for tensor, part in zip(tensors, torch.from_numpy(numbers).split(sizes), strict=True):
        tensor.copy_(part.view(tensor.shape))


class Support(NamedTuple):
    """The arrays of a ``Coefficients`` object (see ``nsvm_cli.trainers.coefficients``)."""

    alpha: np.ndarray
    order: np.ndarray  # the indices of the support, with room for all samples
    joined: np.ndarray  # the size of the support
    member: np.ndarray


class Progress(NamedTuple):
    """The counters of ``State`` and ``Tally`` that steps change, as arrays."""

    t: np.ndarray
    last_violation: np.ndarray
    mean_gap: np.ndarray
    objectives: np.ndarray  # sum, number, latest value
    decided: np.ndarray  # numbers of samples, correctly classified samples, and violations
    g: np.ndarray


class Run(NamedTuple):
    """The arguments that all compiled training loops share (see ``stretches``).

    If theta is fixed, x holds the features, and F is None.
    """

    x: np.ndarray
    y: np.ndarray
    w: np.ndarray  # the weights of the samples, or empty
    lam: float
    K: RBF
    F: Network
    progress: Progress
