"""scikit-learn's linear models without an SVM: logistic regression, or ridge regression for real targets."""

from __future__ import annotations

from typing import Any, ClassVar

import pydantic
from jaxtyping import Float
from torch import Tensor

from nsvm_cli.config.registry import STRICT, Positive
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.tasks import Regression
from nsvm_cli.trainers.base import Problem
from nsvm_cli.trainers.direct import Grid, Regularised, expect_linear

MAX_ITERATIONS = 10_000
"""The most iterations of L-BFGS."""


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Logistic(Regularised):
    """LogisticRegression, which is multinomial for many classes, or Ridge with alpha = lambda m.

    l_j is the cross-entropy, or (y_j - f(x_j))^2 / 2; the bias is not regularised.
    """

    name: ClassVar[str] = "logistic"
    searchable: ClassVar[tuple[str, ...]] = ("C", "alpha")
    trains_svm: ClassVar[bool] = False
    lam: Positive = 1e-4
    grid: Grid | None = None

    def check(self, problem: Problem, F: FeatureMap) -> None:
        super().check(problem, F)
        expect_linear(problem, self.name, "")

    def machine(self, problem: Problem, n: int) -> Any:
        from sklearn import linear_model  # slow to import, and needed only here

        if isinstance(problem.task, Regression):
            return linear_model.Ridge(alpha=1 / self.C(problem))
        return linear_model.LogisticRegression(C=self.C(problem), max_iter=MAX_ITERATIONS)

    def solve(self, problem: Problem, z: Float[Tensor, "m n"]) -> Expansion:
        return self.linear(problem, z)
