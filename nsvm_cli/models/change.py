"""How far training has moved theta and the kernel matrix from their initial values."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from nsvm_cli.models.composed_kernels import learnt_values
from nsvm_cli.models.feature_map import features
from nsvm_cli.models.kernels import Kernel
from nsvm_cli.models.objectives import KERNEL_ROWS, random_subset

MAX_SAMPLES = 1000
"""Largest number of samples that ``feature_change`` is measured on; a random subset stands in for more."""


Map = tuple[nn.Module, Kernel]
"""A network and a kernel: what theta is a parameter of."""


def theta_change(before: Map, after: Map) -> float | None:
    """Return ||theta - theta_0|| / ||theta_0||, over all parameters; None if theta_0 is empty, or 0.

    Settings of a kernel that are learnt count with their values, not with their logarithms.
    """
    theta_0, theta = ([*network.parameters(), *learnt_values(K).values()] for network, K in (before, after))
    moved, size = [b - a for a, b in zip(theta_0, theta, strict=True)], _norm(theta_0)
    return _norm(moved) / size if size > 0 else None


def _norm(tensors: list[Tensor]) -> float:
    return math.hypot(*(float(torch.linalg.vector_norm(tensor.detach().double())) for tensor in tensors))


def feature_change(before: Map, after: Map, x: Float[Tensor, "m ..."], seed: int) -> float | None:
    """Return 1 - <H K_0 H, H K_T H> / (||H K_0 H|| ||H K_T H||), from 0 (the same kernel) to 1.

    K_0 and K_T are the kernel matrices of the samples x ``before`` and ``after`` training, and H = I - 1/m
    subtracts means. Without H, a kernel whose values are all near 1, such as RBF with a small gamma, would
    look the same however the features moved. This is 1 minus the centred kernel alignment of
    Kornblith et al. (2019, "Similarity of neural network representations revisited"), with the SVM's own
    kernel. Return None if a kernel matrix is constant or not finite, where the alignment is undefined.
    """
    if len(x) > MAX_SAMPLES:
        x = x[random_subset(len(x), MAX_SAMPLES, seed, x.device)]
    K_0, K_T = (_centred(K, features(network, x)) for network, K in (before, after))
    if K_0 is None or K_T is None:
        return None
    # exactly 1 for equal matrices: sqrt(a a) is a
    cosine = float((K_0 * K_T).sum()) / math.sqrt(float((K_0 * K_0).sum()) * float((K_T * K_T).sum()))
    return max(0.0, 1 - cosine)


def _centred(K: Kernel, z: Float[Tensor, "m n"]) -> Float64[Tensor, "m m"] | None:
    """Return H K H, divided by its largest value; None if that is 0 up to rounding, or not finite."""
    with torch.no_grad():
        matrix = torch.cat([K(rows, z).double() for rows in z.split(KERNEL_ROWS)])
        largest = float(matrix.abs().max())
        if not math.isfinite(largest):
            return None
        matrix = matrix - matrix.mean(0)
        matrix -= matrix.mean(1, keepdim=True)
        spread = float(matrix.abs().max())
        return matrix / spread if spread > largest * torch.finfo(z.dtype).eps else None
