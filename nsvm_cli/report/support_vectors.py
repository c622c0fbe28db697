"""The support vectors that weigh most in a prediction, found again among the training samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from nsvm_cli.errors import InputError
from nsvm_cli.models.nsvm import NSVM
from nsvm_cli.report.trained import Trained
from nsvm_cli.tasks import Regression

PREDICTIONS, STRONGEST = 5, 6
"""How many predictions are explained, and by how many support vectors each."""

ROWS = 4096
"""Training samples whose features are computed at a time."""

SAME, CLEAR = 1e-3, 0.5
"""A support vector is the training sample whose features are the same, up to rounding relative to their norm,
or so much nearer than the next: Algorithm 1 keeps features as they were when they were added."""


@dataclass(frozen=True)
class Prediction:
    """A held-out sample, and the largest of the terms that its decision value is a sum of.

    Attributes:
        x: the sample.
        y: its label, as the data have it.
        decided: the prediction.
        total: the sum of all terms and the bias: g for two classes, and that of ``decided`` for more, or the
            sum of those of its pairs; for real targets the difference from their mean.
        terms: alpha_j y_j K(x_j, x) / scale, and the number of the training sample x_j, None where that is
            not clear.
    """

    x: Tensor
    y: float
    decided: float
    total: float
    terms: Sequence[tuple[float, int | None]]


def predictions(trained: Trained) -> list[Prediction]:
    """Explain the predictions for a few held-out samples.

    Raises:
        InputError: no support vector is found among the training samples.
    """
    model, some = trained.model, trained.some(PREDICTIONS)
    expansion, decided = model.expansion, model.predict(some.x)
    weights = _for_decisions(model, decided, expansion.alpha) / expansion.scale
    terms = model.kernel(model.features(some.x), expansion.z) * weights
    bias = torch.as_tensor(expansion.bias).to(expansion.alpha).expand_as(expansion.alpha[:1])
    totals = terms.sum(1) + _for_decisions(model, decided, bias)[:, 0]
    strongest = terms.abs().topk(min(STRONGEST, len(expansion.z))).indices
    found, k = _training_rows(trained, expansion.z[strongest.flatten()]), strongest.shape[1]
    if all(row is None for row in found):
        raise InputError(
            "no training sample has the features of a support vector: Algorithm 1 keeps those of earlier "
            "steps, and solver=linear has none"
        )
    explained = []
    for n in range(len(some)):
        rows, values = found[n * k : (n + 1) * k], terms[n, strongest[n]].tolist()
        about = float(some.y[n]), float(decided[n]), float(totals[n])
        explained.append(Prediction(some.x[n], *about, [*zip(values, rows, strict=True)]))
    return explained


def _for_decisions(model: NSVM, decided: Tensor, c: Float[Tensor, " s *outputs"]) -> Float[Tensor, "p s"]:
    """Return the parts of coefficients of g that speak for each decision, in the units of the data."""
    if c.ndim == 1:
        scale = model.task.std if isinstance(model.task, Regression) else 1.0
        return scale * c.expand(len(decided), -1)
    if not model.expansion.one_vs_one:
        return c[:, decided.long()].mT
    i, j = torch.triu_indices(len(model.task.classes), len(model.task.classes), 1, device=c.device)
    signs: Tensor = (decided[:, None] == i).to(c) - (decided[:, None] == j).to(c)
    return signs @ c.mT


def _training_rows(trained: Trained, z: Float[Tensor, "q n"]) -> list[int | None]:
    """Return the numbers of the training samples that have these features; None for one that is not clear."""
    train = trained.data.splits["train"].x
    parts = []
    for row in range(0, len(train), ROWS):
        part = trained.model.features(train[row : row + ROWS])
        parts.append(torch.cdist(z, part, compute_mode="donot_use_mm_for_euclid_dist"))
    (nearest, next_one), at = (two.mT for two in torch.cat(parts, dim=1).topk(2, largest=False))
    clear = (nearest <= SAME * z.norm(dim=1)) | (nearest <= CLEAR * next_one)
    return [row if found else None for row, found in zip(at[0].tolist(), clear.tolist(), strict=True)]
