"""A trained model and the data of its run: where they come from, and what predictions are sums of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Real
from torch import Tensor

from nsvm_cli.artifacts.evaluation import checked_split, data_for
from nsvm_cli.datasets import Data, SampleCache, Split
from nsvm_cli.datasets.base import ARRAYS
from nsvm_cli.errors import InputError
from nsvm_cli.models.nsvm import NSVM
from nsvm_cli.models.objectives import random_subset
from nsvm_cli.output import shortened
from nsvm_cli.runs.open_model import open_model
from nsvm_cli.tasks import Classification, Regression, Task
from nsvm_cli.trainers import Trainer, build_trainer

Terms = list[tuple[float, int]]
"""Terms of a decision value, and the training samples that they belong to."""


def algorithm_of(model: NSVM) -> Trainer[Any]:
    """Return the algorithm that trained a model."""
    return build_trainer(model.settings.algorithm)


def label(task: Task, y: float) -> str:
    """Return a label, as the data have it, in words."""
    if not isinstance(task, Classification):
        return f"{y:.10g}"
    return shortened(task.classes[int(task.index(torch.tensor(y)))])


def some_of(split: Split, most: int, seed: int) -> Split:
    """Return up to so many samples, chosen at random."""
    rows = random_subset(len(split), min(len(split), most), seed, torch.device("cpu"))
    return Split(split.x[rows], split.y[rows])


def load_trained(
    run: Path, runtime: Mapping[str, Any], say: Callable[[str], object] = str
) -> tuple[NSVM, Data]:
    """Return the model of a run, and the data that it was trained and is scored on; see ``open_model``.

    Args:
        runtime: ``device`` and ``memory_budget`` that take the place of the run's.

    Raises:
        InputError: the model file or the data are missing, damaged or in no file, or do not match.
    """
    _, model = open_model(run, runtime, say, samples := SampleCache())
    if model.facts.source == ARRAYS:
        raise InputError(
            f"{run} was saved by an estimator, without the arrays that it was trained on: expected the model "
            "of a run, for which nsvm train reads its data from a file"
        )
    data = data_for(model, model.settings.dataset, samples)
    if data.sha256 != model.facts.sha256:
        raise InputError(f"{data.source} or its test set has changed since the run")
    checked_split(model.facts, data, data.splits.held_out)
    i, m = model.expansion.i, data.splits.sizes["train"]
    if i is not None and len(i) and (last := int(i.max())) >= m:
        raise InputError(f"the model file names training sample {last}, and there are {m}")
    return model, data


def explain(model: NSVM, x: Real[Tensor, "p ..."], most: int = 6) -> list[tuple[float, float, Terms]]:
    """Return the predictions for raw samples, each with what the decision value is a sum of.

    That is the sum of all terms and the bias: g for two classes, that of the decision for more (or the sum of
    those of its pairs), and for real targets the difference from their mean. The ``most`` largest terms
    alpha_j y_j K(x_j, x) / scale, summed over equal j, come with their j, unless they are 0.

    Raises:
        InputError: the model file does not say which training samples the support vectors are.
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
    """Return the parts of coefficients of g that speak for each decision, in the units of the data."""
    task = model.task
    if c.ndim == 1:
        return (task.std if isinstance(task, Regression) else 1.0) * c.expand(len(decided), -1)
    if model.expansion.one_vs_one:  # summed by classes first: there may be many decisions and pairs
        C = len(task.classes)
        i, j = torch.triu_indices(C, C, 1, device=c.device)
        c = c.new_zeros(len(c), C).index_add_(1, i, c).index_add_(1, j, -c)
    return c[:, decided.long()].mT
