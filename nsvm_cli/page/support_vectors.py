"""The support vectors that weigh most in a prediction."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Real
from torch import Tensor

from nsvm_cli.errors import InputError
from nsvm_cli.page.trained import Trained
from nsvm_cli.tasks import Regression

STRONGEST = 6
"""The most support vectors that a prediction is explained by."""


class Explanation(NamedTuple):
    """A prediction, and the largest of the terms that its decision value is a sum of.

    ``total`` is the sum of all terms and the bias: g for two classes, that of ``decided`` for more (or the
    sum of those of its pairs), and for real targets the difference from their mean. ``terms`` are the
    alpha_j y_j K(x_j, x) / scale that are not 0, summed over equal j, each with j.
    """

    decided: float
    total: float
    terms: list[tuple[float, int]]


def explain(trained: Trained, x: Real[Tensor, "p ..."]) -> list[Explanation]:
    """Explain the predictions for raw samples.

    Raises:
        InputError: the model file does not say which training samples the support vectors are.
    """
    model, e = trained.model, trained.model.expansion
    if e.i is None:
        raise InputError("the model file does not say which training samples its terms are")
    decided = model.predict(x)
    terms = model.kernel(model.features(x), e.z) * _for_decisions(trained, decided, e.alpha) / e.scale
    bias = torch.as_tensor(e.bias).to(e.alpha).expand_as(e.alpha[:1])
    totals = terms.sum(1) + _for_decisions(trained, decided, bias)[:, 0]
    samples, group = e.i.unique(return_inverse=True)
    sums = terms.new_zeros(len(x), len(samples)).index_add(1, group, terms)
    explained = []
    for n, strongest in enumerate(sums.abs().topk(min(STRONGEST, len(samples))).indices):
        largest = zip(sums[n, strongest].tolist(), samples[strongest].tolist(), strict=True)
        found = [(value, j) for value, j in largest if value]
        explained.append(Explanation(float(decided[n]), float(totals[n]), found))
    return explained


def _for_decisions(
    trained: Trained, decided: Tensor, c: Float[Tensor, " s *outputs"]
) -> Float[Tensor, "p s"]:
    """Return the parts of coefficients of g that speak for each decision, in the units of the data."""
    task = trained.model.task
    if c.ndim == 1:
        return (task.std if isinstance(task, Regression) else 1.0) * c.expand(len(decided), -1)
    if trained.model.expansion.one_vs_one:  # summed by classes first: there may be many decisions and pairs
        C = len(task.classes)
        i, j = torch.triu_indices(C, C, 1, device=c.device)
        c = c.new_zeros(len(c), C).index_add_(1, i, c).index_add_(1, j, -c)
    return c[:, decided.long()].mT
