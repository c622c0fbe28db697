"""Forward passes that a step in theta can reuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from nsvm_cli.models.feature_map import Batch, FeatureMap
from nsvm_cli.models.kernels import Kernel

Objective = Callable[..., tuple[Float[Tensor, ""], Sequence[Float[Tensor, "_ n"]]]]
"""A function of K and features: its value, and its gradient with respect to each of the features."""


@dataclass(frozen=True)
class Evaluation:
    """F_theta(x) for the theta at that time, with its graph unless steps in theta see other features."""

    x: Batch
    features: Float[Tensor, "p n"]

    @property
    def z(self) -> Float[Tensor, "p n"]:
        """F_theta(x) without a graph."""
        return self.features.detach()

    def rows(self, p: Int64[np.ndarray, " v"]) -> Evaluation:
        """Return some of its samples, in ascending order."""
        # a slice is a view, which costs less than a copy
        rows = slice(p[0], p[0] + 1) if len(p) == 1 else torch.from_numpy(p).to(self.features.device)
        return Evaluation(Batch(self.x.x[rows], self.x.i[p]), self.features[rows])


def evaluated(F: FeatureMap, x: Batch) -> Evaluation:
    """Return F_theta(x)."""
    return Evaluation(x, F(x) if F.trains_otherwise else F.network(x.x))


def descend(
    F: FeatureMap, at: Sequence[Evaluation], objective: Objective, K: Kernel, t: int, T: int
) -> Float[Tensor, ""]:
    """Take one gradient descent step in theta, and return the objective's value before it.

    Args:
        at: the evaluations whose features the objective takes; theta has not moved since.
        objective: see ``Objective``.
        K, t, T: as for ``FeatureMap.descend``.

    Raises:
        NotFiniteError: the objective is not finite.
    """
    features = [e.features for e in at]
    if F.trains_otherwise:
        x = Batch(torch.cat([e.x.x for e in at]), np.concatenate([e.x.i for e in at]))
        features = [*F.training_pass(x, t).split([len(e.x) for e in at])]
    with F.learning_kernel():
        value, gradients = objective(F.differentiable(K, t), *(z.detach() for z in features))
        # Passing grad_outputs makes autograd import a computer algebra system, a quarter of a second;
        # differentiating a number with the same gradient does not.
        terms = [(z * by_z.detach()).sum() for z, by_z in zip(features, gradients, strict=True)]
        if F.learnt:
            terms.append(value)  # of which no more than the kernel's own parameters have a gradient
        return F.move(value, sum(terms[1:], terms[0]), t, T)
