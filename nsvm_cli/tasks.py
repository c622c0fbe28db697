"""Tasks: how labels are coded, how decision values become predictions, and how these are scored."""

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
"""An array or a tensor; functions return the type of their argument."""

OF_DECISIONS = ("accuracy", "balanced_accuracy", "f1")
"""Metrics of decisions, which depend on the threshold between two classes."""

OF_PROBABILITIES = ("log_loss", "brier_score")
"""Metrics of the probabilities of a calibrated model."""


class Task(ABC):
    """Base class of tasks, which hold everything that depends on the meaning of the labels.

    Algorithms see coded labels ``y`` and decision values ``g``; only the task knows their meaning.
    """

    kind: ClassVar[Literal["classification", "regression"]]

    metric: ClassVar[str]
    """The metric to compare models by, unless a setting names another."""

    metrics: ClassVar[tuple[str, ...]]
    """The metrics that a setting may name."""

    centred: ClassVar[bool] = True
    """Whether alignments are of centred kernel matrices, unless a setting decides."""

    classes: tuple[str, ...]
    """The names of the classes, in the order of their codes; none for real targets."""

    @property
    def outputs(self) -> tuple[int, ...]:
        """The shape of one decision value: () for a number, (C,) for one number per class."""
        return ()

    def strata(self, y: Values) -> Iterator[tuple[str, Values]]:
        """Yield the name and the mask of each group of samples that a split keeps in proportion."""
        yield "", y == y

    def targets(self, y: Tensor) -> Tensor:
        """Return the targets that an algorithm sees for labels in the units of the data."""
        return y

    def code(self, y: Float[Tensor, " k"]) -> Float[Tensor, " k *outputs"]:
        """Return the codes c_i of labels, whose inner products are the ideal kernel, as y_i y_j."""
        return y

    @abstractmethod
    def decide(self, g: Values) -> Values:
        """Return the predictions for decision values: coded classes, or targets in the units of the data."""

    def correct(self, y: np.ndarray, g: np.ndarray) -> int | None:
        """Return the number of correct predictions; None for real targets."""
        return None

    @abstractmethod
    def score(self, y: Values, decisions: Values) -> dict[str, Any]:
        """Return the metrics of decisions, including ``metric``."""

    def rank_scores(self, y: np.ndarray, g: np.ndarray) -> dict[str, float | None]:
        """Return the metrics that depend only on the order of the decision values."""
        return {}


class Classification(Task):
    """Classes, identified by their names."""

    kind = "classification"
    metric = "accuracy"
    metrics = (*OF_DECISIONS, "roc_auc", "average_precision", *OF_PROBABILITIES)

    @abstractmethod
    def index(self, y: Values) -> Values:
        """Return the positions in ``classes`` of coded labels."""

    def correct(self, y: np.ndarray, g: np.ndarray) -> int:
        return int(np.count_nonzero(self.decide(g) == y))

    def strata(self, y: Values) -> Iterator[tuple[str, Values]]:
        index = self.index(y)
        for r, name in enumerate(self.classes):
            yield name, index == r

    def score(self, y: Values, decisions: Values) -> dict[str, Any]:
        """Return figures of the decisions.

        These are ``accuracy`` and the number of ``errors``; the ``recall`` of each class, that is, the share
        of its samples that are decided correctly (None without samples), and the mean of all,
        ``balanced_accuracy``; the ``precision`` of each class, that is, the share of decisions for it that
        are correct (None without any); ``f1`` of the second of two classes, or the mean of all; and
        ``confusion``, the numbers of samples by class (row) and decision (column).
        """
        errors = int((y != decisions).sum())
        true, decided = (np.asarray(self.index(part)).astype(np.int64) for part in (y, decisions))
        C = len(self.classes)
        confusion = np.bincount(C * true + decided, minlength=C * C).reshape(C, C)
        correct, rows, columns = confusion.diagonal(), confusion.sum(1), confusion.sum(0)
        recall, precision = (
            [share / whole if whole else None for share, whole in zip(correct.tolist(), sums, strict=True)]
            for sums in (rows.tolist(), columns.tolist())
        )
        present = [share for share in recall if share is not None]
        f1 = 2 * correct / np.maximum(rows + columns, 1)
        return {
            "accuracy": (len(y) - errors) / len(y),
            "errors": errors,
            "balanced_accuracy": sum(present) / len(present),
            "f1": float(f1[1] if C == 2 else f1[rows + columns > 0].mean()),
            "recall": recall,
            "precision": precision,
            "confusion": confusion.tolist(),
        }

    def rank_scores(self, y: np.ndarray, g: np.ndarray) -> dict[str, float | None]:
        """Return ``roc_auc`` and ``average_precision`` of decision values, as scikit-learn defines them.

        They are of the second of two classes, or means over each class against the rest; None if a class has
        no samples.
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
            areas.append((roc_auc, (steps * tp / (tp + fp)).sum() / P))  # neither interpolates
        roc_auc, average_precision = (float(np.mean(values)) for values in zip(*areas, strict=True))
        return {"roc_auc": roc_auc, "average_precision": average_precision}


def _counts(positive: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the values of g, descending, and how many positive and other samples have at least each."""
    values, place = np.unique(-g, return_inverse=True)
    return -values, *(np.cumsum(np.bincount(place, counted)) for counted in (positive, ~positive))


