"""Standardisation (paper, Section 5.1) and other scalings, fitted to the training set."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Real
from torch import Tensor

from nsvm_cli.datasets.base import BLOCK_ROWS, ScalingKind, as_float
from nsvm_cli.errors import InputError

Weights = Float64[Tensor, " m"] | None


@dataclass(frozen=True)
class Scaling:
    """The map x -> (x - mean) / std in float64; ``mean`` and ``std`` have the shape of a sample, or ()."""

    mean: Float64[Tensor, "..."]
    std: Float64[Tensor, "..."]

    def __call__(
        self, x: Real[Tensor, "m ..."], dtype: torch.dtype = torch.float64
    ) -> Float[Tensor, "m ..."]:
        """Return scaled samples, computed in float64 and converted to ``dtype``."""
        scaled = torch.empty(x.shape, dtype=dtype)
        for block, rows in zip(scaled.split(BLOCK_ROWS), x.split(BLOCK_ROWS), strict=True):
            block.copy_((as_float(rows) - self.mean) / self.std)
        return scaled


def mean_and_std(x: Float64[Tensor, "m ..."], w: Weights, dim: tuple[int, ...] | int = 0) -> list[Tensor]:
    """Return the mean and sample standard deviation, where a sample of weight w counts as w samples.

    For the standard deviation, weights with a mean below 1 are rescaled to mean 1.
    """
    if w is None:
        return [*reversed(torch.std_mean(x, dim=dim, correction=1))]
    w = w.reshape(-1, *[1] * (x.ndim - 1)).expand_as(x)
    total, first = w.sum(dim), x[0] if dim == 0 else x.flatten()[0]
    mean = first + (w * (x - first)).sum(dim) / total  # exact if all values are equal
    count = total.clamp_min(w.numel() / total.numel())
    return [mean, ((w * (x - mean).square()).sum(dim) / total * count / (count - 1)).sqrt()]


def fit_scaling(
    x: Real[Tensor, "m ..."], global_scaling: bool, kind: ScalingKind = "standard", w: Weights = None
) -> Scaling:
    """Return the scaling fitted to x, or raise an InputError for a feature with an infinite scale.

    Args:
        global_scaling: whether all features share one mean and standard deviation.
        kind: ``standard`` for mean 0 and *sample* standard deviation 1, ``channels`` for the same in each
            channel of images, ``minmax`` for the range 0..1, or ``none``. Constant features become 0, unless
            ``kind`` is ``none``. Without ``global_scaling``, ``standard`` keeps features of zeros and ones.
        w: the weights of the samples; see ``mean_and_std``.
    """
    dim = (0, *range(2, x.ndim)) if kind == "channels" else tuple(range(x.ndim)) if global_scaling else 0
    mean, std = mean_and_std(as_float(x), w, dim)
    if kind == "channels":
        each = torch.ones(x.shape[1:], dtype=mean.dtype)
        mean, std = (values.reshape(-1, *[1] * (x.ndim - 2)) * each for values in (mean, std))
    if kind == "none":
        return Scaling(torch.zeros_like(mean), torch.ones_like(std))
    if kind == "minmax":
        mean = as_float(x.amin(dim))
        std = as_float(x.amax(dim)) - mean
    if not (finite := std.isfinite() & mean.isfinite()).all():
        at = 0 if global_scaling else int((~finite).flatten().nonzero()[0])
        raise InputError(
            f"feature {at + 1}: the {'range' if kind == 'minmax' else 'standard deviation'} is not finite, "
            f"because values reach {float(x.flatten(1)[:, at].abs().max()):.3g}; scale the feature to "
            "smaller values"
        )
    if kind == "standard" and not global_scaling:
        binary = ((x == 0) | (x == 1)).all(0) & (std > 0)
        mean, std = torch.where(binary, 0.0, mean), torch.where(binary, 1.0, std)
    return Scaling(mean, torch.where(std > 0, std, 1.0))
