"""Powers of two, compiled."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from nsvm_cli.engines.numba.jit import FAST

SERIES = tuple(math.log(2) ** n / math.factorial(n) for n in range(14))
"""The Taylor series of 2^x at 0."""

SHORT = 8
"""Terms of the series that float32 needs for x in [-1/2, 1/2]; float64 needs them all."""


@intrinsic
def _float32_of_bits(context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic
def _float64_of_bits(context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


def _exp2_float32(x: Any) -> Any:
    whole = np.int32(x - np.float32(0.5))  # rounds towards 0: to the nearest
    f = x - np.float32(whole)
    p = np.float32(SERIES[SHORT - 1])
    for n in range(SHORT - 2, -1, -1):
        p = p * f + np.float32(SERIES[n])
    power: Any = _float32_of_bits((whole + np.int32(127)) << np.int32(23))  # type: ignore[call-arg]
    return p * power if x > np.float32(-126) else np.float32(0) if x <= np.float32(-126) else x


def _exp2_float64(x: Any) -> Any:
    whole = np.int64(x - 0.5)
    f = x - np.float64(whole)
    p = SERIES[13]
    for n in range(12, -1, -1):
        p = p * f + SERIES[n]
    power: Any = _float64_of_bits((whole + np.int64(1023)) << np.int64(52))  # type: ignore[call-arg]
    return p * power if x > -1022.0 else 0.0 if x <= -1022.0 else x


def exp2(x: Any) -> Any:
    """Return 2^x for x <= 0: 0 where that is not a normal number, NaN for NaN.

    Unlike that of the standard library, loops over it compute several at a time.
    """
    raise NotImplementedError("for compiled functions")


@overload(exp2, jit_options={"fastmath": FAST, "error_model": "numpy"})
def _exp2_of_type(x: Any) -> Any:
    return inspect.unwrap(_exp2_float32 if x == types.float32 else _exp2_float64)  # see jit
