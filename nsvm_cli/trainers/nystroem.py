"""Nystroem's method: an SVM in the span of the kernel functions of some training samples, the landmarks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pydantic
import torch
from jaxtyping import Float
from torch import Tensor

from nsvm_cli.config.registry import STRICT, Count
from nsvm_cli.errors import NotFiniteError
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import Linear
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.models.objectives import random_subset
from nsvm_cli.output import say
from nsvm_cli.trainers.base import Problem, State, Trainer
from nsvm_cli.trainers.direct import LinearSVM, svm_score

LOSS_TOLERANCE = 1e-3
"""Minimum loss of a sample outside the ``first`` samples to be used for training."""

BYTES = 28
"""Memory in bytes that LIBLINEAR needs per value of phi."""


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Nystroem(LinearSVM):
    """A linear SVM on phi(z) = K(z, l) R, where R R^T = K(l, l)^(-1), with the decision function::

        f = <w, phi(.)> + b = sum_s alpha_s K(l_s, .) + b  with  alpha = R w

    The ``landmarks`` l_s are the features of random training samples. The SVM is trained on the ``first``
    random samples, and on all remaining samples whose loss is not 0, since other samples do not affect the
    optimum. If these samples exceed the memory budget, a random subset is used.
    """

    landmarks: Count = 256
    first: Count = 20_000

    _score = svm_score

    def check(self, problem: Problem, F: FeatureMap) -> None:
        super().check(replace(problem, K=Linear()), F)  # the kernel of phi

    def share(self, problem: Problem, size: int) -> tuple[Trainer[State], Problem]:
        trainer, part = super().share(problem, size)
        budget = -(-problem.memory_budget * size // len(problem.y))
        first = -(-self.first * size // len(problem.y))
        return replace(self, lam=trainer.lam, first=first), replace(part, memory_budget=budget)

    def solve(self, problem: Problem, z: Float[Tensor, "m n"]) -> Expansion:
        m, classes = len(z), problem.task.classes
        order = random_subset(m, m, problem.seed, z.device).cpu().numpy()
        i = torch.from_numpy(order[: self.landmarks]).to(z.device)
        l = z[i]  # noqa: E741
        R = inverse_root(problem.K(l, l)).to(z)
        if classes:  # every subset must contain each class
            first = np.unique(problem.host_y, return_index=True)[1]
            order = np.append(first, np.setdiff1d(order, first, assume_unique=True))
        weights = np.ones(m) if problem.weights is None else problem.weights
        most = max(1, len(classes), problem.memory_budget * 2**20 // (BYTES * R.shape[1]))
        j, factor = order[: min(self.first, most)], 1.0  # a random subset represents all samples
        while True:
            x = z[torch.from_numpy(j).to(z.device)]
            part = replace(problem.of(j, x), weights=factor * weights[j])
            linear = super().solve(part, problem.sums(x, l, R))
            f = Expansion(l, (R @ linear.z.mT).squeeze(-1), 1.0, linear.bias, i=i)
            has_loss = problem.loss.of(problem.y, f(problem.K, z)).cpu().numpy() > LOSS_TOLERANCE
            has_loss[j] = False
            if len(j) in (most, m) or (factor < 1 and has_loss.sum() <= m // 1000):
                break
            j = np.append(j, has_loss.nonzero()[0])
            factor = len(j) / m
            if len(j) > most:
                j, factor = order[:most], 1.0
        if len(j) < m and factor == 1:
            advice = "raise memory_budget to use more"
            say(f"{self.name} uses {most} of {m} samples, because of memory_budget; {advice}")
        return f


def inverse_root(K: Float[Tensor, "l l"]) -> Float[Tensor, "l r"]:
    """Return R with R R^T = K^(-1) on the range of K. Raise a NotFiniteError if K is not finite."""
    if not K.isfinite().all():
        raise NotFiniteError("a kernel value", 1)
    values, vectors = torch.linalg.eigh(K.double())
    nonzero = values >= torch.finfo(K.dtype).eps * len(K) * values[-1].abs()
    return vectors[:, nonzero] / values[nonzero].clamp_min(torch.finfo(K.dtype).tiny).sqrt()
