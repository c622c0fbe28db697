"""A trained model with the data of its run, and how samples are shown: as images, or in columns."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Real

from nsvm_cli.artifacts.evaluation import checked_split
from nsvm_cli.artifacts.model_file import SavedModel
from nsvm_cli.datasets import Data, SampleCache, Split, load_data
from nsvm_cli.datasets.base import ARRAYS
from nsvm_cli.datasets.encoding import TableEncoder
from nsvm_cli.errors import InputError
from nsvm_cli.models.nsvm import NSVM
from nsvm_cli.models.objectives import random_subset
from nsvm_cli.output import shortened
from nsvm_cli.runs.experiment import initial_network
from nsvm_cli.runs.open_model import open_model
from nsvm_cli.storage.metrics_file import read_metrics
from nsvm_cli.storage.run_directory import METRICS
from nsvm_cli.tasks import Classification
from nsvm_cli.trainers import Trainer, build_trainer

MOST_COLUMNS = 30
"""The most columns that are shown."""

CHANNELS = {1, 3}
"""Samples of shape (channels, height, width) are images if they have so many: grey, or red, green, blue."""


def are_images(shape: tuple[int, ...]) -> bool:
    """Return whether samples of this shape are images."""
    return len(shape) == 3 and shape[0] in CHANNELS


def range_of(split: Split) -> tuple[float, float]:
    """Return the smallest and the largest value of any sample, between which its pixels are shown."""
    return float(split.x.min()), float(split.x.max())


def pixels(
    image: Real[np.ndarray, "channels height width"], ends: tuple[float, float]
) -> Float64[np.ndarray, "height width *channels"]:
    """Return an image as it is drawn: values from 0 to 1, the channels last; a grey one has none."""
    low, high = ends
    scaled = np.clip(np.moveaxis(image - np.float64(low), 0, -1) / (high - low or 1.0), 0, 1)
    return scaled.squeeze(-1) if scaled.shape[-1] == 1 else scaled


def data_uri(image: Real[np.ndarray, "channels height width"], ends: tuple[float, float]) -> str:
    """Return an image as the address of a picture that is part of it."""
    from PIL import Image  # slow to import, and not needed for tables

    png = io.BytesIO()
    Image.fromarray(np.rint(255 * pixels(image, ends)).astype(np.uint8)).save(png, "png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(png.getvalue()).decode()}"


class Columns:
    """The columns of samples that are no images: those of a table, or of ``width`` features without names.

    Attributes:
        names: those of the first ``MOST_COLUMNS``, and an ellipsis if there are more.
        numbers: how many of the columns, the first ones, hold numbers.
        fills_cells: whether medians take the place of empty cells.
    """

    def __init__(self, encoder: TableEncoder | None, width: int) -> None:
        self.encoder = encoder
        features = [f"feature {n}" for n in range(1, min(width, MOST_COLUMNS + 1) + 1)]
        self.names = _first([*encoder.numbers, *encoder.text] if encoder else features)
        self.numbers = len(encoder.numbers if encoder else self.names)
        self.fills_cells = bool(encoder and encoder.numbers)

    def cells(self, x: Real[np.ndarray, " n"]) -> list[str]:
        """Return the cells of a sample's row, given its features.

        A cell of text that the model does not know is empty, as is one that was empty; an empty cell of
        numbers holds the median.
        """
        at = len(self.encoder.numbers) if self.encoder else MOST_COLUMNS + 1
        row = [f"{value:.10g}" for value in x[:at].tolist()]
        for categories in self.encoder.text.values() if self.encoder else ():
            chosen = np.flatnonzero(x[at : at + len(categories)])
            row.append(categories[chosen[0]] if len(chosen) else "")
            at += len(categories)
        return _first(row)


def _first(cells: list[str]) -> list[str]:
    """Return the first ``MOST_COLUMNS``, and an ellipsis if there are more."""
    return cells if len(cells) <= MOST_COLUMNS else [*cells[:MOST_COLUMNS], "…"]


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

    @cached_property
    def algorithm(self) -> Trainer[Any]:
        """The algorithm that trained it."""
        return build_trainer(self.saved.settings.algorithm)

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


def load_trained(
    run: Path,
    runtime: Mapping[str, Any],
    say: Callable[[str], object] = lambda line: None,
) -> Trained:
    """Return the model of a run and its data; see ``open_model``.

    Args:
        runtime: ``device`` and ``memory_budget`` that take the place of the run's.

    Raises:
        InputError: the model file or the data are missing or damaged, or the data are in no file or have
            changed since.
    """
    _, saved = open_model(run, runtime, say, samples := SampleCache())
    settings, facts = saved.settings, saved.facts
    if facts.source == ARRAYS:
        raise InputError(
            f"{run} was saved by an estimator, without the arrays that it was trained on: expected the model "
            "of a run, for which nsvm train reads its data from a file"
        )
    how = settings.task, facts.known, samples, settings.memory_budget
    data = load_data(settings.dataset, settings.seed, *how)
    if data.sha256 != facts.sha256:
        raise InputError(f"{data.source} or its test set has changed since the run")
    checked_split(facts, data, data.splits.held_out)
    return Trained(saved, data, data.splits.held_out)


def records_of(run: Path) -> list[dict[str, Any]]:
    """Return the metrics of a run; none if these are missing or damaged, or ``run`` is a model file."""
    try:
        return read_metrics(run / METRICS)
    except (InputError, OSError):
        return []