def best_threshold(y: np.ndarray, g: np.ndarray, metric: str) -> float:
    """Return the threshold t with the best score if decisions are for the second of two classes where g >= t.

    It is halfway between two neighbouring values of g, or beyond all of them; of several, the nearest to 0.
    """
    values, *counts = _counts(y > 0, g)
    tp, fp = (np.append(0, count) for count in counts)
    P, N = tp[-1], fp[-1]
    scores = {
        "accuracy": tp - fp,
        "balanced_accuracy": tp * max(N, 1) - fp * max(P, 1),
        "f1": tp / np.maximum(P + tp + fp, 1),
    }[metric]
    beyond = 1 + np.abs(g).max()
    high, low = np.append(values[0] + beyond, values), np.append(values, values[-1] - beyond)
    t = high / 2 + low / 2
    t = np.where(t > low, t, high)  # of neighbouring floating-point numbers
    best = t[scores == scores.max()]
    return float(best[np.abs(best).argmin()])


@dataclass(frozen=True)
class BinaryClassification(Classification):
    """Two classes, coded -1 and +1  (paper, Section 2)."""

    centred: ClassVar[bool] = False

    classes: tuple[str, ...] = ("-1", "+1")

    def index(self, y: Values) -> Values:
        return (y > 0) * 1

    def decide(self, g: Values) -> Values:
        """Return +1 where g >= 0, else -1."""
        return (g >= 0) * 2 - 1


@dataclass(frozen=True)
class MulticlassClassification(Classification):
    """C > 2 classes, coded 0 to C - 1, with a decision value for each."""

    classes: tuple[str, ...]

    @property
    def outputs(self) -> tuple[int, ...]:
        return (len(self.classes),)

    def index(self, y: Values) -> Values:
        return y

    def code(self, y: Float[Tensor, " k"]) -> Float[Tensor, "k C"]:
        """Return c_r for class r: 1 at r and -1/(C-1) elsewhere, divided by its norm.

        Inner products are 1 within a class and -1/(C-1) otherwise. With C = 2 that is y_i y_j.
        """
        C = len(self.classes)
        c = torch.full((len(y), C), -1 / (C - 1), dtype=y.dtype, device=y.device)
        c[torch.arange(len(y), device=y.device), y.long()] = 1
        return c / math.sqrt(C / (C - 1))

    def decide(self, g: Values) -> Values:
        """Return the class with the largest decision value, the first in case of a tie."""
        best: Values = g.argmax(-1)
        return best


@dataclass(frozen=True)
class Regression(Task):
    """Real targets. Algorithms see them standardised: (y - mean) / std over the training set."""

    kind: ClassVar[Literal["classification", "regression"]] = "regression"
    metric: ClassVar[str] = "r2"
    metrics: ClassVar[tuple[str, ...]] = ("r2", "rmse", "mae")
    classes = ()

    mean: float = 0.0
    std: float = 1.0

    def targets(self, y: Tensor) -> Tensor:
        return (y - self.mean) / self.std

    def decide(self, g: Values) -> Values:
        """Return the predicted targets, in the units of the data and in float64, to keep their digits."""
        if isinstance(g, np.ndarray):
            return self.mean + self.std * g.astype(np.float64)
        # tensors, because torch's ONNX exporter would round numbers to float32
        mean, std = (torch.tensor(number, dtype=torch.float64) for number in (self.mean, self.std))
        return mean + std * g.double()

    def score(self, y: Values, decisions: Values) -> dict[str, Any]:
        """Return the root mean squared error, the mean absolute error, and R^2 (None if y is constant)."""
        target, residual = np.asarray(y, np.float64), np.asarray(y - decisions, np.float64)
        varies = target.min() < target.max()  # the mean of a constant is rounded
        spread = float(np.square(target - target.mean()).sum()) if varies else 0.0
        return {
            "r2": 1 - float(np.square(residual).sum()) / spread if spread > 0 else None,
            "rmse": float(np.sqrt(np.square(residual).mean())),
            "mae": float(np.abs(residual).mean()),
        }


BINARY = BinaryClassification()

TASKS: dict[str, type[Task]] = {task.kind: task for task in (Classification, Regression)}
"""The base class of tasks of each kind."""


def task_for(classes: Sequence[str]) -> Classification:
    """Return the classification task for two or more classes."""
    names = tuple(classes)
    return BinaryClassification(names) if len(names) == 2 else MulticlassClassification(names)


def encode(labels: np.ndarray, classes: Sequence[Any]) -> np.ndarray:
    """Return the codes of labels among ``classes``, as float64: -1 and +1 for two, else 0, 1, 2, ..."""
    if len(classes) == 2:
        return np.where(labels == classes[1], 1.0, -1.0)
    place = {name: r for r, name in enumerate(classes)}
    return np.array([place[label] for label in labels.tolist()], np.float64)
