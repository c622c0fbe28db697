"""Functions that select the device and the number of threads of this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from nsvm_cli.errors import InputError


def select_device(name: str, threads: int | None) -> torch.device:
    """Return the device for the setting ``auto``, ``cpu`` or ``cuda``, and set torch's number of threads.

    An InputError is raised if ``name`` is ``cuda``, but torch finds no CUDA device.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device=cuda: torch finds no CUDA device; use device=auto or device=cpu")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    torch.backends.cudnn.allow_tf32 = False  # full float32 precision
    torch.backends.cudnn.deterministic = True  # bit-reproducible convolutions
    return torch.device("cuda")


@contextmanager
def own_threads(threads: int | None = None) -> Iterator[None]:
    """Context manager: set torch's number of threads to ``threads``, and restore it afterwards."""
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def take_turns(job: int) -> None:
    """Select the GPU for a job by the number of the job, to spread the jobs of a sweep over visible GPUs."""
    if (count := torch.cuda.device_count()) > 1:
        torch.cuda.set_device(job % count)
