"""Where machine code is kept between processes, and what is there. Nothing here needs Numba."""

from __future__ import annotations

import contextlib
import hashlib
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch
from platformdirs import user_cache_path


@cache
def code_folder() -> Path:
    """Return the folder of the machine code.

    Its name depends on everything that the code is made of: Numba notices a change of the file that a
    function is in, but not of the functions that it calls.
    """
    sources = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    made_by = f"python{platform.python_version()}-numba{version('numba')}-numpy{version('numpy')}"
    return user_cache_path("nsvm", appauthor=False) / "compiled" / f"{made_by}-{digest}"


def name_of_type(dtype: torch.dtype) -> str:
    """Return float32 or float64."""
    return str(dtype).removeprefix("torch.")


def is_compiled(algorithm: str, dtype: str) -> bool:
    """Return whether the functions of an algorithm have been compiled for this type, on this computer."""
    return (code_folder() / f"{algorithm}-{dtype}-{platform.node()}").exists()


def note_compiled(algorithm: str, dtype: str) -> None:
    """Note that they have been."""
    with contextlib.suppress(OSError):  # without a place for it, each process compiles for itself
        (code_folder() / f"{algorithm}-{dtype}-{platform.node()}").touch()
