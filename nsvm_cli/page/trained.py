"""A trained model with the data of its run, as the sections of a report take them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Real

from nsvm_cli.artifacts.evaluation import checked_split
from nsvm_cli.artifacts.model_file import SavedModel, find_model_file, load_model
from nsvm_cli.datasets import Data, Split, load_data
from nsvm_cli.errors import InputError
from nsvm_cli.memory import memory_limit
from nsvm_cli.models.nsvm import NSVM
from nsvm_cli.models.objectives import random_subset
from nsvm_cli.output import shortened
from nsvm_cli.page.samples import Columns, are_images, data_uri, range_of
from nsvm_cli.runs.experiment import initial_network
from nsvm_cli.tasks import Classification


@dataclass(frozen=True)
class Trained:
    """A trained model, and the data that it was trained and evaluated on.

    ``split`` is the name of the held-out samples: ``validation``, or without these ``test``.
    """

    saved: SavedModel
    data: Data
    split: str

    @property
    def model(self) -> NSVM:
        """The model."""
        return self.saved.model

    @property
    def held_out(self) -> Split:
        """The held-out samples."""
        return self.data.splits[self.split]

    @cached_property
    def before(self) -> NSVM | None:
        """The model with theta as it was before training; None if there is no theta."""
        settings, facts, z = self.saved.settings, self.saved.facts, self.model.expansion.z
        if not self.model.parameters:
            return None
        initial = initial_network(settings, facts.shape, facts.task.outputs).to(z)
        return replace(self.model, network=initial)

    @property
    def classifies(self) -> bool:
        """Whether it tells classes apart."""
        return isinstance(self.model.task, Classification)

    @property
    def are_images(self) -> bool:
        """Whether the samples are images."""
        return are_images(self.saved.facts.shape)

    @cached_property
    def columns(self) -> Columns:
        """The columns of a sample that is no image."""
        return Columns(self.saved.facts.known.encoder, math.prod(self.saved.facts.shape))

    @cached_property
    def _ends(self) -> tuple[float, float]:
        return range_of(self.data.splits["train"])

    def image(self, x: Real[np.ndarray, "channels height width"]) -> str:
        """Return the address of a picture of a sample."""
        return data_uri(x, self._ends)

    def label(self, y: float) -> str:
        """Return a label, as the data have it, in words."""
        task = self.model.task
        if not isinstance(task, Classification):
            return f"{y:.10g}"
        return shortened(task.classes[int(task.index(torch.tensor(y)))])

    def some(self, most: int) -> Split:
        """Return up to so many of the held-out samples, chosen at random."""
        m = len(self.held_out)
        rows = random_subset(m, min(m, most), self.saved.settings.seed, torch.device("cpu"))
        return Split(self.held_out.x[rows], self.held_out.y[rows])


def load_trained(run: Path, runtime: Mapping[str, Any], data: Data | None = None) -> Trained:
    """Return the model of a finished run and its data.

    Args:
        runtime: ``device`` and ``memory_budget`` that take the place of the run's.

    Raises:
        InputError: the model file or the data are missing or damaged, or the data have changed since.
    """
    saved = load_model(find_model_file(run), runtime)
    settings, facts = saved.settings, saved.facts
    if data is None:
        with memory_limit(settings.memory_budget):
            data = load_data(settings.dataset, settings.seed, settings.task, facts.known)
    if data.sha256 != facts.sha256:
        raise InputError(f"{data.source} or its test set has changed since the run")
    checked_split(facts, data, data.splits.held_out)
    return Trained(saved, data, data.splits.held_out)
