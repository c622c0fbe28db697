"""Objectives for theta, and measures of how far training has moved theta and the kernel matrix.

``K`` is the (k, k) kernel matrix of a batch, ``c`` contains the codes of its labels (see ``Task.code``), and
``alpha`` its coefficients: for each sample, a number or a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from nsvm_cli.datasets.scaling import ScaledSamples
from nsvm_cli.errors import RunError
from nsvm_cli.models.composed_kernels import learnt_values
from nsvm_cli.models.feature_map import features
from nsvm_cli.models.kernels import Kernel, kernel_sums
from nsvm_cli.models.losses import Loss
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.randomness import Stream, generator

Value = Float[Tensor, ""]

RIDGE = 0.01
"""The regularisation in ``leave_one_out``, relative to the mean of K(z, z)."""

OBJECTIVE_ROWS = 1000
"""Number of samples whose features are converted to float64 at a time."""


def products(a: Float[Tensor, " p *outputs"], b: Float[Tensor, " q *outputs"]) -> Float[Tensor, "p q"]:
    """Return the inner products <a_i, b_j> for all i, j."""
    return torch.outer(a, b) if a.ndim == 1 else a @ b.mT


def mean_loss(l: Float[Tensor, " k"], w: Float[Tensor, " k"] | None) -> Value:  # noqa: E741
    """Return 1/k sum_i w_i l_i, with sample weights w (None: all weights are 1)."""
    return l.mean() if w is None else (w * l).mean()


def alignment(
    K: Float[Tensor, "k k"],
    c: Float[Tensor, " k *outputs"],
    centred: bool = False,
    w: Float[Tensor, " k"] | None = None,
) -> Value:
    """Return the kernel-target alignment, in [-1, 1] (paper, Algorithm 4).

    With the ideal kernel U_ij = <c_i, c_j>, which is y_i y_j for two classes, the alignment is::

        A = sum_ij U_ij K_ij  /  (sqrt(sum_ij U_ij^2) sqrt(sum_ij K_ij^2))

    If ``centred``, K and U are replaced by H K H and H U H, where H = I - 1 1^T / k subtracts means (Cortes,
    Mohri and Rostamizadeh 2012). The result is 0 if H K H or H U H is 0, for example in a batch of one class.
    With weights, each term of the sums is multiplied by w_i w_j, and H = I - 1 w^T / sum_i w_i.
    """
    if not centred:
        return _cosine(K, c, w)
    H_K = K - _mean(K, 0, w)
    H_K_H = H_K - _mean(H_K, 1, w)
    varies = H_K_H.any()
    return torch.where(varies, _cosine(torch.where(varies, H_K_H, 1.0), _minus_mean(c, w), w), 0.0)


def leave_one_out(
    K: Float[Tensor, "k k"], c: Float[Tensor, " k *outputs"], w: Float[Tensor, " k"] | None = None
) -> Value:
    """Return the leave-one-out error of kernel ridge regression from the features to the centred codes.

    The error is the sum of w_j ||c_j - f_j(z_j)||^2, where f_j is trained on all samples except j, divided by
    the sum of w_j ||c_j||^2: 1 if f_j = 0, and 0 in a batch of one class. The regularisation is ``RIDGE``
    times the mean of K(z_j, z_j). With G = (K + r k I)^-1, the residual of sample j is (G c)_j / G_jj (Golub,
    Heath and Wahba 1979).
    """
    r = RIDGE * K.diagonal().mean()
    K, c = _weighted(K, _minus_mean(c, w), w)
    M = K + r * len(K) * torch.eye(len(K)).to(K)
    L, failed = torch.linalg.cholesky_ex(M.detach())
    G = torch.cholesky_inverse(L).where(failed == 0, torch.nan)
    # M^-1 = 2 G - G M G to first order in M; this has a cheaper derivative than the inverse
    G_M, G_c = G @ M, G @ c
    residuals = (2 * G_c - G_M @ G_c) / _of_rows(2 * G.diagonal() - (G_M * G).sum(1), c)
    size = c.square().sum()
    return residuals.square().sum() / torch.where(size > 0, size, 1.0)


def norm_surrogate(
    K: Float[Tensor, "k k"], alpha: Float[Tensor, " k *outputs"], w: Float[Tensor, " k"] | None = None
) -> Value:
    """Return Algorithm 3's surrogate for ||f||^2_H (its first fraction).

    With A_ij = <alpha_i, alpha_j>, the paper's alpha_i alpha_j y_i y_j for two classes, the surrogate is::

        sum_ij A_ij K_ij  /  (sqrt(sum_ij A_ij^2) sqrt(sum_ij K_ij^2))

    or 0 if every alpha is 0. A sample with weight w_i counts as w_i samples, which share alpha_i. With
    weights, A_ij is therefore divided by w_i w_j, and each term of the sums is multiplied by w_i w_j.
    """
    return _cosine(K, alpha if w is None else alpha / _of_rows(w, alpha), w)


def squared_norm(alpha: Float[Tensor, " s *outputs"], f: Float[Tensor, " s *outputs"]) -> Value:
    """Return ||f||^2_H = sum_s <alpha_s, f(z_s)>, given the coefficients alpha_s and the values f(z_s)."""
    return (alpha * f).sum()


def full_objective(
    f: Expansion,
    K: Kernel,
    z: Float[Tensor, "m n"],
    y: Float[Tensor, " m"],
    loss: Loss,
    lam: float,
    w: Float[Tensor, " m"] | None = None,
) -> float | None:
    """Return lambda/2 ||f||^2_H + 1/m sum_i w_i l(y_i, f(z_i))  (paper, Section 3).

    The norm excludes the bias. The result is None with ``one_vs_one``, because each pair has its own f.
    """
    if f.one_vs_one:
        return None
    f = replace(f, z=f.z.double(), alpha=f.alpha.double())
    g = torch.cat([f(K, part.double()) for part in z.split(OBJECTIVE_ROWS)])
    norm = squared_norm(f.alpha, kernel_sums(K, f.z, f.z, f.alpha)) / f.scale**2
    return float(lam / 2 * norm + mean_loss(loss.of(y.to(g), g), w))


def gram_norm(a: Float[Tensor, " k *outputs"]) -> Value:
    """Return sqrt(sum_ij <a_i, a_j>^2)."""
    return a @ a if a.ndim == 1 else torch.linalg.matrix_norm(a.mT @ a)


def _mean(a: Float[Tensor, " k *n"], dim: int, w: Float[Tensor, " k"] | None) -> Tensor:
    """Return the (weighted) mean along a dimension, with keepdim. The mean of equal values is exact."""
    if w is None:
        return a.mean(dim, keepdim=True)
    p, first = w / w.sum(), a.narrow(dim, 0, 1)
    return first + ((p @ (a - first))[None] if dim == 0 else ((a - first) @ p)[:, None])


def _minus_mean(c: Float[Tensor, " k *outputs"], w: Float[Tensor, " k"] | None) -> Tensor:
    """Return the codes minus their (weighted) mean. A constant column becomes exactly 0."""
    c = c - c[0]
    return c - _mean(c, 0, w)


def _weighted(K: Tensor, a: Tensor, w: Float[Tensor, " k"] | None) -> tuple[Tensor, Tensor]:
    """Return sqrt(w_i w_j) K_ij and sqrt(w_i) a_i for all i and j, or K and a if w is None."""
    if w is None:
        return K, a
    s = w.sqrt()
    return torch.outer(s, s) * K, _of_rows(s, a) * a


def _of_rows(w: Float[Tensor, " k"], a: Float[Tensor, "k ..."]) -> Float[Tensor, "k ..."]:
    """Return w reshaped for multiplying the rows of a."""
    return w.reshape(-1, *[1] * (a.ndim - 1))


def _cosine(K: Float[Tensor, "k k"], a: Float[Tensor, " k *outputs"], w: Float[Tensor, " k"] | None) -> Value:
    """Return <U, K> / (||U|| ||K||), with U_ij = <a_i, a_j> and weights w: 0 if U is 0, and NaN if K is 0."""
    K, a = _weighted(K, a, w)
    norm = gram_norm(a)
    U = products(a, a) / torch.where(norm > 0, norm, 1.0)
    return (U * K).sum() / torch.linalg.vector_norm(K)


KERNEL_OBJECTIVES: dict[str, Callable[[Tensor, Tensor, bool, Tensor | None], Value]] = {
    "squared": lambda *args: (1 - alignment(*args)) ** 2,  # paper, Section 5
    "linear": lambda *args: -alignment(*args),  # derivation of Algorithm 4
    "leave_one_out": lambda K, c, centred, w: leave_one_out(K, c, w),
}
"""The objective of Part 1 of Algorithm 4, by name, as a function of the arguments of ``alignment``.

