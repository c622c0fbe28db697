"""Powers of two, compiled."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from nsvm_cli.engines.numba.jit import OPTIONS

SERIES = tuple(math.log(2) ** n / math.factorial(n) for n in range(14))
"""The Taylor series of 2^x at 0. For x in [-1/2, 1/2], float32 needs eight of its terms, float64 all."""


def exp2(x: Any) -> Any:
    """Return 2^x for x <= 0: 0 where that is not a normal number, NaN for NaN.

    Unlike that of the standard library, loops over it compute several at a time.
    """
    raise NotImplementedError("for compiled functions")


@overload(exp2, jit_options=OPTIONS)
def _exp2_of_type(x: Any) -> Any:
    single, double = (np.float32, np.int32, 8, 23, 127), (np.float64, np.int64, 14, 52, 1023)
    layout: Any = single if x == types.float32 else double
    real, integer, terms, mantissa, bias = layout
    lowest = real(1 - bias)

    def power(x: Any) -> Any:
        whole = integer(x - real(0.5))  # rounds towards 0: to the nearest
        f = x - real(whole)
        p = real(SERIES[terms - 1])
        for n in range(terms - 2, -1, -1):
            p = p * f + real(SERIES[n])
        of_whole = integer((whole + integer(bias)) << integer(mantissa)).view(real)
        return p * of_whole if x > lowest else real(0) if x <= lowest else x

    return inspect.unwrap(power)  # see jit
