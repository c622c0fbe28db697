"""Tasks: how labels are coded, how decision values become predictions, and how predictions are scored."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

Values = TypeVar("Values", np.ndarray, Tensor)
"""An array or a tensor. Functions return the same type that they receive."""

OF_DECISIONS = ("accuracy", "balanced_accuracy", "f1")
"""Metrics of predicted classes. With two classes, they depend on the decision threshold."""


class Task(ABC):
    """Base class of tasks, which define what coded labels ``y`` and decision values ``g`` mean."""

    kind: ClassVar[Literal["classification", "regression"]]

    metric: ClassVar[str]
    """The default metric for comparing models."""

    centred: ClassVar[bool] = True
    """Whether alignments use centred kernel matrices by default."""

    classes: tuple[str, ...]
    """The names of the classes in the order of their codes, empty for real targets."""

    @property
    def outputs(self) -> tuple[int, ...]:
        """The shape of one decision value: () for a number, (C,) for one number per class."""
        return ()

    def strata(self, y: Values) -> Iterator[tuple[str, Values]]:
        """Yield the name of each class and the mask of its samples; for real targets, "" and all samples."""
        yield "", y == y

    def targets(self, y: Tensor) -> Tensor:
        """Return the targets on which algorithms are trained, for labels in the units of the data."""
        return y

    def code(self, y: Float[Tensor, " k"]) -> Float[Tensor, " k *outputs"]:
        """Return a code c_i for each label. The inner products <c_i, c_j> are the ideal kernel matrix."""
        return y

    def index(self, y: Values) -> Values:
        """Return the index in ``classes`` of the class of each label or, for real targets, the targets."""
        return y

    @abstractmethod
    def decide(self, g: Values) -> Values:
        """Return the predictions for decision values: coded classes, or targets in the units of the data."""

    def correct(self, y: np.ndarray, g: np.ndarray) -> int | None:
        """Return the number of correct predictions, or None for real targets."""
        return None

    @abstractmethod
    def score(self, y: Values, decisions: Values) -> dict[str, Any]:
        """Return the metrics of predictions, including ``metric``."""

    def rank_scores(self, y: np.ndarray, g: np.ndarray) -> dict[str, float | None]:
        """Return the metrics that depend only on the order of the decision values."""
        return {}


class Classification(Task):
    """A task whose labels are classes, identified by name."""

    kind = "classification"
    metric = "accuracy"

    def correct(self, y: np.ndarray, g: np.ndarray) -> int:
        return int(np.count_nonzero(self.decide(g) == y))

    def strata(self, y: Values) -> Iterator[tuple[str, Values]]:
        index = self.index(y)
        for r, name in enumerate(self.classes):
            yield name, index == r

    def score(self, y: Values, decisions: Values) -> dict[str, Any]:
        """Return the metrics of predicted classes.

        - ``accuracy``, and the number of ``errors``
        - ``recall`` and ``precision`` of each class; None for a class without samples or decisions
        - ``balanced_accuracy``: the mean recall
        - ``f1``: of the second class if there are two, otherwise the mean over the classes
        - ``confusion``: the number of samples of each class (row) with each decision (column)
        """
        errors = int((y != decisions).sum())
        true, decided = (np.asarray(self.index(part)).astype(np.int64) for part in (y, decisions))
        C = len(self.classes)
        confusion = np.bincount(C * true + decided, minlength=C * C).reshape(C, C)
        correct, rows, columns = confusion.diagonal(), confusion.sum(1), confusion.sum(0)
        recall, precision = (
            [part / total if total else None for part, total in zip(correct.tolist(), sums, strict=True)]
            for sums in (rows.tolist(), columns.tolist())
        )
        recalls = [value for value in recall if value is not None]
        f1 = 2 * correct / np.maximum(rows + columns, 1)
        return {
            "accuracy": (len(y) - errors) / len(y),
            "errors": errors,
            "balanced_accuracy": sum(recalls) / len(recalls),
            "f1": float(f1[1] if C == 2 else f1[rows + columns > 0].mean()),
            "recall": recall,
            "precision": precision,
            "confusion": confusion.tolist(),
        }

    def rank_scores(self, y: np.ndarray, g: np.ndarray) -> dict[str, float | None]:
        """Return ``roc_auc`` and ``average_precision`` as in scikit-learn, or None if a class has no samples.

        For more than two classes, the metrics are means over all classes, each against the rest.
        """
        index, columns = self.index(y), {1: g} if g.ndim == 1 else dict(enumerate(g.T))
        areas: list[tuple[float, float]] = []
        for r, column in columns.items():
            positive = index == r
            P, N = int(positive.sum()), int((~positive).sum())
            if not P or not N:
                return {"roc_auc": None, "average_precision": None}
            _, tp, fp = _counts(positive, column)
            steps = np.diff(tp, prepend=0)
            roc_auc = (np.diff(fp, prepend=0) * (tp - steps / 2)).sum() / P / N
            areas.append((roc_auc, (steps * tp / (tp + fp)).sum() / P))  # without interpolation
        roc_auc, average_precision = (float(np.mean(values)) for values in zip(*areas, strict=True))
        return {"roc_auc": roc_auc, "average_precision": average_precision}


def _counts(positive: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the distinct values of g in descending order, and the numbers of true and false positives.

    The numbers at a value t count the samples with g >= t that are positive, or not positive.
    """
    values, index = np.unique(-g, return_inverse=True)
    return -values, *(np.cumsum(np.bincount(index, mask)) for mask in (positive, ~positive))


