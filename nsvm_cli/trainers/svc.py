"""scikit-learn's SVC and SVR: the dual problem, which the paper allows for Part 2 of Algorithm 4."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from nsvm_cli.errors import InputError, RunError
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import RBF, Kernel, Linear, Polynomial
from nsvm_cli.models.losses import EpsilonInsensitive, Hinge, OneVsRest
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.models.objectives import KERNEL_ROWS, OVERFLOW
from nsvm_cli.trainers.base import Problem
from nsvm_cli.trainers.direct import Regularised

MAX_ITERATIONS = 10**6
"""The most iterations of LIBSVM, each of which changes two coefficients, or 10 m if that is more. Without a
limit it would not end for C = 1e9."""


class SVC(Regularised):
    """The dual problem with a bias, solved to scikit-learn's precision: SVC, or SVR for real targets.

    More than two classes are told apart in pairs, which is neither of the settings of ``multiclass``.
    """

    name: ClassVar[str] = "svc"
    searchable: ClassVar[tuple[str, ...]] = ("C", "gamma", "epsilon")

    def check(self, problem: Problem, F: FeatureMap) -> None:
        super().check(problem, F)
        m, own = len(problem.y), _scikit_learns_own(problem.K, n=1)
        needed = m * m * 8 / 2**20
        if needed > problem.memory_budget and not own:
            raise InputError(
                f"svc needs the {m} x {m} kernel matrix with this kernel, {needed:.1f} MiB of "
                f"memory_budget={problem.memory_budget}: use pegasos, or kernel=rbf"
            )
        if "gamma" in (self.grid or ()) and "gamma" not in (own or ()):
            raise InputError("algorithm.grid.gamma expects kernel=rbf or polynomial")
        self.expect_loss(problem, Hinge, EpsilonInsensitive)
        if isinstance(problem.loss, OneVsRest):
            raise InputError(
                "svc tells classes apart in pairs: for multiclass=one_vs_rest use pegasos, or a linear SVM"
            )

    def machine(self, problem: Problem, n: int) -> Any:
        from sklearn import svm  # slow to import, and needed only here

        settings: dict[str, Any] = {
            "max_iter": max(MAX_ITERATIONS, 10 * len(problem.y)),
            "C": self.C(problem),
        }
        own = _scikit_learns_own(problem.K, n)
        settings |= {"cache_size": problem.memory_budget, **own} if own else {"kernel": "precomputed"}
        if isinstance(problem.loss.l, EpsilonInsensitive):
            return svm.SVR(epsilon=problem.loss.l.epsilon, **settings)
        return svm.SVC(**settings)

    def inputs(self, problem: Problem, z: Float[Tensor, "m n"]) -> np.ndarray:
        """Return z for kernels that scikit-learn can compute, or else the kernel matrix."""
        if not _scikit_learns_own(problem.K, z.shape[1]):
            return _gram(problem, z)
        if not problem.K.diag(z.double()).isfinite().all():  # |K(a, b)|^2 <= K(a, a) K(b, b)
            raise RunError(OVERFLOW)
        return super().inputs(problem, z)

    def solve(self, problem: Problem, z: Float[Tensor, "m n"]) -> Expansion:
        svc = self.fit(problem, z)
        j = torch.from_numpy(svc.support_).to(z.device, torch.int64)
        if problem.task.outputs:
            alpha = torch.from_numpy(_by_pairs(svc.dual_coef_, svc.n_support_)).to(z)
            return Expansion(z[j], alpha, 1.0, torch.from_numpy(svc.intercept_).to(z), one_vs_one=True, i=j)
        alpha = torch.from_numpy(svc.dual_coef_[0]).to(z)
        return Expansion(z[j], alpha, 1.0, float(svc.intercept_[0]), i=j)


def _by_pairs(
    dual_coef: Float64[np.ndarray, "others s"], support: np.ndarray
) -> Float64[np.ndarray, "s pairs"]:
    """Return the coefficients of each pair of classes, from SVC's, which has one row for each *other* class.

    Args:
        dual_coef: SVC's ``dual_coef_``; support vectors are sorted by class.
        support: how many of them belong to each class.
    """
    C = len(support)
    members = np.split(np.arange(dual_coef.shape[1]), np.cumsum(support)[:-1])
    alpha = np.zeros((dual_coef.shape[1], C * (C - 1) // 2))
    for pair, (i, j) in enumerate(itertools.combinations(range(C), 2)):
        alpha[members[i], pair] = dual_coef[j - 1, members[i]]
        alpha[members[j], pair] = dual_coef[i, members[j]]
    return alpha


def _scikit_learns_own(K: Kernel, n: int) -> dict[str, Any] | None:
    """Return scikit-learn's settings for a kernel that it can compute in blocks, or None."""
    # exact types, because a subclass is another kernel
    gamma = 1 / n if getattr(K, "gamma", None) is None else K.gamma  # type: ignore[attr-defined]
    if type(K) is RBF:
        return {"kernel": "rbf", "gamma": gamma}
    if type(K) is Linear:
        return {"kernel": "linear"}
    if type(K) is Polynomial:
        return {"kernel": "poly", "degree": K.degree, "gamma": gamma, "coef0": K.c}
    return None


def _gram(problem: Problem, z: Float[Tensor, "m n"]) -> Float64[np.ndarray, "m m"]:
    """Return the kernel matrix, (m, m); ``check`` has verified that it fits in memory."""
    gram = np.empty((len(z), len(z)))
    for row in range(0, len(z), KERNEL_ROWS):
        gram[row : row + KERNEL_ROWS] = problem.K(z[row : row + KERNEL_ROWS], z).cpu().numpy()
    if not np.isfinite(gram).all():
        raise RunError(OVERFLOW)
    return gram
