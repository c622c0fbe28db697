"""The decision function g, and the trained model that predicts with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nsvm_cli.datasets.scaling import Scaling
from nsvm_cli.errors import RunError
from nsvm_cli.models.feature_map import features
from nsvm_cli.models.kernels import Kernel, kernel_sums
from nsvm_cli.tasks import Task

VALUES = 2**23
"""Values of features that a prediction holds at a time."""


@dataclass(frozen=True)
class Expansion:
    """The non-zero terms of f in H, so that (paper, Section 4)::

        g(x) = 1/scale * sum_s alpha_s y_s K(z_s, F_theta(x)) + bias

    ``scale`` is lambda T, or lambda t after step t. Only solvers other than Pegasos have a bias.
    """

    z: Float[Tensor, "s n"]
    alpha: Float[Tensor, " s"]
    y: Float[Tensor, " s"]
    scale: float
    bias: float = 0.0

    def __call__(self, K: Kernel, z: Float[Tensor, "p n"]) -> Float[Tensor, " p"]:
        """Return g at features z of shape (p, n)."""
        return kernel_sums(K, z, self.z, self.alpha * self.y) / self.scale + self.bias


@dataclass(frozen=True)
class NSVM:
    """A trained neural support vector machine: raw samples in, predictions out."""

    task: Task
    scaling: Scaling
    network: nn.Module
    kernel: Kernel
    expansion: Expansion

    def features(self, x: Float[Tensor, "p ..."]) -> Float[Tensor, "p n"]:
        """Return F_theta(x) for raw samples, in any floating type and on any device."""
        like = self.expansion.z
        return features(self.network, self.scaling(x, like.dtype).to(like.device))

    def decision_function(self, x: Float[Tensor, "p ..."]) -> Float[Tensor, " p"]:
        """Return g(x) for raw samples.

        Raises:
            RunError: a decision value is not finite.
        """
        rows = max(1, VALUES // max(1, self.expansion.z.shape[1]))
        with torch.no_grad():
            g = torch.cat([self.expansion(self.kernel, self.features(part)) for part in x.split(rows)])
        if not g.isfinite().all():
            raise RunError("the decision function is not finite on these samples; use another kernel")
        return g

    def predict(self, x: Float[Tensor, "p ..."]) -> Tensor:
        """Return the predictions for raw samples, of shape (p,), in the task's label coding."""
        return self.task.decide(self.decision_function(x))

    def score(self, x: Float[Tensor, "p ..."], y: Float[Tensor, " p"]) -> dict[str, Any]:
        """Return the task's scores for raw samples and their coded labels."""
        return self.task.score(y.cpu(), self.predict(x).cpu())