def best_threshold(y: np.ndarray, g: np.ndarray, metric: str) -> float:
    """Return the threshold t with the best score if the second of two classes is predicted where g >= t.

    t is halfway between two neighbouring values of g, or beyond all values. Of several best thresholds, the
    nearest to 0 is returned.
    """
    values, *counts = _counts(y > 0, g)
    tp, fp = (np.append(0, count) for count in counts)
    P, N = tp[-1], fp[-1]
    scores = {
        "accuracy": tp - fp,
        "balanced_accuracy": tp * max(N, 1) - fp * max(P, 1),
        "f1": tp / np.maximum(P + tp + fp, 1),
    }[metric]
    margin = 1 + np.abs(g).max()
    high, low = np.append(values[0] + margin, values), np.append(values, values[-1] - margin)
    t = high / 2 + low / 2
    t = np.where(t > low, t, high)  # if no floating-point number is between low and high
    best = t[scores == scores.max()]
    return float(best[np.abs(best).argmin()])


@dataclass(frozen=True)
class BinaryClassification(Classification):
    """A task with two classes, coded -1 and +1  (paper, Section 2)."""

    centred: ClassVar[bool] = False

    classes: tuple[str, ...] = ("-1", "+1")

    def index(self, y: Values) -> Values:
        return (y > 0) * 1

    def decide(self, g: Values) -> Values:
        """Return +1 where g >= 0, else -1."""
        return (g >= 0) * 2 - 1


@dataclass(frozen=True)
class MulticlassClassification(Classification):
    """A task with C > 2 classes, coded 0 to C - 1, and a decision value for each class."""

    classes: tuple[str, ...]

    @property
    def outputs(self) -> tuple[int, ...]:
        return (len(self.classes),)

    def code(self, y: Float[Tensor, " k"]) -> Float[Tensor, "k C"]:
        """Return c_r for class r: 1 at r and -1/(C-1) elsewhere, divided by its norm.

        The inner product is 1 for samples of the same class, otherwise -1/(C-1); for C = 2, this is y_i y_j.
        """
        C = len(self.classes)
        c = torch.full((len(y), C), -1 / (C - 1), dtype=y.dtype, device=y.device)
        c[torch.arange(len(y), device=y.device), y.long()] = 1
        return c / math.sqrt(C / (C - 1))

    def decide(self, g: Values) -> Values:
        """Return the class with the largest decision value, the first in case of a tie."""
        return g.argmax(-1)


@dataclass(frozen=True)
class Regression(Task):
    """A task with real targets, which are standardised as (y - mean) / std for training."""

    kind: ClassVar[Literal["classification", "regression"]] = "regression"
    metric: ClassVar[str] = "r2"
    classes = ()

    mean: float = 0.0
    std: float = 1.0

    def targets(self, y: Tensor) -> Tensor:
        return (y - self.mean) / self.std

    def decide(self, g: Values) -> Values:
        """Return the predicted targets in the units of the data, in float64."""
        if isinstance(g, np.ndarray):
            return self.mean + self.std * g.astype(np.float64)
        # these are tensors because torch's ONNX exporter would round numbers to float32
        mean, std = (torch.tensor(number, dtype=torch.float64) for number in (self.mean, self.std))
        return mean + std * g.double()

    def score(self, y: Values, decisions: Values) -> dict[str, Any]:
        """Return the root mean squared error, the mean absolute error, and R^2 (None if y is constant)."""
        target, residual = np.asarray(y, np.float64), np.asarray(y - decisions, np.float64)
        varies = target.min() < target.max()  # spread may be positive for a constant, whose mean is rounded
        spread = float(np.square(target - target.mean()).sum()) if varies else 0.0
        return {
            "r2": 1 - float(np.square(residual).sum()) / spread if spread > 0 else None,
            "rmse": float(np.sqrt(np.square(residual).mean())),
            "mae": float(np.abs(residual).mean()),
        }


BINARY = BinaryClassification()

TASKS: dict[str, type[Task]] = {task.kind: task for task in (Classification, Regression)}
"""The base class of the tasks of each kind, by name."""


def task_for(classes: Sequence[str]) -> Classification:
    """Return the classification task for two or more classes."""
    names = tuple(classes)
    return BinaryClassification(names) if len(names) == 2 else MulticlassClassification(names)


def encode(labels: np.ndarray, classes: Sequence[Any]) -> np.ndarray:
    """Return the codes of labels as float64: -1 and +1 for two ``classes``, otherwise 0, 1, 2, ..."""
    if len(classes) == 2:
        return np.where(labels == classes[1], 1.0, -1.0)
    codes = {name: r for r, name in enumerate(classes)}
    return np.array([codes[label] for label in labels.tolist()], np.float64)
