"""Standardisation (paper, Section 5.1), learnt on the training set and applied to everything."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor

ROWS = 256
"""Samples at a time, for the sake of memory."""


@dataclass(frozen=True)
class Scaling:
    """x -> (x - mean) / std, in float64. mean and std have the shape of a sample, or ()."""

    mean: Float64[Tensor, "..."]
    std: Float64[Tensor, "..."]

    def __call__(
        self, x: Float64[Tensor, "m ..."], dtype: torch.dtype = torch.float64
    ) -> Float[Tensor, "m ..."]:
        """Computed in float64; ``dtype`` is that of the result."""
        scaled = torch.empty(x.shape, dtype=dtype)
        for part, rows in zip(scaled.split(ROWS), x.split(ROWS), strict=True):
            part.copy_((rows - self.mean) / self.std)
        return scaled


def fit_scaling(x: Float64[Tensor, "m ..."], global_scaling: bool) -> Scaling:
    """The scaling that gives x mean 0 and *sample* standard deviation 1.

    Args:
        x: the training samples.
        global_scaling: one mean and one deviation over everything, rather than one per feature.

    A feature that never changes is left at 0 rather than divided by 0.
    """
    dim = tuple(range(x.ndim)) if global_scaling else 0
    std, mean = torch.std_mean(x, dim=dim, correction=1)
    return Scaling(mean, torch.where(std > 0, std, 1.0))
