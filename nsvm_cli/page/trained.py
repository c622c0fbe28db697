"""A trained model with the data of its run: how samples are shown, and what predictions are sums of."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
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
from nsvm_cli.page.document import Picture
from nsvm_cli.runs.experiment import initial_network
from nsvm_cli.runs.open_model import open_model
from nsvm_cli.tasks import Classification, Regression
from nsvm_cli.trainers import Trainer, build_trainer

Terms = list[tuple[float, int]]
"""Terms of a decision value, and the training samples that they belong to."""


@dataclass(frozen=True)
class Trained:
    """A trained model, and the data that it was trained and evaluated on.

    ``split`` is the name of the held-out samples: ``validation``, or without these ``test``.
    """

    model: NSVM
    data: Data
    split: str

    def __post_init__(self) -> None:
        i, m = self.model.expansion.i, len(self.train)
        if i is not None and len(i) and (last := int(i.max())) >= m:
            raise InputError(f"the model file names training sample {last}, and there are {m}")

    @cached_property
    def algorithm(self) -> Trainer[Any]:
        """The algorithm that trained it."""
        return build_trainer(self.model.settings.algorithm)

    @property
    def train(self) -> Split:
        """The training samples."""
        return self.data.splits["train"]

    @property
    def held_out(self) -> Split:
        """The held-out samples."""
        return self.data.splits[self.split]

    @cached_property
    def before(self) -> NSVM | None:
        """The model with theta as it was before training; None if there is no theta."""
        if not self.model.parameters:
            return None
        facts = self.model.facts
        initial = initial_network(self.model.settings, facts.shape, facts.task.outputs)
        return replace(self.model, network=initial.to(self.model.expansion.z))

    @property
    def classifies(self) -> bool:
        """Whether it tells classes apart."""
        return isinstance(self.model.task, Classification)

    @property
    def are_images(self) -> bool:
        """Whether the samples are images."""
        shape = self.model.facts.shape  # (channels, height, width), grey or in colour
        return len(shape) == 3 and shape[0] in (1, 3)

    def image(self, x: Real[Tensor, "channels height width"], text: str) -> Picture:
        """Return a sample as a picture that is black at the least value of any training sample."""
        from PIL import Image  # slow to import, and not needed for tables

        low, high = self._range
        scaled = (np.moveaxis(x.double().numpy(), 0, -1) - low) / (high - low or 1.0)
        pixels = np.rint(255 * scaled.clip(0, 1)).astype(np.uint8)
        png = io.BytesIO()
        Image.fromarray(pixels.squeeze(-1) if len(x) == 1 else pixels).save(png, "png", optimize=True)
        return Picture(png.getvalue(), text)

    @cached_property
    def _range(self) -> tuple[float, float]:
        return float(self.train.x.min()), float(self.train.x.max())

    @property
    def columns(self) -> list[str]:
        """The names of the features of samples that are no images, as the network gets them."""
        encoder = self.model.facts.encoder
        if encoder is None:
            return [f"feature {n}" for n in range(1, math.prod(self.model.facts.shape) + 1)]
        texts = [f"{name}: {text}" for name, categories in encoder.text.items() for text in categories]
        return [*encoder.numbers, *texts]

    def label(self, y: float) -> str:
        """Return a label, as the data have it, in words."""
        task = self.model.task
        if not isinstance(task, Classification):
            return f"{y:.10g}"
        return shortened(task.classes[int(task.index(torch.tensor(y)))])

    def some(self, split: Split, most: int) -> Split:
        """Return up to so many samples, chosen at random."""
        size = min(len(split), most)
        rows = random_subset(len(split), size, self.model.settings.seed, torch.device("cpu"))
        return Split(split.x[rows], split.y[rows])


def load_trained(run: Path, runtime: Mapping[str, Any], say: Callable[[str], object] = str) -> Trained:
    """Return the model of a run and its data; see ``open_model``.

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
    return Trained(model, data, data.splits.held_out)


def explain(trained: Trained, x: Real[Tensor, "p ..."], most: int = 6) -> list[tuple[float, float, Terms]]:
    """Return the predictions for raw samples, each with what the decision value is a sum of.

    That is the sum of all terms and the bias: g for two classes, that of the decision for more (or the sum of
    those of its pairs), and for real targets the difference from their mean. The ``most`` largest terms
    alpha_j y_j K(x_j, x) / scale, summed over equal j, come with their j, unless they are 0.

    Raises:
        InputError: the model file does not say which training samples the support vectors are.
    """
    model, e = trained.model, trained.model.expansion
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
