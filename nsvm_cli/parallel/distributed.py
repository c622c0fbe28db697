"""Several processes that train one model together, each with its share of the support vectors."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from nsvm_cli.errors import InputError

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """This process, and how many there are; alone unless torch.distributed has been initialised.

    All of them take the same steps with the same theta. A sum over the support vectors is the sum of what
    each process adds up over its own: every ``size``-th, beginning with the ``rank``-th.
    """

    rank: int = 0
    size: int = 1

    def shard(self, j: T) -> T:
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

    def sum_all(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The sum of each over all processes, by one message."""
        whole = self.sum(torch.cat([tensor.flatten() for tensor in tensors]))
        parts = whole.split([tensor.numel() for tensor in tensors])
        return [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]

    def main_process_first(self, task: Callable[[], T]) -> T:
        """Its result, in every process; the first one is through with it before the others begin."""
        if self.size == 1:
            return task()
        try:
            if self.rank == 0:
                return task()
        finally:
            dist.barrier()
        return task()

    def broadcast(self, number: int) -> int:
        """The first process's number, in every process."""
        if self.size == 1:
            return number
        agreed = torch.tensor(number)
        if dist.get_backend() == "nccl":  # knows no other memory
            agreed = agreed.cuda()
        dist.broadcast(agreed, src=0)
        return int(agreed)

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


SINGLE_PROCESS = Processes()


def launched() -> int:
    """How many processes torchrun has started; 1 if it has not."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def init_distributed(device: torch.device) -> Processes:
    """This process among those that torchrun has started; alone if it has not."""
    if launched() == 1:
        return SINGLE_PROCESS
    if not dist.is_initialized():
        if device.type == "cuda":
            local, devices = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
            if local >= devices:
                raise InputError(f"{devices} GPUs: expected at most one process for each, or device=cpu")
            torch.cuda.set_device(local)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        atexit.register(dist.destroy_process_group)
    return Processes(dist.get_rank(), dist.get_world_size())
