"""Several processes that train one model together, each with its share of the support vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """This process, and how many there are; alone unless torch.distributed has been initialised.

    All of them take the same steps with the same theta. A sum over the support vectors is the sum of what
    each process adds up over its own: every ``size``-th, beginning with the ``rank``-th.
    """

    rank: int = 0
    size: int = 1

    def share(self, j: T) -> T:
        """What falls to this process of a list of support vectors, in the order in which they joined."""
        return j[self.rank :: self.size] if self.size > 1 else j  # type: ignore[index]

    def owns(self, position: int) -> bool:
        """Whether the support vector that joined at this position falls to this process."""
        return position % self.size == self.rank

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, the same bits in each; in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def gather(self, tensor: Tensor, total: int) -> Tensor:
        """The rows of all shares, back in their order; ``total`` rows in all."""
        if self.size == 1:
            return tensor
        rows = -(-total // self.size)
        padded = tensor.new_zeros(rows, *tensor.shape[1:])
        padded[: len(tensor)] = tensor
        everyone = [padded.clone() for _ in range(self.size)]
        dist.all_gather(everyone, padded)
        whole = tensor.new_empty(rows * self.size, *tensor.shape[1:])
        for rank, share in enumerate(everyone):
            whole[rank :: self.size] = share
        return whole[:total]


ALONE = Processes()
