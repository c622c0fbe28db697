"""Metrics: how they are computed, compared and shown, with a decorator for your own metrics."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, get_args

Function = TypeVar("Function", bound=Callable[..., Any])

Needs = Literal["labels", "decisions", "probabilities"]
"""What a metric is computed from."""


def percent(share: float | None, digits: int = 2) -> str:
    """Format a fraction as a percentage, or None as an empty string."""
    return "" if share is None else f"{100 * share:.{digits}f} %"


def short(value: float) -> str:
    return f"{value:.4g}"


def number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.4f}"


def in_units(error: float) -> str:
    """Format an error in the units of the data, with at least four digits."""
    return f"{error:.0f}" if 1000 <= error < 1e12 else f"{error:#.4g}"


@dataclass(frozen=True)
class Figure:
    """How a metric or another value of a result is shown and compared.

    ``meaning`` is an explanation that fits beside the value in a terminal of 80 columns. ``sign`` is 1 if
    larger values are better, or -1 if smaller values are better.
    """

    name: str
    written: Callable[[Any], str] = short
    meaning: str = ""
    sign: int = 1


@dataclass(frozen=True)
class Metric(Figure):
    """A score of predictions.

    ``function(y, prediction, weights)`` is None if the task computes the metric (see ``Task.score``). For
    ``needs`` and ``tasks``, see ``metric``.
    """

    function: Callable[..., Any] | None = None
    needs: Needs = "labels"
    tasks: tuple[str, ...] = ("classification",)


METRICS: dict[str, Metric] = {
    "accuracy": Metric("accuracy", percent),
    "r2": Metric("R^2", number, tasks=("regression",)),
    "balanced_accuracy": Metric("balanced accuracy", percent),
    "f1": Metric("F1", number),
    "roc_auc": Metric("ROC AUC", number, needs="decisions"),
    "average_precision": Metric("average precision", number, needs="decisions"),
    "log_loss": Metric("log loss", number, sign=-1, needs="probabilities"),
    "brier_score": Metric("Brier score", number, sign=-1, needs="probabilities"),
    "rmse": Metric("RMSE", in_units, sign=-1, tasks=("regression",)),
    "mae": Metric("MAE", in_units, sign=-1, tasks=("regression",)),
}
"""The metrics that the setting ``metric`` may select, beginning with the default metrics of the tasks."""


def metric(
    needs: Needs = "labels", greater_is_better: bool = True, tasks: Sequence[str] = ("classification",)
) -> Callable[[Function], Function]:
    """Return a decorator that adds ``function(y, prediction, weights)`` to the metrics, under its own name.

    The function receives NumPy arrays and returns a number, or None if the metric is undefined.

    Args:
        needs: what ``prediction`` holds: predicted labels; decision values of shape (p,) or, for C > 2
            classes, (p, C); or probabilities of shape (p, C), which require a calibrated model. The labels
            ``y`` and predicted labels are class indices or, for regression, real targets in the units of
            the data. ``weights`` are the weights of the samples, or None if all weights are 1.
        greater_is_better: whether larger values are better.
        tasks: the kinds of tasks that have this metric: classification, regression, or both.
    """

    if needs not in (known := get_args(Needs)):
        raise ValueError(f"metric: needs={needs!r}: expected one of {', '.join(known)}")

    def add(function: Function) -> Function:
        name, sign = function.__name__, 1 if greater_is_better else -1
        if name in METRICS and not METRICS[name].function:
            raise ValueError(f"metric {name}: nsvm has a metric of this name; choose another name")
        try:
            inspect.signature(function).bind(None, None, None)
        except TypeError:
            raise ValueError(f"metric {name}: expected the parameters y, prediction, weights") from None
        METRICS[name] = Metric(name.replace("_", " "), number, "", sign, function, needs, tuple(tasks))
        return function

    return add


def own_metrics(*kinds: str) -> dict[str, Metric]:
    """Return the metrics that the decorator ``metric`` has added for these kinds of tasks, by default all."""
    return {
        name: entry
        for name, entry in METRICS.items()
        if entry.function and (not kinds or {*kinds} & {*entry.tasks})
    }


def recorded_signs(result: Mapping[str, Any]) -> dict[str, bool]:
    """Return whether greater is better for each user-defined metric of a result, by name.

    The result may come from an untrusted source.
    """
    own = result.get("greater_is_better")
    return {name: value is True for name, value in own.items()} if isinstance(own, dict) else {}


FIGURES: Mapping[str, Figure] = {
    "validation_accuracy": Figure("validation", percent),
    "majority_accuracy": Figure("accuracy of the majority class", percent),
    "mean_rmse": Figure("RMSE of predicting the mean", in_units, sign=-1),
    "errors": Figure("errors", str, sign=-1),
    "running_accuracy": Figure("running accuracy", percent),
    "steps": Figure("steps", str, "iterations of the algorithm"),
    "theta_steps": Figure("theta steps", str),
    "part_steps": Figure("part steps", lambda steps: "+".join(map(str, steps))),
    "train_seconds": Figure("training time", "{:.1f}".format),
    "violations": Figure("violations", str, "drawn samples that were inside the margin"),
    "violation_rate": Figure("violation rate", percent, sign=-1),
    "support_vectors": Figure("support vectors", str, "terms of the decision function"),
    "parameters": Figure("parameters", str, "number of weights in theta"),
    "theta_change": Figure(
        "theta change", lambda x: f"{100 * x:.3g} %", "relative to the initial norm of theta"
    ),
    "theta_zeros": Figure("theta zeros", meaning="fraction of theta that is nearly 0"),
    "feature_change": Figure("feature change", number, "of the kernel, from 0 (none) to 1"),
    "alignment": Figure("kernel alignment", number, "of kernel and labels, from -1 to 1"),
    "alignment_train": Figure("alignment train", meaning="of kernel and labels on training samples"),
    "alignment_test": Figure("alignment test", meaning="of kernel and labels on {split} samples"),
    "entropy": Figure("entropy", meaning="0 for a constant kernel, 1 for the identity"),
    "distance_identity": Figure("distance identity", meaning="of the kernel; 1 if all values are 1"),
    "distance_ones": Figure("distance ones", meaning="of the kernel; 1 if it is the identity"),
    "objective": Figure("objective", "{:.3g}".format, "of the SVM, on training samples", sign=-1),
    "full_objective": Figure("full objective", sign=-1),
    "duality_gap": Figure("duality gap", "{:.2g}".format, "the objective minus a lower bound", sign=-1),
}
"""The other values that are shown or compared, by their keys in results, records and diagnoses."""


def figure_of(key: str) -> Figure:
    """Return how the value of a key is shown. The key may begin with a split, as in ``test_accuracy``."""
    split, _, name = key.partition("_")
    if key not in FIGURES and split in ("validation", "test", "train"):
        figure = figure_of(name)
        return replace(figure, name=f"{split} {figure.name}")
    return FIGURES.get(key) or METRICS.get(key) or Figure(key.replace("_", " "), number)


def sign_of(figure: str, result: Mapping[str, Any] | None = None) -> int:
    """Return 1 if larger values of a metric are better, otherwise -1. Names that end in ``loss`` give -1.

    The user's own metrics need not be loaded: ``result``, the result of a run, records their signs.
    """
    signs = {name: entry.sign > 0 for name, entry in {**FIGURES, **METRICS}.items()}
    signs |= recorded_signs(result or {})
    ends = [name for name in signs if f"_{figure}".endswith(f"_{name}")]
    greater = signs[max(ends, key=len)] if ends else not figure.endswith("loss")
    return 1 if greater else -1
