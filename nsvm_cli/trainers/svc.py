"""scikit-learn's SVC as a solver for Part 2 of Algorithm 4: the dual approach, which the paper allows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pydantic
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from nsvm_cli.config.registry import STRICT, Positive
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import RBF, Kernel, Linear, Polynomial
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.models.objectives import OVERFLOW, ROWS
from nsvm_cli.trainers.base import Problem, State, Trainer


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class SVC(Trainer[State]):
    """The dual problem with a bias, solved to optimality on z_j = F_theta(x_j).

    lambda/2 ||f||^2 + 1/m sum_j hinge_j is SVC's objective with C = 1/(lambda m). The solver runs in
    ``finish``, because it has no steps that the loop could drive.
    """

    lam: Positive = 1e-4

    @property
    def total(self) -> int:
        return 0

    def check(self, problem: Problem, F: FeatureMap) -> None:
        m = len(problem.y)
        needed = m * m * 8 / 2**20
        if needed > problem.memory_budget and not _scikit_learns_own(problem.K, n=1):
            raise InputError(
                f"algorithm.solver=svc needs the {m} x {m} kernel matrix with this kernel, {needed:.1f} MiB "
                f"of memory_budget={problem.memory_budget}: use solver=pegasos, or kernel=rbf"
            )

    def start(self, problem: Problem, F: FeatureMap) -> State:
        return State(F=F, sampler=problem.sampler(), t=0)

    def advance(self, problem: Problem, state: State, until: int) -> None:
        """Do nothing: there are no steps."""

    def finish(self, problem: Problem, state: State) -> Expansion:
        return self.solve(problem, state.F(problem.x))

    def solve(self, problem: Problem, z: Float[Tensor, "m n"]) -> Expansion:
        """Return the SVM trained on the features z, (m, n), of the training samples."""
        from sklearn import svm  # slow to import, and needed only here

        y, K = problem.y, problem.K
        C, labels = 1 / (self.lam * len(y)), y.cpu().numpy()
        if own := _scikit_learns_own(K, z.shape[1]):
            points = z.double()
            if not K.diag(points).isfinite().all():  # |K(a, b)|^2 <= K(a, a) K(b, b)
                raise RunError(OVERFLOW)
            svc = svm.SVC(C=C, cache_size=problem.memory_budget, **own).fit(points.cpu().numpy(), labels)
        else:
            svc = svm.SVC(C=C, kernel="precomputed").fit(_gram(problem, z), labels)
        j = torch.from_numpy(svc.support_).to(z.device, torch.int64)
        alpha_y = torch.from_numpy(svc.dual_coef_[0]).to(z)
        return Expansion(z[j], alpha_y.abs(), y[j], scale=1.0, bias=float(svc.intercept_[0]))


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
    for row in range(0, len(z), ROWS):
        gram[row : row + ROWS] = problem.K(z[row : row + ROWS], z).cpu().numpy()
    if not np.isfinite(gram).all():
        raise RunError(OVERFLOW)
    return gram
