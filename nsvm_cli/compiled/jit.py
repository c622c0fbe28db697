"""The decorator of compiled functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numba.core.config

from nsvm_cli.compiled.code import can_keep_code, code_folder

Function = TypeVar("Function", bound=Callable[..., Any])

FAST = {"reassoc", "contract", "arcp", "nsz"}
"""What the compiler may do to sums and quotients. It may not assume that there is no NaN and no infinity,
which are looked for."""


def compiled(function: Function) -> Function:
    """Compile a function when it is first called; its machine code is kept on disk."""
    config: Any = numba.core.config
    before, config.CACHE_DIR = config.CACHE_DIR, str(code_folder())
    try:
        # a test may have wrapped the function, to check the shapes in its signature
        plain = inspect.unwrap(function)
        done: Any = numba.njit(cache=can_keep_code(), fastmath=FAST, error_model="numpy")(plain)
    finally:
        config.CACHE_DIR = before
    return cast(Function, done)
