"""The decorators of compiled functions."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numba.core.config
from numba.core.caching import FunctionCache
from numba.core.registry import CPUDispatcher
from numba.core.types import unliteral

from nsvm_cli.engines.numba.code import COMPILES, code_folder, compile_once, unit_folder
from nsvm_cli.errors import RunError

Function = TypeVar("Function", bound=Callable[..., Any])

JIT_OPTIONS: Any = {"fastmath": {"reassoc", "contract", "arcp", "nsz"}, "error_model": "numpy"}
"""Options that let LLVM rearrange sums and quotients, but preserve NaN and infinity for checks."""

INNER: Any = {"nopython": True, **JIT_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""Options of functions without an entry point for Python, which only compiled functions call."""


class Inner(CPUDispatcher):
    """A function that is compiled once for each type of arguments, not for each literal number."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        return cast(Any, super()).get_call_template([*map(unliteral, args)], kws)


def jit(function: Function) -> Function:
    """Compile a function that only compiled functions call."""
    # a test may have wrapped the function, to check the shapes in its signature
    return cast(Any, Inner)(inspect.unwrap(function), targetoptions=INNER)


def jit_in_order(function: Function) -> Function:
    """Compile a function like ``jit``, but preserve the order of its operations wherever it is inlined."""
    return cast(Any, Inner)(inspect.unwrap(function), targetoptions={**INNER, "fastmath": False})


class KeptCode(FunctionCache):
    """Machine code on disk, which only the compiling process writes."""

    def save_overload(self, sig: Any, data: Any) -> None:
        if COMPILES not in os.environ:
            raise RunError(
                f"the compiled code in {code_folder()} does not match these samples: use engine=torch"
            )
        cast(Any, super()).save_overload(sig, data)


@functools.cache
def loaded(stretch: Callable[..., Any], unit: str) -> Any:
    """Return the machine code of a stretch (see ``stretches``), after compiling its unit if necessary."""
    compile_once([unit])
    plain = inspect.unwrap(stretch)
    compiled: Any = numba.njit(**JIT_OPTIONS)(plain)
    config: Any = numba.core.config
    folder, config.CACHE_DIR = config.CACHE_DIR, str(unit_folder(unit))
    try:
        compiled._cache = cast(Any, KeptCode)(plain)  # like enable_caching() with Numba's own cache
    finally:
        config.CACHE_DIR = folder
    return compiled
