"""Kernels, compiled: values, their sums over support vectors, and gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from nsvm_cli.compiled.forms import LAPLACIAN, LINEAR, RBF, Kernel
from nsvm_cli.compiled.jit import compiled

COLUMNS = 256
"""Support vectors whose kernel values are computed at a time, so that they stay in a core's cache."""

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


@compiled
def exp2_float32(x: Any) -> Any:
    """Return 2^x for x <= 0, which is 0 below 2^-126. Unlike math.exp2, this runs on several x at a time."""
    whole = np.int32(x - np.float32(0.5))  # rounds towards 0: to the nearest
    f = x - np.float32(whole)
    p = np.float32(SERIES[SHORT - 1])
    for n in range(SHORT - 2, -1, -1):
        p = p * f + np.float32(SERIES[n])
    power: Any = _float32_of_bits((whole + np.int32(127)) << np.int32(23))  # type: ignore[call-arg]
    return p * power if x > np.float32(-126) else np.float32(0) if x <= np.float32(-126) else x


@compiled
def exp2_float64(x: Any) -> Any:
    """Return 2^x for x <= 0, which is 0 below 2^-1022."""
    whole = np.int64(x - 0.5)
    f = x - np.float64(whole)
    p = SERIES[13]
    for n in range(12, -1, -1):
        p = p * f + SERIES[n]
    power: Any = _float64_of_bits((whole + np.int64(1023)) << np.int64(52))  # type: ignore[call-arg]
    return p * power if x > -1022.0 else 0.0 if x <= -1022.0 else x


@compiled
def exp2_of(P: Any) -> None:
    """Replace x by 2^x for every x <= 0 in P; NaN stays."""
    flat = P.reshape(-1)
    if P.itemsize == 4:
        for i in range(len(flat)):
            flat[i] = exp2_float32(np.float32(flat[i]))
    else:
        for i in range(len(flat)):
            flat[i] = exp2_float64(np.float64(flat[i]))


@compiled
def _squares(a: Any) -> Any:
    out = np.empty(a.shape[0], a.dtype)
    for i in range(a.shape[0]):
        square = a.dtype.type(0)
        for k in range(a.shape[1]):
            square += a[i, k] * a[i, k]
        out[i] = square
    return out


@compiled
def _shifted(a: Any, origin: Any) -> Any:
    out = np.empty(a.shape, a.dtype)
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            out[i, k] = a[i, k] - origin[k]
    return out


@compiled
def values(K: Kernel, a: Any, b: Any) -> Any:
    """Return K(a_i, b_j) for all i, j."""
    real = a.dtype.type
    if K.kind == RBF:
        if K.shift:
            a, b = _shifted(a, b[0]), _shifted(b, b[0])
        P = np.dot(a, b.T)
        square_a, square_b = _squares(a), _squares(b)
        rate = real(-K.gamma / math.log(2))
        for i in range(P.shape[0]):
            for j in range(P.shape[1]):
                distance = square_a[i] + square_b[j] - real(2) * P[i, j]
                P[i, j] = rate * (distance if not distance < real(0) else real(0))
        exp2_of(P)
    elif K.kind == LAPLACIAN:
        P = np.empty((a.shape[0], b.shape[0]), a.dtype)
        rate = real(-K.gamma / math.log(2))
        for i in range(P.shape[0]):
            for j in range(P.shape[1]):
                distance = real(0)
                for k in range(a.shape[1]):
                    distance += abs(a[i, k] - b[j, k])
                P[i, j] = rate * distance
        exp2_of(P)
    else:
        P = np.dot(a, b.T)
        if K.kind != LINEAR:
            for i in range(P.shape[0]):
                for j in range(P.shape[1]):
                    P[i, j] = _power(K.gamma * P[i, j] + K.c, K.degree)
    if K.bias != real(0):
        P += K.bias
    return P


@compiled
def _power(x: Any, n: int) -> Any:
    result = x * 0 + 1  # a NaN stays one
    while n > 0:
        if n & 1:
            result *= x
        x *= x
        n >>= 1
    return result


@compiled
def sums(K: Kernel, a: Any, b: Any, w: Any) -> Any:
    """Return sum_j w_j K(b_j, a_i) for every i, of shape (p, C), for w of shape (q, C)."""
    out = np.zeros((a.shape[0], w.shape[1]), a.dtype)
    for begin in range(0, b.shape[0], COLUMNS):
        end = min(begin + COLUMNS, b.shape[0])
        out += np.dot(values(K, a, b[begin:end]), w[begin:end])
    return out


@compiled
def gradient(K: Kernel, a: Any, b: Any, K_ab: Any, G: Any) -> Any:
    """Return the gradient of sum_ij G_ij K(a_i, b_j) with respect to a, given K_ab = K(a_i, b_j)."""
    real = a.dtype.type
    if K.kind == RBF:
        return _gradient_rbf(K, a, b, K_ab, G)
    if K.kind == LAPLACIAN:
        out = np.zeros_like(a)
        for i in range(a.shape[0]):
            for j in range(b.shape[0]):
                slope = -K.gamma * G[i, j] * (K_ab[i, j] - K.bias)
                for k in range(a.shape[1]):
                    out[i, k] += slope * np.sign(a[i, k] - b[j, k])
        return out
    if K.kind == LINEAR:
        return np.dot(G, b)
    slope_of = np.dot(a, b.T)
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            power = _power(K.gamma * slope_of[i, j] + K.c, K.degree - 1)
            slope_of[i, j] = K.gamma * G[i, j] * real(K.degree) * power
    return np.dot(slope_of, b)


@compiled
def _gradient_rbf(K: Kernel, a: Any, b: Any, K_ab: Any, G: Any) -> Any:
    real = a.dtype.type
    if K.shift:
        a, b = _shifted(a, b[0]), _shifted(b, b[0])
    GK = np.empty_like(K_ab)
    for i in range(GK.shape[0]):
        for j in range(GK.shape[1]):
            GK[i, j] = real(2) * K.gamma * G[i, j] * (K_ab[i, j] - K.bias)
    out = np.dot(GK, b)
    for i in range(a.shape[0]):
        total = real(0)
        for j in range(b.shape[0]):
            total += GK[i, j]
        for k in range(a.shape[1]):
            out[i, k] -= total * a[i, k]
    return out
