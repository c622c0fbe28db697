"""Predictions for samples without labels, and explanations of predictions by support vectors."""

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
from nsvm_cli.models.nsvm import NSVM, rivals
from nsvm_cli.output import say
from nsvm_cli.tasks import Classification, MulticlassClassification, Regression

Terms = list[tuple[float, int]]
"""Terms of a decision value: the value of each term and the index of its training sample."""


def predictions(
    model: NSVM, path: Path, written: Mapping[str, Any] | None = None, keep: Sequence[str] = ()
) -> Iterator[dict[str, list[Any]]]:
    """Yield the model's predictions for samples (see ``datasets.unlabelled.blocks``), block by block.

    A block maps names of columns to values. The column ``prediction`` contains classes or targets, and
    ``file`` the names of images. For two classes, ``score`` contains the decision values g(x), which are
    positive for the second class; for more classes, each class has a column ``score CLASS``. If the model is
    calibrated, each class also has a column ``probability_CLASS``.

    Args:
        written: the notation of a table (see ``Dialect``). By default it is detected, except for signs and
            codes of missing values, which are taken from the model's settings.
        keep: columns of the table to yield with the predictions.

    Raises:
        InputError: the samples are missing or damaged, or do not match the model.
        RunError: a decision value is not finite.
    """
    dialect = construct(Dialect, "", {**written_as(model.settings.dataset), **(written or {})})
    shape, encoder, outputs = model.metadata.shape, model.metadata.encoder, len(model.metadata.classes)
    background, skip = (model.settings.dataset.get(key) for key in ("background", "skip_unreadable"))
    rows, unseen = 0, Counter[str]()
    for x, extra in blocks(path, shape, encoder, dialect, outputs, background, bool(skip), keep):
        columns = _columns(model, x)
        if duplicates := extra.keys() & columns:
            raise InputError(
                f"--keep {min(duplicates)}: the output has a column of this name; rename the table's column"
            )
        yield {**extra, **columns}
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


def explain(model: NSVM, x: Real[Tensor, "p ..."]) -> list[tuple[float, float, Terms]]:
    """Return for each raw sample its prediction, its decision value and the largest terms of that value.

    For two classes, the decision value is g(x). For more classes, it is the g(x) of the predicted class or,
    for one-vs-one models, its margin against the closest other class. For real targets, it is the
    difference between the prediction and the mean target. The terms are alpha_j K(z_j, F_theta(x)) / scale
    (see ``Expansion``), summed over terms of the same training sample j. At most six nonzero terms
    with the largest absolute values are returned.

    Raises:
        InputError: the model file does not contain the indices of the support vectors.
    """
    e = model.expansion
    if e.i is None:
        raise InputError("the model file does not contain the indices of the support vectors")
    decided, z = model.predict(x), model.features(x)
    K = torch.cat([model.kernel(z, e.z) / e.scale, z.new_ones(len(z), 1)], 1)
    bias = torch.as_tensor(e.bias).to(e.alpha).expand_as(e.alpha[:1])
    terms = K * _for_decisions(model, decided, K, torch.cat([e.alpha, bias]))
    totals, terms = terms.sum(1), terms[:, :-1]
    samples, group = e.i.unique(return_inverse=True)
    sums = terms.new_zeros(len(x), len(samples)).index_add(1, group, terms)
    explained = []
    for n, strongest in enumerate(sums.abs().topk(min(6, len(samples))).indices):
        pairs = [(float(sums[n, s]), int(samples[s])) for s in strongest if sums[n, s]]
        explained.append((float(decided[n]), float(totals[n]), pairs))
    return explained


def _for_decisions(
    model: NSVM, decided: Tensor, K: Float[Tensor, "p s"], c: Float[Tensor, " s *outputs"]
) -> Float[Tensor, "p s"]:
    """Return the coefficients of each sample's decision value, given the coefficients ``c`` of g = K c.

    For real targets, the coefficients are in the units of the targets.
    """
    task, metadata = model.task, model.metadata
    if not isinstance(task, MulticlassClassification):
        return (task.std if isinstance(task, Regression) else 1.0) * c.expand(len(decided), -1)
    names = metadata.trained.classes
    columns = [names.index(task.classes[int(r)]) for r in decided]
    if c.ndim == 1:  # all other classes are absent
        return torch.stack([-c, c], 1)[:, columns].mT
    if model.expansion.one_vs_one:
        pairs = rivals(len(names))[columns].to(c.device)
        c = torch.cat([c, -c], 1)
        nearest = (K @ c).gather(1, pairs).argmin(1, keepdim=True)
        return c[:, pairs.gather(1, nearest)[:, 0]].mT
    return c[:, columns].mT
