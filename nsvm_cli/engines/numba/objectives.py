"""Objectives of Algorithms 3 and 4, compiled; see ``nsvm_cli.models.objectives``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nsvm_cli.engines.numba.elements import add_matrix, inner, scale
from nsvm_cli.engines.numba.forms import Network, Optimizer, Progress
from nsvm_cli.engines.numba.jit import jit
from nsvm_cli.engines.numba.kernels import RBF, gradient, values
from nsvm_cli.engines.numba.masks import masks_for
from nsvm_cli.engines.numba.networks import forward, room_for, width
from nsvm_cli.engines.numba.optimizers import theta_step


@jit
def unit(U: Any) -> Any:
    """Return U divided by its norm; 0 if that is 0."""
    norm = _norm(U)
    if norm > 0:
        _divide(U, norm)
    return U


@jit
def _divide(U: Any, norm: float) -> None:
    for i in range(U.shape[0]):
        for j in range(U.shape[1]):
            U[i, j] /= U.dtype.type(norm)


@jit
def _norm(U: Any) -> float:
    flat, square = U.reshape(-1), U.dtype.type(0)
    for i in range(len(flat)):
        square += flat[i] * flat[i]
    return math.sqrt(square)


@jit
def _centred(U: Any) -> Any:
    """Return H U H for a symmetric U, where H = I - 1/k."""
    k = len(U)
    means = np.empty(k, U.dtype)
    for i in range(k):
        means[i] = U[i].sum() / U.dtype.type(k)
    mean = means.sum() / U.dtype.type(k)
    out = np.empty_like(U)
    for i in range(k):
        for j in range(k):
            out[i, j] = (U[i, j] - means[i]) - (means[j] - mean)
    return out


@jit
def ideal(y: Any, classes: int, like: Any) -> Any:
    """Return the inner products of the codes of labels, for one or so many classes (see ``Task.code``)."""
    k = len(y)
    U = np.empty((k, k), like.dtype)
    for i in range(k):
        for j in range(k):
            if classes == 1:
                U[i, j] = y[i] * y[j]
            else:
                U[i, j] = 1.0 if y[i] == y[j] else -1.0 / (classes - 1)
    return U


@jit
def cosine(K: Any, U: Any) -> Any:
    """Return <U, K / ||K||>, and its derivative by K, for a U of norm 1 or 0."""
    norm, direction, slope = _norm(K), K.copy(), U.copy()
    _divide(direction, norm)
    value = inner(U, direction)
    for i in range(len(U)):
        for j in range(len(U)):
            slope[i, j] -= value * direction[i, j]
    _divide(slope, norm)
    return value, slope


@jit
def alignment(K: Any, y: Any, classes: int, centred: bool) -> Any:
    """Return the kernel-target alignment, centred or not, and its derivative by K."""
    if not centred:
        return cosine(K, unit(ideal(y, classes, K)))
    H_K_H = _centred(K)
    if (y == y[0]).all() or not H_K_H.any():
        return K.dtype.type(0), np.zeros_like(K)
    if classes == 1:
        c = y - y[0]
        return cosine(H_K_H, unit(ideal(c - c.mean(), 1, K)))
    return cosine(H_K_H, unit(_centred(ideal(y, classes, K))))


@jit
def norm_surrogate(K: Any, alpha: Any) -> Any:
    """Return Algorithm 3's surrogate for ||f||^2, and its derivative by K."""
    return cosine(K, unit(np.dot(alpha, alpha.T)))


@jit
def descend_on_batch(
    F: Network,
    K: RBF,
    o: Optimizer,
    progress: Progress,
    A: Any,
    x: Any,
    y: Any,
    alpha: Any,
    t: int,
    classes: int,
    centred: bool,
    mu: float,
) -> bool:
    """Descend in theta on a batch: on ``mu`` times the surrogate minus the alignment (Algorithm 3), or with
    mu = 0 on the square of 1 minus it (Algorithm 4). Return whether the objective is finite.
    """
    real, k = F.theta.dtype.type, len(x)
    passed, z = room_for(F, k), np.empty((k, width(F)), F.theta.dtype)
    forward(F, x, passed, z, masks_for(F, t, A), 0)
    K_A = values(K, z, z)
    aligned, slope = alignment(K_A, y, classes, centred)
    if mu > 0:
        norm, slope_norm = norm_surrogate(K_A, alpha)
        value = real(mu) * norm - aligned
        scale(slope, real(-1))
        scale(slope_norm, real(mu))
        add_matrix(slope, slope_norm)
    else:
        value = (real(1) - aligned) ** 2
        scale(slope, real(-2) * (real(1) - aligned))
    scale(slope, real(2))  # due to the symmetry of K_A
    by_z = gradient(K, z, z, K_A, slope)
    return theta_step(F, o, progress, passed, by_z, value, t)
