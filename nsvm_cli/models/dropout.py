"""Dropout whose masks depend only on the seed, the step, the sample and the layer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from nsvm_cli.randomness import LAYER, key_of_step, number_at


class Masks:
    """The dropout masks of a training pass: functions of the seed, step t, sample index i, and layer."""

    def __init__(self, seed: int, t: int, i: Int64[np.ndarray, " batch"]) -> None:
        self.seed, self.t, self.i, self.layer = seed, t, i, 0

    def next(
        self, x: Float[Tensor, "batch channels *rest"], p: float, shared: bool
    ) -> Float[Tensor, "rows channels"]:
        """Return masks for x, the next dropout layer's input: 0 with probability p, otherwise 1 / (1 - p).

        The masks have a row for each sample or, if ``shared``, a single row.
        """
        i, channels = (np.zeros(1, np.int64) if shared else self.i), x.shape[1]
        place: Any = (i * channels + self.layer * LAYER)[:, None] + np.arange(channels)
        if x.is_cuda:
            place = torch.from_numpy(place).to(x.device)
        self.layer += 1
        keep = number_at(key_of_step(self.seed, self.t), place) >= dropped_below(p)
        return torch.as_tensor(keep, device=x.device).to(x.dtype) / (1 - p)


def dropped_below(p: float) -> int:
    """Return the threshold below which a uniform signed 64-bit integer lies with probability p."""
    return round(p * 2.0**64) - 2**63


_masks: ContextVar[Masks | None] = ContextVar("masks", default=None)


@contextmanager
def dropout_masks(masks: Masks) -> Iterator[None]:
    """Context manager: let every ``Dropout`` use these masks."""
    token = _masks.set(masks)
    try:
        yield
    finally:
        _masks.reset(token)


class Dropout(nn.Module):
    """Zero whole channels of an image, or single values of a vector, with probability ``p``.

    If ``shared``, all samples of a batch have the same mask, so that identical samples have identical
    features. Dropout is active within the context of ``dropout_masks`` and nowhere else. Training and
    evaluation mode make no difference.
    """

    def __init__(self, p: float, shared: bool = False) -> None:
        super().__init__()
        self.p, self.shared = p, shared

    def forward(self, x: Float[Tensor, "batch channels *rest"]) -> Float[Tensor, "batch channels *rest"]:
        masks = _masks.get()
        if masks is None or self.p == 0:
            return x
        mask = masks.next(x, self.p, self.shared)
        return x * mask.view(*mask.shape, *(1,) * (x.ndim - 2))


TORCH_LAYERS = nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d


class TorchDropout(Dropout):
    """A dropout layer of torch that uses the masks of ``Dropout``, and only in training mode."""

    def __init__(self, layer: Any) -> None:
        super().__init__(layer.p)
        self.layer = layer

    def forward(self, x: Float[Tensor, "batch channels *rest"]) -> Float[Tensor, "batch channels *rest"]:
        masks = _masks.get() if self.training else None
        if masks is None or len(x) != len(masks.i):  # rows of x may not be samples
            return self.layer(x)
        values = x.flatten(1) if isinstance(self.layer, nn.Dropout) else x  # nn.Dropout drops single values
        return super().forward(values).view(x.shape)
