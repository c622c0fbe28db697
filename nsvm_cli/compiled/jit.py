"""The decorator of compiled functions, and where their machine code is kept between processes."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config
from platformdirs import user_cache_path

Function = TypeVar("Function", bound=Callable[..., Any])

FAST = {"reassoc", "contract", "arcp", "nsz"}
"""What the compiler may do to sums and quotients. It may not assume that there is no NaN and no infinity,
which are looked for."""


@cache
def code_folder() -> Path:
    """Return the folder of the machine code. Its name depends on all sources of this room.

    Numba itself notices a change of the file that a function is in, but none of the functions that it calls.
    """
    sources = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()
    return user_cache_path("nsvm", appauthor=False) / f"compiled-{numba.__version__}-{digest[:16]}"


def compiled(function: Function) -> Function:
    """Compile a function when it is first called; its machine code is cached on disk."""
    before, config.CACHE_DIR = config.CACHE_DIR, str(code_folder())
    try:
        # a test may have wrapped the function, to check the shapes in its signature
        done: Function = numba.njit(cache=True, fastmath=FAST, error_model="numpy")(inspect.unwrap(function))
    finally:
        config.CACHE_DIR = before
    return done
