"""What compiled functions get of a run, as numbers and arrays, and how these are made.

Numbers that are multiplied with features have their type, so that nothing is computed in float64 by accident.
"""

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
"""A number in the type of the features."""


class RBF(NamedTuple):
    """The kernel. Unless its features are ``normalized`` to the same length, they may be far from 0, compared
    with their distances: these are then those of differences, so that fewer of their digits cancel.
    """

    gamma: Real
    normalized: bool


def kernel_form(K: Kernel, z: Tensor, normalized: bool = False) -> RBF:
    return RBF(z.numpy().dtype.type(or_one_over_n(cast(kernels.RBF, K).gamma, z)), normalized)


class Layer(NamedTuple):
    """A layer from ``c`` channels of h x w pixels to ``d`` channels of p x q, then ReLU.

    With ``side`` 1 it is fully connected, and has single pixels. Otherwise it is a convolution with filters
    of that side, and the maximum of each 2x2 square. ``masked`` says whether dropout acts on its channels.
    Its ``weights``, and then its bias, begin at that place in theta, and ``below`` numbers of each sample
    come before the values below it.
    """

    c: int
    h: int
    w: int
    d: int
    p: int
    q: int
    side: int
    masked: bool
    weights: int
    below: int


class Network(NamedTuple):
    """F_theta: ``layers``, and perhaps ``Normalize``; and SGD, which moves theta.

    ``layers`` has a row for each, see ``Layer``. ``theta`` has W_1, b_1, W_2, ... one after the other, each
    W_l with a row for each output or channel. A sample has ``width`` features, and with all values before
    these ``height`` numbers. If it ``drops``, it multiplies what it keeps by ``factor``. ``shared`` says
    whether the samples of a batch have the same mask, which ``seed`` and ``dropped_below`` determine: see
    ``nsvm_cli.models.dropout``. ``momenta`` are like theta, and ``rates`` has the learning rate of step t of
    a block of steps at t modulo ``BLOCK``.
    """

    theta: np.ndarray
    layers: np.ndarray
    width: int
    height: int
    normalize: bool
    scale: Real
    eps: Real
    drops: bool
    factor: Real
    shared: bool
    seed: int
    dropped_below: int
    rates: np.ndarray
    momentum: Real
    weight_decay: Real
    momenta: np.ndarray


def network_form(F: FeatureMap, shape: Sequence[int]) -> Network:
    """Return a copy of F, which is covered, for samples of this shape, without rates."""
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
        vector(rule.kept["momenta"]),
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
    """Return the numbers of all tensors in a vector of its own."""
    return torch.cat([tensor.detach().flatten() for tensor in tensors]).numpy()


def fill(tensors: Sequence[Tensor], numbers: np.ndarray) -> None:
    """Write a vector into the tensors."""
    sizes = [tensor.numel() for tensor in tensors]
    for tensor, part in zip(tensors, torch.from_numpy(numbers).split(sizes), strict=True):
        tensor.copy_(part.view(tensor.shape))


class Support(NamedTuple):
    """The coefficients of all samples: see ``nsvm_cli.trainers.coefficients.Coefficients``."""

    alpha: np.ndarray
    order: np.ndarray
    joined: np.ndarray
    member: np.ndarray


class Progress(NamedTuple):
    """Numbers that steps change, each an array of one number, as ``State`` and ``Tally`` have them.

    ``objectives`` holds the sum of the objectives, their number, and the latest. ``decided`` counts samples,
    those decided rightly, and violations.
    """

    t: np.ndarray
    last_violation: np.ndarray
    mean_gap: np.ndarray
    objectives: np.ndarray
    decided: np.ndarray
    g: np.ndarray


class Run(NamedTuple):
    """What all stretches get. Where theta does not move, x has features, and F is None.

    ``w`` has the weights of the samples, or is empty.
    """

    x: np.ndarray
    y: np.ndarray
    w: np.ndarray
    lam: float
    K: RBF
    F: Network
    progress: Progress
