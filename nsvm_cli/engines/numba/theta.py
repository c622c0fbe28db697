"""What compiled functions get of a problem, a network, an optimizer and a kernel; see ``forms``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from nsvm_cli.engines.numba import forms
from nsvm_cli.engines.numba.coverage import drops, parts_of
from nsvm_cli.engines.numba.kernels import RBF, FarRBF
from nsvm_cli.models import kernels as models
from nsvm_cli.models.dropout import dropped_below
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import Kernel, or_one_over_n
from nsvm_cli.models.networks import CNN, MLP
from nsvm_cli.models.optimizers import SGD
from nsvm_cli.trainers.coefficients import SampleState


def kernel_form(K: Kernel, z: Tensor, normalized: bool = False) -> RBF:
    """Return an RBF kernel on features like z, which may be ``normalized`` to the same length."""
    kind, formula = RBF if normalized else FarRBF, cast(models.RBF, K)
    return kind(z.numpy().dtype.type(or_one_over_n(formula.gamma, z)))


def support_form(state: SampleState) -> forms.Support:
    """Return the memory of the coefficients, which stretches change, and a copy of their number."""
    c = state.coefficients
    return forms.Support(c.alpha.reshape(len(c.alpha), -1), c.order, np.array([len(c.support)]), c.in_support)


def layers_of(network: MLP | CNN, drops: bool, shape: Sequence[int]) -> list[forms.Layer]:
    """Return the layers of a network for samples of this shape; ``drops`` says whether it has dropout."""
    if isinstance(network, MLP):
        last = network.layers[-1]
        return [
            forms.Layer(part.in_features, 1, 1, part.out_features, 1, 1, 1, drops and part is not last)
            for part in network.layers
        ]
    convolutions = [part for part in network if isinstance(part, nn.Conv2d)]
    layers, (_, h, w) = [], shape
    for part in convolutions:
        side, masked = part.kernel_size[0], drops and part is convolutions[-1]
        p, q = (h - side + 1) // 2, (w - side + 1) // 2
        layers.append(forms.Layer(part.in_channels, h, w, part.out_channels, p, q, side, masked))
        h, w = p, q
    return layers


def vector(tensors: Sequence[Tensor]) -> np.ndarray:
    """Return the numbers of all tensors in a vector of its own."""
    numbers: np.ndarray = torch.cat([tensor.detach().flatten() for tensor in tensors]).numpy()
    return numbers


def fill(tensors: Sequence[Tensor], numbers: np.ndarray) -> None:
    """Write a vector into the tensors."""
    sizes = [tensor.numel() for tensor in tensors]
    for tensor, part in zip(tensors, torch.from_numpy(numbers).split(sizes), strict=True):
        tensor.copy_(part.view(tensor.shape))


@dataclass
class Theta:
    """Copies of theta and of the state of the optimizer; ``store`` writes them back."""

    F: FeatureMap
    network: forms.Network
    optimizer: forms.Optimizer

    @property
    def width(self) -> int:
        """The number of features."""
        *_, d, p, q, _, _ = self.network.layers[-1].tolist()
        return int(d * p * q)

    @classmethod
    def of(cls, F: FeatureMap, T: int, x: Tensor) -> Theta:
        """Return what compiled functions get of F, of samples like x, in steps up to T."""
        parts = parts_of(F.network)
        assert parts is not None, "see coverage"
        network, dropout, normalize = parts
        theta, layers = vector([*network.parameters()]), layers_of(network, dropout.p > 0, x.shape[1:])
        real = theta.dtype.type
        masks = forms.Dropout(dropout.p, dropout.shared, F.dropout_seed, dropped_below(dropout.p))
        form = (forms.Network if isinstance(network, MLP) else forms.Convolutions)(
            theta,
            np.array(layers),
            normalize is not None,
            real(normalize.scale if normalize else 1),
            real(normalize.eps if normalize else 1),
            masks if drops(network, dropout) else None,
        )
        return cls(F, form, _optimizer_form(F, T))

    def kernel(self, K: Kernel) -> RBF:
        """Return a kernel on the features."""
        return kernel_form(
            K, next(self.F.network.parameters()).new_empty(0, self.width), self.network.normalize
        )

    def store(self) -> None:
        """Write everything back to F."""
        taken = int(self.optimizer.steps[0])
        if taken == self.F.theta_steps:
            return
        rule: Any = self.F.optimizer
        parameters = [p.data for p in self.F.network.parameters()]
        fill(parameters, self.network.theta)
        fill(rule.kept["momenta"], self.optimizer.momenta)
        self.F.theta_steps = taken


def _optimizer_form(F: FeatureMap, T: int) -> forms.Optimizer:
    rule: Any = F.optimizer
    settings: SGD = rule.settings
    return forms.Optimizer(
        settings.lr,
        settings.momentum,
        settings.weight_decay,
        forms.SCHEDULES[settings.schedule],
        settings.warmup,
        T,
        vector(rule.kept["momenta"]),
        np.array([F.theta_steps]),
    )
