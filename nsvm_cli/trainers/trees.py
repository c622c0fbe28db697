"""scikit-learn's gradient boosting of trees on histograms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import pydantic
import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from nsvm_cli.config.registry import STRICT, Count, Positive
from nsvm_cli.models.kernels import Kernel
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.tasks import Regression
from nsvm_cli.trainers.base import Problem, State, Trainer
from nsvm_cli.trainers.direct import Grid, ScikitLearn, one_library


@dataclass(frozen=True)
class Boosted(Expansion):
    """A function g that is no expansion, but that of ``trees``."""

    trees: Any = None

    def __call__(self, K: Kernel, z: Float[Tensor, "p n"]) -> Float[Tensor, " p *outputs"]:
        """Return g at features z of shape (p, n)."""
        g = getattr(self.trees, "decision_function", self.trees.predict)
        with one_library():
            return torch.from_numpy(g(z.double().cpu().numpy())).to(z) + self.bias


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Trees(ScikitLearn):
    """HistGradientBoostingClassifier, or HistGradientBoostingRegressor for real targets."""

    searchable: ClassVar[tuple[str, ...]] = ("learning_rate", "max_leaf_nodes", "max_iter")
    trains_svm: ClassVar[bool] = False
    saves_model: ClassVar[bool] = False
    unit: ClassVar[str] = "iterations"
    learning_rate: Positive = 0.1
    max_leaf_nodes: Annotated[int, Field(ge=2)] = 31
    max_iter: Count = 100
    grid: Grid | None = None

    def size(self, m: int) -> int:
        return self.max_iter

    def share(self, problem: Problem, size: int) -> tuple[Trainer[State], Problem]:
        return replace(self, max_iter=size), problem

    def machine(self, problem: Problem, n: int) -> Any:
        from sklearn import ensemble  # slow to import, and needed only here

        of_task = "Regressor" if isinstance(problem.task, Regression) else "Classifier"
        return getattr(ensemble, f"HistGradientBoosting{of_task}")(
            learning_rate=self.learning_rate,
            max_leaf_nodes=self.max_leaf_nodes,
            max_iter=self.max_iter,
            random_state=problem.seed % 2**32,
        )

    def solve(self, problem: Problem, z: Float[Tensor, "m n"]) -> Expansion:
        return Boosted(z[:0], z.new_zeros(0, *problem.task.outputs), 1.0, trees=self.fit(problem, z))
