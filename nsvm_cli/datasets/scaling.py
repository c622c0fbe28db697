"""Standardisation (paper, Section 5.1) and other scalings, fitted to the training set."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Float64, Real
from torch import Tensor

from nsvm_cli.datasets.base import BLOCK_ROWS, RawSamples, ScalingKind, as_float, over_blocks
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


class Scaled:
    """Samples that are scaled whenever some of them are indexed, so that they are never scaled as a whole."""

    def __init__(self, raw: RawSamples, scaling: Scaling, dtype: torch.dtype, device: torch.device) -> None:
        self.raw, self.scaling, self.dtype, self.device, self.shape = raw, scaling, dtype, device, raw.shape

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, rows: slice | Tensor) -> Float[Tensor, "p ..."]:
        raw = self.raw[rows.to(self.raw.device) if isinstance(rows, Tensor) else rows]
        return self.scaling(raw, self.dtype).to(self.device)

    def index_select(self, dim: int, rows: Tensor) -> Float[Tensor, "p ..."]:
        return self[rows]


ScaledSamples: TypeAlias = Float[Tensor, "m ..."] | Scaled
"""Type of scaled samples of shape (m, ...)."""


WHOLE = 2**26
"""Number of values up to which means and standard deviations are computed in one pass, without blocks."""


def mean_and_std(x: RawSamples, w: Weights, dim: tuple[int, ...] | int = 0) -> list[Tensor]:
    """Return the mean and sample standard deviation, where a sample of weight w counts as w samples.

    For the standard deviation, weights with a mean below 1 are rescaled to mean 1.
    """
    size = math.prod(x.shape)
    if w is None and size <= WHOLE:
        return [*reversed(torch.std_mean(as_float(x[:]), dim=dim, correction=1))]
    w = (torch.ones(len(x)).double() if w is None else w).reshape(-1, *[1] * (x.ndim - 1))

    def total(f: Callable[[Tensor], Tensor]) -> Any:
        blocks = zip(w.split(BLOCK_ROWS), x.split(BLOCK_ROWS), strict=True)
        return sum((v * f(as_float(rows[:]))).sum(dim, keepdim=True) for v, rows in blocks)

    first = as_float(x[:1]) if dim == 0 else as_float(x[:1]).flatten()[0]
    sum_w = total(torch.ones_like)
    mean = first + total(lambda x: x - first) / sum_w  # exact if all values are equal
    count = sum_w.clamp_min(size / sum_w.numel())
    variance = total(lambda x: (x - mean).square()) / sum_w * count / (count - 1)
    return [mean.squeeze(dim), variance.sqrt().squeeze(dim)]


def fit_scaling(
    x: RawSamples, global_scaling: bool, kind: ScalingKind = "standard", w: Weights = None
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
    mean, std = mean_and_std(x, w, dim)
    if kind == "channels":
        each = torch.ones(x.shape[1:], dtype=mean.dtype)
        mean, std = (values.reshape(-1, *[1] * (x.ndim - 2)) * each for values in (mean, std))
    if kind == "none":
        return Scaling(torch.zeros_like(mean), torch.ones_like(std))
    if kind == "minmax":
        mean = as_float(over_blocks(x, lambda rows: rows.amin(dim)).amin(0))
        std = as_float(over_blocks(x, lambda rows: rows.amax(dim)).amax(0)) - mean
    if not (finite := std.isfinite() & mean.isfinite()).all():
        at = 0 if global_scaling else int((~finite).flatten().nonzero()[0])
        raise InputError(
            f"feature {at + 1}: the {'range' if kind == 'minmax' else 'standard deviation'} is not finite, "
            f"because values reach {float(x[:].flatten(1)[:, at].abs().max()):.3g}; scale the feature to "
            "smaller values"
        )
    if kind == "standard" and not global_scaling:
        binary = over_blocks(x, lambda rows: ((rows == 0) | (rows == 1)).all(0)).all(0) & (std > 0)
        mean, std = torch.where(binary, 0.0, mean), torch.where(binary, 1.0, std)
    return Scaling(mean, torch.where(std > 0, std, 1.0))
