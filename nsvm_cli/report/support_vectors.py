"""The support vectors that weigh most in a prediction, found again among the training samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from nsvm_cli.datasets import Split
from nsvm_cli.errors import InputError
from nsvm_cli.models.kernels import squared_distances
from nsvm_cli.models.nsvm import NSVM
from nsvm_cli.report.trained import Trained
from nsvm_cli.tasks import Regression

PREDICTIONS, STRONGEST = 5, 6
"""How many predictions are explained, and by how many support vectors each."""

ROWS, DISTANCES = 4096, 2**23
"""Training samples whose features, and distances to them that, are computed at a time."""

SAME = 1e-5
"""Features are the same up to this distance, relative to their norm, which is rounding."""

CHANCE = 1e-6
"""The probability, at most, that a support vector is so near to a training sample by chance: Algorithm 1
keeps features as they were when they were added."""

SAMPLED = 1000
"""Training samples from which the dimension of the features is estimated."""


@dataclass(frozen=True)
class Prediction:
    """A held-out sample, and the largest of the terms that its decision value is a sum of.

    Attributes:
        x: the sample.
        y: its label, as the data have it.
        decided: the prediction.
        total: the sum of all terms and the bias: g for two classes, and that of ``decided`` for more, or the
            sum of those of its pairs; for real targets the difference from their mean.
        terms: alpha_j y_j K(x_j, x) / scale, summed over equal x_j, without zeros; and the number of the
            training sample x_j, None where that is not clear.
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
    rows, m = _training_rows(trained), len(trained.data.splits["train"])
    keys, group = torch.where(rows < 0, m + torch.arange(len(rows)), rows).unique(return_inverse=True)
    sums = terms.new_zeros(len(terms), len(keys)).index_add(1, group.to(terms.device), terms).cpu()
    explained = []
    for n, strongest in enumerate(sums.abs().topk(min(STRONGEST, len(keys))).indices):
        named = [key if key < m else None for key in keys[strongest].tolist()]
        values = zip(sums[n, strongest].tolist(), named, strict=True)
        about = float(some.y[n]), float(decided[n]), float(totals[n])
        explained.append(Prediction(some.x[n], *about, [(value, row) for value, row in values if value]))
    shown = [row for prediction in explained for _, row in prediction.terms]
    if shown and all(row is None for row in shown):
        raise InputError(
            "no training sample has the features of a support vector: Algorithm 1 keeps those of earlier "
            "steps, and solver=linear has none"
        )
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


def _training_rows(trained: Trained) -> Int64[Tensor, " s"]:
    """Return the number of the training sample that each support vector is, -1 where that is not clear.

    Its features tell, and the class that its coefficients speak for. Of equal samples it is the first. With
    distances r_1 and r_2 to the nearest two different samples, a point among features of dimension d would be
    so much nearer to one of them with probability (r_1 / r_2)^d.
    """
    model, train = trained.model, trained.data.splits["train"]
    parts = [model.features(train.x[row : row + ROWS]) for row in range(0, len(train), ROWS)]
    features = torch.cat(parts).double()
    first, y = (of_all.to(features.device) for of_all in (_first_equal(train), train.y))
    dimension = _dimension(features, first)
    found, size = [], max(1, DISTANCES // len(train))
    for j in range(0, len(model.expansion.z), size):
        z, alpha = (of_all[j : j + size] for of_all in (model.expansion.z.double(), model.expansion.alpha))
        r = squared_distances(z, features).sqrt_()
        if trained.classifies:
            r[~_speak_for(model, alpha, y)] = torch.inf
        r_1, nearest = r.min(1)
        r[first[nearest, None] == first] = torch.inf
        size_of_z = z.norm(dim=1)
        r_2, same = r.amin(1).minimum(size_of_z), SAME * size_of_z  # there may be no second one
        clear = (r_2 > same) & ((r_1 <= same) | ((r_1 / r_2) ** dimension < CHANCE))
        found.append(torch.where(clear, first[nearest], -1).cpu())
    return torch.cat(found)


def _dimension(features: Float[Tensor, "m n"], first: Int64[Tensor, " m"]) -> float:
    """Return the dimension of the set that features lie on, from the two nearest neighbours of some of them.

    See Facco et al. (2017), "Estimating the intrinsic dimension of datasets by a minimal neighborhood
    information". Features that coincide say nothing, and without others it is 1.
    """
    some = slice(None, None, -(-len(features) // SAMPLED))
    r = squared_distances(features[some], features).sqrt_()
    r[first[some, None] == first] = torch.inf
    r_1, r_2 = r.topk(2, largest=False).values.T
    told = (r_1 > SAME * features[some].norm(dim=1)) & r_2.isfinite()
    logarithms = (r_2[told] / r_1[told]).log().sum()
    return float(told.sum() / logarithms) if logarithms > 0 else 1.0


def _first_equal(split: Split) -> Int64[Tensor, " m"]:
    """Return for each sample the number of the first one that is equal, as is its label."""
    known: dict[int, int] = {}
    samples = zip(split.x.numpy(), split.y.tolist(), strict=True)
    return torch.tensor([known.setdefault(hash((x.tobytes(), y)), n) for n, (x, y) in enumerate(samples)])


def _speak_for(
    model: NSVM, alpha: Float[Tensor, " s *outputs"], y: Float[Tensor, " m"]
) -> Bool[Tensor, "s m"]:
    """Return whether coefficients speak for the class of each label."""
    return alpha[:, None] * y > 0 if alpha.ndim == 1 else _for_decisions(model, y, alpha).mT > 0
