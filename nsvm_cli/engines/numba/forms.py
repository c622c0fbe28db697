"""What a compiled function gets of a network and an optimizer: numbers and arrays.

Numbers that are multiplied with features have their type, so that nothing is computed in float64 by accident.
What differs between kinds of features and networks is told apart by classes: see ``by_type`` in ``jit``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

CONSTANT, LINEAR_SCHEDULE, COSINE = range(3)

SCHEDULES = {"constant": CONSTANT, "linear": LINEAR_SCHEDULE, "cosine": COSINE}
"""Numbers for the names that settings have."""

Real = Any
"""A number in the type of the features."""


class Layer(NamedTuple):
    """A layer from ``c`` channels of h x w pixels to ``d`` channels of p x q, then ReLU.

    With ``side`` 1 it is fully connected, and has single pixels. Otherwise it is a convolution with filters
    of that side, and the maximum of each 2x2 square. ``masked`` says whether dropout acts on its channels.
    """

    c: int
    h: int
    w: int
    d: int
    p: int
    q: int
    side: int
    masked: bool


class Dropout(NamedTuple):
    """Dropout with probability ``p``. ``shared`` says whether the samples of a batch have the same mask, and
    ``seed`` and ``dropped_below`` determine it: see ``nsvm_cli.models.dropout``.
    """

    p: float
    shared: bool
    seed: int
    dropped_below: int


class Network(NamedTuple):
    """F_theta: ``layers``, and perhaps ``Normalize``.

    ``layers`` has a row for each, see ``Layer``. ``theta`` has W_1, b_1, W_2, ... one after the other, each
    W_l with a row for each output or channel. All layers are fully connected.
    """

    theta: np.ndarray
    layers: np.ndarray
    normalize: bool
    scale: Real
    eps: Real
    dropout: Dropout | None


class Convolutions(Network):
    """A network all of whose layers are convolutions."""


class Optimizer(NamedTuple):
    """SGD, and its state: ``momenta``, like theta, and the number of ``steps`` taken."""

    lr: float
    momentum: float
    weight_decay: float
    schedule: int
    warmup: float
    T: int
    momenta: np.ndarray
    steps: np.ndarray


class TrainingSet(NamedTuple):
    """The training samples x and their labels y."""

    x: np.ndarray
    y: np.ndarray
    lam: float


class Support(NamedTuple):
    """The coefficients of all samples: see ``nsvm_cli.trainers.coefficients.Coefficients``."""

    alpha: np.ndarray
    order: np.ndarray
    joined: np.ndarray
    member: np.ndarray


class Progress(NamedTuple):
    """Numbers that steps change, each an array of one number, as ``State`` and ``Tally`` have them.

    ``objectives`` holds the sum of the objectives, their number, and the latest. ``decided`` counts samples,
    those decided rightly, and violations.
    """

    t: np.ndarray
    last_violation: np.ndarray
    mean_gap: np.ndarray
    objectives: np.ndarray
    decided: np.ndarray
    g: np.ndarray


DONE, BAD_G, BAD_OBJECTIVE = range(3)
"""Why a stretch has ended."""
