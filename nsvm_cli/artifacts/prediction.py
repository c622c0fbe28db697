"""Predict samples without labels, and explain predictions by support vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Real
from torch import Tensor

from nsvm_cli.config.registry import construct
from nsvm_cli.datasets.columns import unseen_categories
from nsvm_cli.datasets.layout import Dialect, written_as
from nsvm_cli.datasets.unlabelled import blocks
from nsvm_cli.errors import InputError
from nsvm_cli.models.nsvm import NSVM
from nsvm_cli.output import Say
from nsvm_cli.tasks import Classification, Regression

Terms = list[tuple[float, int]]
"""Terms of a decision value, each with the index of its training sample."""


def predictions(
    model: NSVM,
    path: Path,
    written: Mapping[str, Any] | None = None,
    keep: Sequence[str] = (),
    say: Say = str,
) -> Iterator[dict[str, list[Any]]]:
    """Yield the model's predictions for samples (see ``datasets.unlabelled.blocks``), block by block.

    The columns are ``prediction``, a class or a target, and for classes the ``score`` g(x), which is positive
    for the second of two, or a ``score CLASS`` for each of more; a calibrated model adds a
    ``probability_CLASS`` for each class. For a folder there is also ``file``.

    Args:
        written: the notation of a table (see ``Dialect``). By default it is detected, except for signs and
            codes of missing values, which are taken from the model's settings.
        keep: columns of the table to yield with the predictions.
        say: shows remarks at the end: how many cells have categories unseen in training, and whether images
            were read inexactly.

    Raises:
        InputError: the samples are missing or damaged, or do not match the model.
        RunError: a decision value is not finite.
    """
    dialect = construct(Dialect, "", {**written_as(model.settings.dataset), **(written or {})})
    shape, encoder, outputs = model.facts.shape, model.facts.encoder, len(model.facts.classes)
    background, skip = (model.settings.dataset.get(key) for key in ("background", "skip_unreadable"))
    rows, unseen = 0, Counter[str]()
    for x, beside in blocks(path, shape, encoder, dialect, outputs, background, bool(skip), keep, say):
        columns = _columns(model, x)
        if both := beside.keys() & columns:
            raise InputError(f"--keep: predictions have a column {min(both)}, too")
        yield {**beside, **columns}
        rows += len(x)
        if encoder is not None:
            unseen.update(encoder.unseen(x.numpy()))
    for line in unseen_categories(unseen, rows):
        say(line)


def _columns(model: NSVM, x: Real[Tensor, "m ..."]) -> dict[str, list[Any]]:
    task = model.task
    g = model.decision_function(x).cpu()
    decided = task.decide(g).numpy()
    if not isinstance(task, Classification):
        return {"prediction": decided.tolist()}
    columns = {"prediction": [task.classes[int(r)] for r in task.index(decided)]}
    scores = {"score": g} if g.ndim == 1 else {f"score {c}": g[:, r] for r, c in enumerate(task.classes)}
    if (p := model.probabilities(g)) is not None:
        scores |= {f"probability_{c}": p[:, r] for r, c in enumerate(task.classes)}
    return columns | {name: values.tolist() for name, values in scores.items()}


def explain(model: NSVM, x: Real[Tensor, "p ..."], most: int = 6) -> list[tuple[float, float, Terms]]:
    """Return for each raw sample the prediction, its decision value and the largest terms of that.

    The decision value is g for two classes, the g of the predicted class for more (or the sum over its
    pairs), and for real targets the difference from their mean. The ``most`` largest terms
    alpha_j y_j K(x_j, x) / scale, summed over equal j, come with their j, unless they are 0.

    Raises:
        InputError: the model file does not hold the indices of the support vectors.
    """
    e = model.expansion
    if e.i is None:
        raise InputError("the model file does not say which training samples its terms are")
    decided = model.predict(x)
    terms = model.kernel(model.features(x), e.z) * _for_decisions(model, decided, e.alpha) / e.scale
    bias = torch.as_tensor(e.bias).to(e.alpha).expand_as(e.alpha[:1])
    totals = terms.sum(1) + _for_decisions(model, decided, bias)[:, 0]
    samples, group = e.i.unique(return_inverse=True)
    sums = terms.new_zeros(len(x), len(samples)).index_add(1, group, terms)
    explained = []
    for n, strongest in enumerate(sums.abs().topk(min(most, len(samples))).indices):
        pairs = [(float(sums[n, s]), int(samples[s])) for s in strongest if sums[n, s]]
        explained.append((float(decided[n]), float(totals[n]), pairs))
    return explained


def _for_decisions(model: NSVM, decided: Tensor, c: Float[Tensor, " s *outputs"]) -> Float[Tensor, "p s"]:
    """Return the coefficients of the decision value of each sample, in the units of the data."""
    task = model.task
    if c.ndim == 1:
        return (task.std if isinstance(task, Regression) else 1.0) * c.expand(len(decided), -1)
    if model.expansion.one_vs_one:  # summed by classes first: there may be many decisions and pairs
        C = len(model.facts.trained.classes)
        i, j = torch.triu_indices(C, C, 1, device=c.device)
        c = c.new_zeros(len(c), C).index_add_(1, i, c).index_add_(1, j, -c)
    return model.facts.widened(c)[:, decided.long()].mT
