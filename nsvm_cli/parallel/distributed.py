"""Several processes that train one model together, each holding a shard of the support vectors."""

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
    """The rank of this process and the number of processes.

    All processes take the same steps with the same theta. Each holds a shard of the support vectors: every
    ``size``-th one, starting with the ``rank``-th. A sum over all support vectors is the all-reduced sum over
    the shards.
    """

    rank: int = 0
    size: int = 1

    def shard(self, j: T) -> T:
        """Return this process's shard of a sequence of support vectors, in the order in which they joined."""
        return j[self.rank :: self.size] if self.size > 1 else j  # type: ignore[index]

    def owns(self, position: int) -> bool:
        """Return whether the support vector that joined at this position is in this process's shard."""
        return position % self.size == self.rank

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum over all processes, in place, and return the sum: the same bits in each process."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def sum_all(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the sum of each tensor over all processes, with a single all-reduce."""
        whole = self.sum(torch.cat([tensor.flatten() for tensor in tensors]))
        sums = whole.split([tensor.numel() for tensor in tensors])
        return [flat.view_as(tensor) for flat, tensor in zip(sums, tensors, strict=True)]

    def main_process_first(self, task: Callable[[], T]) -> T:
        """Run ``task`` in the main process, then in all others; return its result in each."""
        if self.size == 1:
            return task()
        try:
            if self.rank == 0:
                return task()
        finally:
            dist.barrier()
        return task()

    def broadcast(self, number: int) -> int:
        """Return the main process's number in every process."""
        return self._agree(number, lambda tensor: dist.broadcast(tensor, src=0))

    def largest(self, number: int) -> int:
        """Return the largest of all processes' numbers in every process."""
        return self._agree(number, lambda tensor: dist.all_reduce(tensor, dist.ReduceOp.MAX))

    def _agree(self, number: int, exchange: Callable[[Tensor], object]) -> int:
        if self.size == 1:
            return number
        tensor = torch.tensor(number)
        if dist.get_backend() == "nccl":  # handles tensors on a GPU only
            tensor = tensor.cuda()
        exchange(tensor)
        return int(tensor)

    def gather(self, tensor: Tensor, total: int) -> Tensor:
        """Return the rows of all shards in their original order, ``total`` rows in all."""
        if self.size == 1:
            return tensor
        rows = -(-total // self.size)
        padded = tensor.new_zeros(rows, *tensor.shape[1:])
        padded[: len(tensor)] = tensor
        shards = [padded.clone() for _ in range(self.size)]
        dist.all_gather(shards, padded)
        whole = tensor.new_empty(rows * self.size, *tensor.shape[1:])
        for rank, shard in enumerate(shards):
            whole[rank :: self.size] = shard
        return whole[:total]


SINGLE_PROCESS = Processes()


def launched() -> int:
    """Return the number of processes that torchrun has started; 1 without torchrun."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def init_distributed(device: torch.device) -> Processes:
    """Join the processes that torchrun has started; without torchrun, return ``SINGLE_PROCESS``.

    Raises:
        InputError: there are fewer GPUs than processes on this machine.
    """
    if launched() == 1:
        return SINGLE_PROCESS
    if not dist.is_initialized():
        if device.type == "cuda":
            local, devices = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
            if local >= devices:
                raise InputError(f"found {devices} GPUs: expected at most one process per GPU, or device=cpu")
            torch.cuda.set_device(local)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        atexit.register(dist.destroy_process_group)
    return Processes(dist.get_rank(), dist.get_world_size())
