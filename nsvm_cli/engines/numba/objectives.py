"""Compiled objectives of Algorithms 3 and 4, and steps in theta; see ``nsvm_cli.models.objectives``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nsvm_cli.engines.numba.arrays import add_matrix, inner, rows_of, scale
from nsvm_cli.engines.numba.forms import Run
from nsvm_cli.engines.numba.jit import jit, jit_in_order
from nsvm_cli.engines.numba.kernels import gradient, values
from nsvm_cli.engines.numba.networks import ForwardCache, backward, forward, room_for
from nsvm_cli.randomness import BLOCK


@jit
def _norm(U: Any) -> float:
    flat, square = U.reshape(-1), U.dtype.type(0)
    for i in range(len(flat)):
        square += flat[i] * flat[i]
    return math.sqrt(square)


@jit
def _centred(U: Any, w: Any) -> Any:
    """Return H U H for a symmetric U. H subtracts means, weighted with w unless w is empty."""
    k = len(U)
    means = np.empty(k, U.dtype)
    for i in range(k):
        means[i] = _mean(U[i], w)
    mean = _mean(means, w)
    out = np.empty_like(U)
    for i in range(k):
        for j in range(k):
            out[i, j] = (U[i, j] - means[i]) - (means[j] - mean)
    return out


@jit
def _mean(a: Any, w: Any) -> Any:
    """Return the mean of a, weighted with w unless w is empty. The mean of equal numbers is exact."""
    if len(w) == 0:
        return a.sum() / a.dtype.type(len(a))
    total = 0.0
    for i in range(len(a)):
        total += w[i] * (a[i] - a[0])
    return a[0] + a.dtype.type(total / w.sum())


@jit
def _weigh(U: Any, w: Any) -> Any:
    """Multiply U_ij by sqrt(w_i w_j), unless w is empty, and return U."""
    for i in range(len(w)):
        for j in range(len(w)):
            U[i, j] *= U.dtype.type(math.sqrt(w[i] * w[j]))
    return U


@jit
def ideal(y: Any, classes: int, like: Any) -> Any:
    """Return the ideal kernel matrix of labels (see ``Task.code``). ``classes`` is 1 for labels -1 and +1."""
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
def cosine(K: Any, U: Any, w: Any) -> Any:
    """Return <U, K> / (||U|| ||K||), and its derivative with respect to K. U is overwritten.

    The terms of all sums have the weights w_i w_j, unless w is empty.
    """
    direction, slope, real = _weigh(K.copy(), w), _weigh(U, w), K.dtype.type
    norm, norm_U = real(_norm(direction)), real(_norm(slope))
    if norm_U > 0:
        scale(slope, real(1) / norm_U)
    scale(direction, real(1) / norm)
    value = inner(slope, direction)
    for i in range(len(U)):
        for j in range(len(U)):
            slope[i, j] -= value * direction[i, j]
    scale(slope, real(1) / norm)
    return value, _weigh(slope, w)


@jit
def alignment(K: Any, y: Any, w: Any, classes: int, centred: bool) -> Any:
    """Return the kernel-target alignment, centred or not, and its derivative with respect to K."""
    if not centred:
        return cosine(K, ideal(y, classes, K), w)
    H_K_H, c = _centred(K, w), y - y[0]
    if not c.any() or not H_K_H.any():
        return K.dtype.type(0), np.zeros_like(K)
    if classes == 1:
        return cosine(H_K_H, ideal(c - _mean(c, w), 1, K), w)
    return cosine(H_K_H, _centred(ideal(y, classes, K), w), w)


@jit
def descend_on_batch(run: Run, t: int, A: Any, alpha: Any, mu: float, classes: int, centred: bool) -> None:
    """Take a step in theta on the batch A.

    The objective of Algorithm 3 is mu times the norm surrogate minus the alignment. ``alpha`` is None for
    Algorithm 4, whose objective is (1 - alignment)^2.
    """
    F, K, real, k = run.F, run.K, run.x.dtype.type, len(A)
    passed, z = room_for(F, k), np.empty((k, F.width), F.theta.dtype)
    forward(F, rows_of(run.x, A), passed, z, t, A, 0)
    K_A = values(K, z, z)
    w = run.w[A] if len(run.w) > 0 else run.w
    aligned, slope = alignment(K_A, run.y[A], w, classes, centred)
    if alpha is None:
        rest = real(1) - aligned
        value = rest * rest
        scale(slope, real(-2) * rest)
    else:
        _divide_rows(alpha, w)
        norm, slope_norm = cosine(K_A, np.dot(alpha, alpha.T), w)
        value = real(mu) * norm - aligned
        scale(slope, real(-1))
        scale(slope_norm, real(mu))
        add_matrix(slope, slope_norm)
    scale(slope, real(2))  # due to the symmetry of K_A
    theta_step(run, t, passed, gradient(K, z, z, K_A, slope), value)


@jit_in_order
def _divide_rows(A: Any, w: Any) -> None:
    """Divide row i of A by w_i, unless w is empty."""
    real = A.dtype.type
    for i in range(len(w)):
        factor = real(1) / real(w[i])
        for r in range(A.shape[1]):
            A[i, r] *= factor


@jit
def theta_step(run: Run, t: int, passed: ForwardCache, grad_z: Any, value: float) -> None:
    """Take a step of SGD in theta, given the value of the objective and its gradient with respect to z."""
    if not math.isfinite(value):
        raise FloatingPointError("the objective")
    F, objectives = run.F, run.progress.objectives
    theta, momenta, grad_theta = F.theta, F.momenta, backward(F, passed, grad_z)
    rate, decay, momentum = F.rates[t % BLOCK], F.weight_decay, F.momentum
    for k in range(len(theta)):
        momenta[k] = momentum * momenta[k] + grad_theta[k] + decay * theta[k]
        theta[k] -= rate * momenta[k]
    objectives[0] += value
    objectives[1] += 1
    objectives[2] = value
