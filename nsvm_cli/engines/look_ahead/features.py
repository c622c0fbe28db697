"""Forward passes that a step in theta can reuse."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from nsvm_cli.errors import NotFiniteError
from nsvm_cli.models.feature_map import Batch, FeatureMap
from nsvm_cli.models.kernels import Kernel
from nsvm_cli.models.networks import trains_otherwise

Objective = Callable[..., tuple[Float[Tensor, ""], Sequence[Float[Tensor, "_ n"]]]]
"""A function of K and features: its value, and its gradient with respect to each of the features."""


@dataclass(frozen=True)
class Evaluation:
    """z = F_theta(x), without a gradient, for the theta at that time.

    ``graph``, which saves a forward pass when theta moves, is z with its graph; None if the network computes
    something else in training mode.
    """

    x: Batch
    z: Float[Tensor, "p n"]
    graph: Float[Tensor, "p n"] | None = None

    def rows(self, p: Int64[np.ndarray, " v"]) -> Evaluation:
        """Return some of its samples, in ascending order."""
        # a slice is a view, which costs less than a copy
        rows = slice(p[0], p[0] + 1) if len(p) == 1 else torch.from_numpy(p).to(self.z.device)
        x = Batch(self.x.x[rows], self.x.i[p])
        return Evaluation(x, self.z[rows], None if self.graph is None else self.graph[rows])


class Evaluator:
    """Evaluates F_theta, and keeps what a step in theta can reuse."""

    def __init__(self, F: FeatureMap) -> None:
        self.F = F
        self._needs_training_pass = not F.fixed and (F.augment is not None or trains_otherwise(F.network))

    def __call__(self, x: Batch) -> Evaluation:
        """Return F_theta(x)."""
        if self._needs_training_pass:
            return Evaluation(x, self.F(x))
        graph = self.F.network(x.x)
        return Evaluation(x, graph.detach(), graph)

    def descend(
        self, at: Sequence[Evaluation], objective: Objective, K: Kernel, t: int, T: int
    ) -> Float[Tensor, ""]:
        """Take one gradient descent step in theta, and return the objective's value before it.

        Args:
            at: the evaluations whose features the objective takes; theta has not moved since.
            objective: see ``Objective``.
            K, t, T: as for ``FeatureMap.descend``.

        Raises:
            NotFiniteError: the objective is not finite.
        """
        F, graphs = self.F, self._graphs(at, t)
        with F.learning_kernel():
            value, gradients = objective(F.differentiable(K, t), *(graph.detach() for graph in graphs))
            if not math.isfinite(value.detach()):
                raise NotFiniteError("the objective", t)
            if not F.fixed:
                # Passing grad_outputs makes autograd import a computer algebra system, a quarter of a second;
                # differentiating a number with the same gradient does not.
                terms = [(graph * by_z.detach()).sum() for graph, by_z in zip(graphs, gradients, strict=True)]
                if F.learnt:
                    terms.append(value)  # of which no more than the kernel's own parameters have a gradient
                by_theta = torch.autograd.grad(
                    sum(terms[1:], terms[0]), F.parameters, allow_unused=True, materialize_grads=True
                )
                F.move(by_theta, t, T)
        return value.detach()

    def _graphs(self, at: Sequence[Evaluation], t: int) -> Sequence[Tensor]:
        """Return the features of all evaluations as step t sees them, with their graphs."""
        if not self._needs_training_pass:
            return [self.F.network(e.x.x) if e.graph is None else e.graph for e in at]
        x = Batch(torch.cat([e.x.x for e in at]), np.concatenate([e.x.i for e in at]))
        z = self.F.training_pass(x, t)
        return [*z.split([len(e.x) for e in at])]
