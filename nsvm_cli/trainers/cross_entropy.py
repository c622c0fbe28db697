"""A baseline for neural SVMs: a network with a linear head, trained end to end without an SVM."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import pydantic
import torch
from torch import Tensor
from torch.nn import functional

from nsvm_cli.config.registry import STRICT, Count, Positive
from nsvm_cli.errors import InputError
from nsvm_cli.models.feature_map import FeatureMap, Training
from nsvm_cli.models.kernels import Kernel, is_linear
from nsvm_cli.models.losses import Binary, Logistic, Residual, Squared
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.models.objectives import mean_loss
from nsvm_cli.tasks import BinaryClassification, MulticlassClassification, Regression, Task
from nsvm_cli.trainers.base import BatchTrainer, Problem, State
from nsvm_cli.trainers.means import MeanTheta, Share


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class CrossEntropy(BatchTrainer[State]):
    """Mini-batch gradient descent on the cross-entropy of the classes or, for real targets, squared errors.

    The network must end in a head, and the kernel must be linear. F_theta(x) is the log-odds of class +1 for
    two classes, the log-probabilities (up to a constant) for C > 2 classes, and the prediction for real
    targets.
    """

    trains_svm: ClassVar[bool] = False

    steps: Count
    batch_size: Count = 16
    average: Share | None = None
    epochs: Positive | None = None

    def check(self, problem: Problem, F: FeatureMap) -> None:
        super().check(problem, F)
        n, (expected,) = F(problem.x[:1]).shape[1], problem.task.outputs or (1,)
        if n != expected or not is_linear(problem.K):
            raise InputError(
                f"algorithm={self.name} requires network.head=true and kernel=linear, got a network with "
                f"{n} outputs and kernel={type(problem.K).__name__.lower()}"
            )

    def start(self, problem: Problem, F: FeatureMap) -> State:
        mean = MeanTheta(F, self.average, self.total) if self.average else None
        return State(F=F, sampler=problem.sampler(self.k), t=0, mean=mean)

    def step(self, problem: Problem, state: State) -> None:
        t, task = state.t + 1, problem.task
        A = state.sampler(t)
        x_A, y_A = problem[A]

        def objective(F: Training, K: Kernel) -> Tensor:
            g_A = F(x_A).reshape(-1, *task.outputs)
            correct = task.correct(y_A.cpu().numpy(), g_A.detach().cpu().numpy())
            state.tally.add_decisions(self.k, correct, violations=0)
            return mean_loss(LOSSES[type(task)](y_A, g_A), problem.w(A))

        self.descend(problem, state, objective)
        state.t = t

    def finish(self, problem: Problem, state: State) -> Expansion:
        n = math.prod(problem.task.outputs)
        unit = torch.eye(n).to(problem.y)  # with the linear kernel, g_r(x) = K(z_r, F_theta(x))
        return Expansion(unit, unit if problem.task.outputs else unit[0], 1.0)


LOSSES: dict[type[Task], Callable[[Tensor, Tensor], Tensor]] = {
    BinaryClassification: Binary(Logistic()).of,  # log(1 + exp(-y g))
    MulticlassClassification: lambda y, g: functional.cross_entropy(g, y.long(), reduction="none"),
    Regression: Residual(Squared()).of,  # 1/2 (y - g)^2
}
"""Functions that return the loss of each sample, given labels y and decision values g, by kind of task."""
