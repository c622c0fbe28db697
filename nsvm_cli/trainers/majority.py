"""The most frequent class, or the mean of real targets: what any model has to beat."""

from __future__ import annotations

from typing import ClassVar

import pydantic
import torch
from jaxtyping import Float
from torch import Tensor

from nsvm_cli.config.registry import STRICT
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.tasks import Regression
from nsvm_cli.trainers.base import Problem
from nsvm_cli.trainers.direct import DirectSolver


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Majority(DirectSolver):
    """g is the same for all samples: a bias alone, for the first of the most frequent classes."""

    trains_svm: ClassVar[bool] = False
    is_constant: ClassVar[bool] = True

    def solve(self, problem: Problem, z: Float[Tensor, "m n"]) -> Expansion:
        y, outputs = problem.y, problem.task.outputs
        answer = y.mean() if isinstance(problem.task, Regression) else y.mode().values
        bias = torch.eye(*outputs).to(z)[int(answer)] if outputs else float(answer)
        return Expansion(z[:0], z.new_zeros(0, *outputs), 1.0, bias)
