"""Where and with how many threads this process computes."""

from __future__ import annotations

import torch

from nsvm_cli.errors import InputError


def select_device(name: str, threads: int | None) -> torch.device:
    """The device for ``auto``, ``cpu`` or ``cuda``; sets the number of threads of this process.

    Raises:
        InputError: ``cuda``, and there is none.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device=cuda: torch finds no CUDA device here; take device=auto or device=cpu")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    torch.backends.cudnn.allow_tf32 = False  # float32 means float32,
    torch.backends.cudnn.deterministic = True  # and the same bits twice
    return torch.device("cuda")
