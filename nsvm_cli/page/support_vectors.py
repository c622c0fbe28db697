"""The support vectors that weigh most in a prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from nsvm_cli.errors import InputError
from nsvm_cli.models.nsvm import NSVM
from nsvm_cli.page.trained import Trained
from nsvm_cli.tasks import Regression

PREDICTIONS, STRONGEST = 5, 6
"""How many predictions are explained, and by how many support vectors each."""


@dataclass(frozen=True)
class Prediction:
    """A held-out sample, and the largest of the terms that its decision value is a sum of.

    Attributes:
        x: the sample.
        y: its label, as the data have it.
        decided: the prediction.
        total: the sum of all terms and the bias: g for two classes, and that of ``decided`` for more, or the
            sum of those of its pairs; for real targets the difference from their mean.
        terms: alpha_j y_j K(x_j, x) / scale, summed over equal j, without zeros; and the index j of the
            training sample.
    """

    x: Tensor
    y: float
    decided: float
    total: float
    terms: Sequence[tuple[float, int]]


def predictions(trained: Trained) -> list[Prediction]:
    """Explain the predictions for a few held-out samples.

    Raises:
        InputError: the model file does not say which training samples the support vectors are, or names some
            that there are not.
    """
    model, some, m = trained.model, trained.some(PREDICTIONS), len(trained.data.splits["train"])
    expansion, decided = model.expansion, model.predict(some.x)
    if expansion.i is None:
        raise InputError("the model file does not say which training samples its terms are")
    if (last := int(expansion.i.max())) >= m:
        raise InputError(f"the model file names training sample {last}, and there are {m}")
    weights = _for_decisions(model, decided, expansion.alpha) / expansion.scale
    terms = model.kernel(model.features(some.x), expansion.z) * weights
    bias = torch.as_tensor(expansion.bias).to(expansion.alpha).expand_as(expansion.alpha[:1])
    totals = terms.sum(1) + _for_decisions(model, decided, bias)[:, 0]
    samples, group = expansion.i.unique(return_inverse=True)
    sums = terms.new_zeros(len(terms), len(samples)).index_add(1, group, terms).cpu()
    explained = []
    for n, strongest in enumerate(sums.abs().topk(min(STRONGEST, len(samples))).indices):
        values = zip(sums[n, strongest].tolist(), samples.cpu()[strongest].tolist(), strict=True)
        about = float(some.y[n]), float(decided[n]), float(totals[n])
        explained.append(Prediction(some.x[n], *about, [(value, j) for value, j in values if value]))
    return explained


def _for_decisions(model: NSVM, decided: Tensor, c: Float[Tensor, " s *outputs"]) -> Float[Tensor, "p s"]:
    """Return the parts of coefficients of g that speak for each decision, in the units of the data."""
    if c.ndim == 1:
        scale = model.task.std if isinstance(model.task, Regression) else 1.0
        return scale * c.expand(len(decided), -1)
    if model.expansion.one_vs_one:  # summed by classes first: there may be many decisions and pairs
        C = len(model.task.classes)
        i, j = torch.triu_indices(C, C, 1, device=c.device)
        c = c.new_zeros(len(c), C).index_add_(1, i, c).index_add_(1, j, -c)
    return c[:, decided.long()].mT
