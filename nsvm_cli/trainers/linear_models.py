"""scikit-learn's linear models: linear SVMs, and without an SVM logistic or ridge regression."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pydantic
import torch
from jaxtyping import Float
from torch import Tensor

from nsvm_cli.config.registry import STRICT, Positive
from nsvm_cli.errors import InputError
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import is_linear
from nsvm_cli.models.losses import CrammerSinger, EpsilonInsensitive, Hinge, SquaredHinge
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.output import WARN
from nsvm_cli.tasks import Regression
from nsvm_cli.trainers.base import Problem
from nsvm_cli.trainers.direct import Grid, ScikitLearn, expect_loss

MAX_ITERATIONS = 10_000
"""The most iterations of L-BFGS, or passes of LIBLINEAR; a solver that needs more says so."""

TOLERANCE = 1e-7
"""LIBLINEAR's tolerance where it converges linearly; its default is too coarse for separable classes."""


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class LinearModel(ScikitLearn):
    """f(x) = <w, F_theta(x)> + b, with w as the only term, or one for each class.

    It minimises lambda/2 ||w||^2 + 1/m sum_j w_j l_j: scikit-learn's objective with C = 1/(lambda m) and the
    sample weights w_j.
    """

    lam: Positive = 1e-4
    grid: Grid | None = None

    def C(self, problem: Problem) -> float:
        limits = np.finfo(np.float64)  # the quotient may be 0 or infinite, which scikit-learn refuses
        return float(np.clip(1 / (self.lam * len(problem.y)), limits.tiny, limits.max))

    def check(self, problem: Problem, F: FeatureMap) -> None:
        super().check(problem, F)
        if not is_linear(problem.K):
            kernel = type(problem.K).__name__.lower()
            raise InputError(f"{self.name} expects kernel=linear, got {kernel}: use svc or pegasos")

    def solve(self, problem: Problem, z: Float[Tensor, "m n"]) -> Expansion:
        machine = self.fit(problem, z)
        if machine.n_iter_ is not None and np.max(machine.n_iter_) >= machine.max_iter:
            WARN.get()(
                f"{self.name} stopped after {machine.max_iter} iterations, before it converged: "
                f"raise algorithm.lam={self.lam:g}{', or use pegasos' if self.trains_svm else ''}"
            )
        w, b = torch.from_numpy(np.atleast_2d(machine.coef_)).to(z), np.atleast_1d(machine.intercept_)
        if problem.task.outputs:
            return Expansion(w, torch.eye(len(w)).to(z), 1.0, torch.from_numpy(b).to(z))
        return Expansion(w, z.new_ones(1), 1.0, float(b[0]))


class LinearSVM(LinearModel):
    """LinearSVC, or LinearSVR for real targets: the primal problem in the weights of the linear kernel.

    SVC computes m^2 kernel values; this takes time in proportion to m.
    """

    searchable: ClassVar[tuple[str, ...]] = ("C", "epsilon")

    def check(self, problem: Problem, F: FeatureMap) -> None:
        super().check(problem, F)
        squared = [] if isinstance(problem.loss, CrammerSinger) else [SquaredHinge]
        expect_loss(self.name, problem, Hinge, EpsilonInsensitive, *squared)

    def machine(self, problem: Problem, n: int) -> Any:
        from sklearn import svm  # slow to import, and needed only here

        l = problem.loss.l  # noqa: E741
        settings: dict[str, Any] = {"random_state": 0, "max_iter": MAX_ITERATIONS, "C": self.C(problem)}
        if isinstance(l, EpsilonInsensitive):
            return svm.LinearSVR(epsilon=l.epsilon, **settings)
        if isinstance(problem.loss, CrammerSinger):
            return svm.LinearSVC(multi_class="crammer_singer", tol=TOLERANCE, **settings)
        if isinstance(l, Hinge):
            return svm.LinearSVC(loss="hinge", dual=True, **settings)
        return svm.LinearSVC(dual="auto", tol=TOLERANCE, **settings)


class Logistic(LinearModel):
    """LogisticRegression, which is multinomial for many classes, or Ridge with alpha = lambda m.

    l_j is the cross-entropy, or (y_j - f(x_j))^2 / 2; the bias is not regularised.
    """

    searchable: ClassVar[tuple[str, ...]] = ("C", "alpha")
    trains_svm: ClassVar[bool] = False

    def machine(self, problem: Problem, n: int) -> Any:
        from sklearn import linear_model  # slow to import, and needed only here

        if isinstance(problem.task, Regression):
            return linear_model.Ridge(alpha=1 / self.C(problem))
        return linear_model.LogisticRegression(C=self.C(problem), max_iter=MAX_ITERATIONS)
