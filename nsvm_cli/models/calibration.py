"""Probabilities of classes from decision values: Platt's sigmoids (Platt, 1999; Lin, Lin and Weng, 2007)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

Sigmoids = Float[Tensor, "2 *outputs"]
"""The numbers a and b of P(g) = 1 / (1 + exp(a g + b)), for each decision value."""


def fit_sigmoids(g: Float[Tensor, " p *outputs"], positive: Bool[Tensor, " p *outputs"]) -> Sigmoids:
    """Return the sigmoids that predict best, by maximum likelihood, which samples are ``positive``.

    To keep probabilities from 0 and 1, the targets are not 1 and 0, but (m_1 + 1) / (m_1 + 2) for the m_1
    positive samples and 1 / (m_0 + 2) for the m_0 others.
    """
    columns = zip(g.double().reshape(len(g), -1).T, positive.reshape(len(g), -1).T, strict=True)
    fitted = [_fit(column.numpy(), is_positive.numpy()) for column, is_positive in columns]
    return torch.from_numpy(np.stack(fitted, 1)).reshape(2, *g.shape[1:])


def _fit(g: np.ndarray, positive: np.ndarray) -> np.ndarray:
    from scipy.optimize import minimize  # slow to import, and needed only here
    from scipy.special import expit

    m_1 = np.count_nonzero(positive)
    m_0 = len(g) - m_1
    target = np.where(positive, (m_1 + 1) / (m_1 + 2), 1 / (m_0 + 2))
    size = np.abs(g).max() or 1.0
    inputs = np.stack([g / size, np.ones(len(g))])  # near 1, where the minimum is found most accurately

    def loss_and_gradient(ab: np.ndarray) -> tuple[Any, Any]:
        z = ab @ inputs
        return (np.logaddexp(0, z) - (1 - target) * z).sum(), inputs @ (target - expit(-z))

    start = [0.0, np.log((m_0 + 1) / (m_1 + 1))]
    precision = {"ftol": np.finfo(np.float64).eps, "gtol": 1e-10}
    minimum = minimize(loss_and_gradient, start, method="L-BFGS-B", jac=True, options=precision)
    return np.asarray(minimum.x / [size, 1])


def probabilities(sigmoids: Sigmoids, g: Float[Tensor, " p *outputs"]) -> Float[Tensor, "p C"]:
    """Return the probability of each class.

    Of two classes, P(g) is that of the second; of more, that of class r is P(g_r) over the sum of all. The
    most probable class need not be the one that the task decides for: P(g) = 1/2 at g = -b/a, not at 0.
    """
    a, b = sigmoids
    p = torch.sigmoid(-(a * g.to(a) + b))
    if p.ndim == 1:
        return torch.stack([1 - p, p], 1)
    total = p.sum(1, keepdim=True)
    return torch.where(total > 0, p / total, 1 / p.shape[1])


def probability_scores(p: Float[Tensor, "p C"], positive: Bool[Tensor, " p *outputs"]) -> dict[str, float]:
    """Return the sums over samples of which ``log_loss`` and ``brier_score``, as scikit-learn defines them,
    are the means; smaller is better. ``positive`` are the decision values that should be.
    """
    label = positive if positive.ndim == 2 else torch.stack([~positive, positive], 1)
    share = 2 if p.shape[1] == 2 else 1  # the error of the other class is the same
    return {
        "log_loss": float(-p[label].clamp_min(torch.finfo(p.dtype).eps).log().sum()),
        "brier_score": float((p - label.to(p)).square().sum(1).sum() / share),
    }
