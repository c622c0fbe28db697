"""The decorator of compiled functions."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numba.core.config
from numba.core.caching import FunctionCache

from nsvm_cli.engines.numba.code import COMPILES, cache_folder, can_keep_code
from nsvm_cli.errors import RunError

Function = TypeVar("Function", bound=Callable[..., Any])

FAST = {"reassoc", "contract", "arcp", "nsz"}
"""What the compiler may do to sums and quotients. It may not assume that there is no NaN and no infinity,
which are looked for."""


class KeptCode(FunctionCache):
    """Machine code on disk. Only the process that compiles adds to it: others would spoil its checksums."""

    def save_overload(self, sig: Any, data: Any) -> None:
        if COMPILES in os.environ:
            cast(Any, super()).save_overload(sig, data)


def jit(function: Function) -> Function:
    """Compile a function when it is first called, or load its machine code from disk."""
    # a test may have wrapped the function, to check the shapes in its signature
    plain = inspect.unwrap(function)
    done: Any = numba.njit(fastmath=FAST, error_model="numpy")(plain)
    if can_keep_code():
        config: Any = numba.core.config
        before, config.CACHE_DIR = config.CACHE_DIR, str(cache_folder())
        try:
            done._cache = cast(Any, KeptCode)(plain)  # as its enable_caching() does with Numba's own
        finally:
            config.CACHE_DIR = before
    return cast(Function, done)


def expect_loaded(function: Any) -> None:
    """Raise a RunError if this process has compiled a function that it should have loaded."""
    if function.stats.cache_misses and can_keep_code() and COMPILES not in os.environ:
        raise RunError(
            f"the compiled code in {cache_folder()} does not fit these samples: engine=torch does without"
        )