The first two are L(1, A) in the paper, where A is the alignment.
"""

ALIGNMENT_SAMPLES = 10_000
"""Maximum number of training samples for which a result contains ``dataset_alignment``."""

KERNEL_ROWS = 64
"""Number of rows of a data set's kernel matrix that are computed at a time."""


def dataset_alignment(
    K: Kernel, z: Float[Tensor, "m n"], c: Float[Tensor, " m *outputs"], centred: bool = False
) -> dict[str, float | int | bool | None]:
    """Return the ``alignment`` of a data set, the number of samples used, and whether it is centred.

    The alignment is None if all kernel values are 0 or, if ``centred``, equal. A RunError is raised if a
    kernel value is not finite.
    """
    c = c.double()
    if centred:
        # <H U H, K> = <H U H, H K H>, so K need not be centred here; a constant column of c becomes 0
        c = torch.where((c == c[0]).all(0), 0.0, c - c.mean(0))
    target = squares = 0.0
    row_sums = c.new_zeros(len(c))
    for row in range(0, len(c), KERNEL_ROWS):
        rows = slice(row, row + KERNEL_ROWS)
        K_ij = K(z[rows], z).double()
        target += float((c[rows] * (K_ij @ c)).sum())
        squares += float(K_ij.square().sum())
        row_sums[rows] = K_ij.sum(1)
    if not math.isfinite(squares):
        raise RunError(
            "the kernel matrix of the training data contains values that are not finite; "
            "use another kernel, kernel.normalize=true, or dtype=float64"
        )
    if centred:  # ||H K H||^2, which rounding may make negative
        m, mean = len(c), float(row_sums.mean())
        squares = max(0.0, squares - 2 * float(row_sums.square().sum()) / m + mean**2)
    size = float(gram_norm(c)) * squares**0.5
    value = target / size if size > 0 else None
    return {"alignment": value, "alignment_samples": len(c), "alignment_centred": centred}


