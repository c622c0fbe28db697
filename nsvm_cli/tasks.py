"""What a model learns from its labels: their code, the decision rule and the score, one object a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
from torch import Tensor

Values = TypeVar("Values", np.ndarray, Tensor)
"""An array or a tensor; what comes out is of the kind that came in."""


class Task(ABC):
    """Everything that depends on what the labels mean.

    Algorithms see coded labels ``y`` and decision values ``g``; only the task knows what these stand for.
    """

    metric: ClassVar[str]
    """The figure of ``score`` by which models are compared; larger is better."""

    classes: tuple[str, ...]
    """The names of the classes, in the order of their codes."""

    @abstractmethod
    def strata(self, y: Values) -> list[tuple[str, Values]]:
        """Return the parts of the data that a split keeps in proportion: their names and masks of samples."""

    @abstractmethod
    def is_code(self, y: Tensor) -> bool:
        """Return whether these are coded labels of this task."""

    @abstractmethod
    def violates(self, y: Values, g: Values) -> Values:
        """Return where the loss asks for a step: a mask of the samples' shape."""

    @abstractmethod
    def decide(self, g: Values) -> Values:
        """Return the predictions for decision values, coded like the labels."""

    def correct(self, y: np.ndarray, g: np.ndarray) -> int:
        """Return for how many samples the prediction is their label."""
        return int(np.count_nonzero(self.decide(g) == y))

    @abstractmethod
    def score(self, y: Values, decisions: Values) -> dict[str, Any]:
        """Return the figures of these decisions, among them ``metric``."""


@dataclass(frozen=True)
class BinaryClassification(Task):
    """Two classes, coded -1 and +1  (paper, Section 2)."""

    metric: ClassVar[str] = "accuracy"

    classes: tuple[str, ...] = ("-1", "+1")

    @staticmethod
    def encode(labels: np.ndarray, classes: Sequence[Any]) -> np.ndarray:
        """Return -1 for the first class and +1 for the second, as float64."""
        y: np.ndarray = np.where(labels == classes[1], 1.0, -1.0)
        return y

    def strata(self, y: Values) -> list[tuple[str, Values]]:
        """Return the members of each class."""
        return [(name, y == code) for name, code in zip(self.classes, (-1, 1), strict=True)]

    def is_code(self, y: Tensor) -> bool:
        return bool((y.abs() == 1).all())

    def violates(self, y: Values, g: Values) -> Values:
        """Return where the margin y g is below 1; a margin of exactly 1 is no violation  (Algorithm 0)."""
        violating: Values = y * g < 1
        return violating

    def decide(self, g: Values) -> Values:
        """Return +1 where g >= 0, else -1."""
        return (g >= 0) * 2 - 1

    def score(self, y: Values, decisions: Values) -> dict[str, Any]:
        """Return the ``accuracy`` and the number of ``errors``."""
        errors = int((y != decisions).sum())
        return {"accuracy": (len(y) - errors) / len(y), "errors": errors}


BINARY = BinaryClassification()


def task_for(classes: tuple[str, ...]) -> Task:
    """Return the task of telling these classes apart."""
    return BinaryClassification(classes)
