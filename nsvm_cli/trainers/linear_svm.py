"""scikit-learn's linear SVMs: the primal problem in the weights of the linear kernel."""

from __future__ import annotations

from typing import Any, ClassVar

import pydantic
from jaxtyping import Float
from torch import Tensor

from nsvm_cli.config.registry import STRICT, Positive
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.losses import CrammerSinger, EpsilonInsensitive, Hinge, SquaredHinge
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.trainers.base import Problem
from nsvm_cli.trainers.direct import Grid, Regularised, expect_linear, expect_loss

MAX_EPOCHS = 10_000
"""The most passes of LIBLINEAR over the samples; a solver that needs more says so."""


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class LinearSVM(Regularised):
    """LinearSVC, or LinearSVR for real targets.

    f(x) = <w, F_theta(x)>, so w is the only term: one for each class. SVC computes m^2 kernel values; this
    takes time in proportion to m.
    """

    name: ClassVar[str] = "linear_svm"
    searchable: ClassVar[tuple[str, ...]] = ("C", "epsilon")
    lam: Positive = 1e-4
    grid: Grid | None = None

    def check(self, problem: Problem, F: FeatureMap) -> None:
        super().check(problem, F)
        expect_linear(problem, self.name, ": use svc or pegasos")
        squared = [] if isinstance(problem.loss, CrammerSinger) else [SquaredHinge]
        expect_loss(problem, self.name, Hinge, EpsilonInsensitive, *squared)

    def machine(self, problem: Problem, n: int) -> Any:
        from sklearn import svm  # slow to import, and needed only here

        l = problem.loss.l  # noqa: E741
        settings: dict[str, Any] = {"random_state": 0, "max_iter": MAX_EPOCHS, "C": self.C(problem)}
        if isinstance(l, EpsilonInsensitive):
            return svm.LinearSVR(epsilon=l.epsilon, **settings)
        if isinstance(problem.loss, CrammerSinger):
            return svm.LinearSVC(multi_class="crammer_singer", **settings)
        loss = "hinge" if isinstance(l, Hinge) else "squared_hinge"
        return svm.LinearSVC(loss=loss, dual="auto" if loss == "squared_hinge" else True, **settings)

    def solve(self, problem: Problem, z: Float[Tensor, "m n"]) -> Expansion:
        return self.linear(problem, z)