def random_subset(m: int, size: int, seed: int, device: torch.device) -> Int64[Tensor, " size"]:
    """Return the indices of ``size`` random samples out of m, without repeats."""
    rows = generator(seed, Stream.SUBSAMPLE).choice(m, size, replace=False)
    return torch.from_numpy(rows).to(device)


def at_most(size: int, m: int, seed: int, device: torch.device) -> Int64[Tensor, " size"] | slice:
    """Return the indices of ``size`` random samples out of m, or a slice of all if m is not larger."""
    return random_subset(m, size, seed, device) if m > size else slice(None)


MAX_SAMPLES = 1000
"""Maximum number of samples in ``feature_change``, which subsamples larger data sets."""


Map = tuple[nn.Module, Kernel]
"""A network and a kernel, which together contain theta."""


def theta_change(before: Map, after: Map) -> float | None:
    """Return ||theta - theta_0|| / ||theta_0|| over all parameters, or None if theta_0 is empty or 0."""
    # learnt settings of a kernel enter with their values, not with their logarithms
    theta_0, theta = ([*network.parameters(), *learnt_values(K).values()] for network, K in (before, after))
    moved, size = [b - a for a, b in zip(theta_0, theta, strict=True)], _norm(theta_0)
    return _norm(moved) / size if size > 0 else None


def _norm(tensors: list[Tensor]) -> float:
    return math.hypot(*(float(torch.linalg.vector_norm(tensor.detach().double())) for tensor in tensors))


def feature_change(before: Map, after: Map, x: ScaledSamples, seed: int) -> float | None:
    """Return 1 - <H K_0 H, H K_T H> / (||H K_0 H|| ||H K_T H||), from 0 (the same kernel) to 1.

    This is 1 minus the centred kernel alignment (Kornblith et al. 2019, "Similarity of neural network
    representations revisited"), where H = I - 1 1^T / m, and K_0 and K_T are the kernel matrices of x before
    and after training. The result is None if a matrix is constant or not finite.
    """
    x = x[at_most(MAX_SAMPLES, len(x), seed, x.device)]
    K_0, K_T = (_centred(K, features(network, x)) for network, K in (before, after))
    if K_0 is None or K_T is None:
        return None
    # exactly 1 for equal matrices, since sqrt(a a) is a without rounding
    cosine = float((K_0 * K_T).sum()) / math.sqrt(float((K_0 * K_0).sum()) * float((K_T * K_T).sum()))
    return max(0.0, 1 - cosine)


def _centred(K: Kernel, z: Float[Tensor, "m n"]) -> Float64[Tensor, "m m"] | None:
    """Return H K H divided by its largest absolute value, or None if H K H is 0 or not finite."""
    with torch.no_grad():
        matrix = torch.cat([K(rows, z).double() for rows in z.split(KERNEL_ROWS)])
        largest = float(matrix.abs().max())
        if not math.isfinite(largest):
            return None
        matrix = matrix - matrix.mean(0)
        matrix -= matrix.mean(1, keepdim=True)
        spread = float(matrix.abs().max())
        return matrix / spread if spread > largest * torch.finfo(z.dtype).eps else None
