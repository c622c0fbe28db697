"""Objectives and losses for theta, as pure functions of a batch's kernel matrix.

``K`` is the (k, k) kernel matrix, ``y`` the labels -1 and +1, and ``alpha`` the coefficients of the same k
samples. Each function returns its value and its derivative.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from nsvm_cli.errors import RunError
from nsvm_cli.models.kernels import Kernel
from nsvm_cli.randomness import Stream, generator

Value = Float[Tensor, ""]
Slope = Float[Tensor, "k k"]


def alignment(K: Float[Tensor, "k k"], y: Float[Tensor, " k"]) -> tuple[Value, Slope]:
    """Return the kernel-target alignment, in [-1, 1] (paper, Algorithm 4), and its derivative by K.

    The alignment is::

        A = sum_ij y_i y_j K_ij  /  (k * sqrt(sum_ij K_ij^2))
    """
    return _cosine(K, torch.outer(y, y) / len(y))


def norm_surrogate(
    K: Float[Tensor, "k k"], alpha: Float[Tensor, " k"], y: Float[Tensor, " k"]
) -> tuple[Value, Slope]:
    """Return Algorithm 3's surrogate for ||f||^2_H (its first fraction), and its derivative by K.

    It is 0 if every alpha is 0, and otherwise::

        sum_ij alpha_i alpha_j y_i y_j K_ij  /  (sqrt(sum_ij (alpha_i alpha_j)^2) * sqrt(sum_ij K_ij^2))
    """
    ay = alpha * y
    norm = alpha @ alpha  # whose square is sum_ij (alpha_i alpha_j)^2
    return _cosine(K, torch.outer(ay, ay) / torch.where(norm > 0, norm, 1.0))


def _cosine(K: Slope, U: Slope) -> tuple[Value, Slope]:
    """Return <U, K / ||K||> and its derivative by K. The norm of U is 1 or 0."""
    norm = torch.linalg.vector_norm(K)
    direction = K / norm
    value = (U * direction).sum()
    return value, (U - value * direction) / norm


def squared(beta: float, gamma: Value) -> tuple[Value, Value]:
    """Return L(beta, gamma) = (beta - gamma)^2  (paper, Section 5), and its derivative by gamma."""
    return (beta - gamma) ** 2, -2 * (beta - gamma)


def linear(beta: float, gamma: Value) -> tuple[Value, Value]:
    """Return L(beta, gamma) = -beta gamma, and its derivative by gamma.

    With beta = 1, minimising it maximises the alignment itself  (paper, derivation of Algorithm 4).
    """
    return -beta * gamma, torch.full_like(gamma, -beta)


LOSSES: dict[str, Callable[[float, Value], tuple[Value, Value]]] = {"squared": squared, "linear": linear}

OVERFLOW = (
    "the kernel matrix of the training data holds values that are not finite; "
    "use another kernel, kernel.normalize=true, or dtype=float64"
)

ALIGNMENT_SAMPLES = 10_000
"""Largest number of samples in ``dataset_alignment``, which takes m^2 kernel values; a random subset of this
size stands in for more."""

ROWS = 64
"""Rows of a data set's kernel matrix that are computed at a time."""


def dataset_alignment(
    K: Kernel, z: Float[Tensor, "m n"], y: Float[Tensor, " m"], seed: int
) -> dict[str, float | int | None]:
    """Return the kernel-target alignment of a whole data set, and the number of samples that it is based on.

    The alignment is None where it is undefined, because every kernel value is 0.

    Raises:
        RunError: a kernel value is not finite.
    """
    if len(y) > ALIGNMENT_SAMPLES:
        rows = generator(seed, Stream.SUBSAMPLE).choice(len(y), ALIGNMENT_SAMPLES, replace=False)
        chosen = torch.from_numpy(rows).to(y.device)
        z, y = z[chosen], y[chosen]
    target = squares = 0.0
    for row in range(0, len(y), ROWS):
        # the matrix is symmetric: blocks right of the diagonal count twice, for their mirror images too
        z_i, y_i = z[row : row + ROWS], y[row : row + ROWS].double()
        K_ij = K(z_i, z[row:]).double()
        K_ii, K_rest = K_ij[:, : len(y_i)], K_ij[:, len(y_i) :]
        target += float(y_i @ K_ii @ y_i + 2 * y_i @ K_rest @ y[row + len(y_i) :].double())
        squares += float(K_ii.square().sum() + 2 * K_rest.square().sum())
    if not math.isfinite(squares):
        raise RunError(OVERFLOW)
    value = target / (len(y) * squares**0.5) if squares > 0 else None
    return {"alignment": value, "alignment_samples": len(y)}
