"""Means of metrics since the last record, and the mean of theta over the last steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import torch
from jaxtyping import Float64
from pydantic import Field
from torch import Tensor

from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.storage.state_dict import Saved, StateDict, loaded_value


@dataclass
class Tally(Saved):
    """Sums over the steps since the last record of metrics, which are saved in checkpoints."""

    objective: Float64[Tensor, ""] = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))
    objectives: int = 0  # number of values in ``objective``
    samples: int = 0  # number of samples that were predicted, each before the step that uses it
    correct: int | None = 0  # number of correct predictions, or None for real targets
    violations: int = 0  # number of samples that violated the margin

    def add_objective(self, value: Tensor) -> None:
        """Add the objective of one step in theta, without waiting for the device."""
        self.objective = self.objective + value  # in float64
        self.objectives += 1

    def add_decisions(self, samples: int, correct: int | None, violations: int) -> None:
        """Add the counts of one or more steps; see the fields."""
        self.samples += samples
        self.correct = None if correct is None else (self.correct or 0) + correct
        self.violations += violations

    def means(self) -> dict[str, float | None]:
        """Return the means for a record of metrics. The mean of no values is None."""
        return {
            "objective": _mean(float(self.objective), self.objectives),
            "violation_rate": _mean(self.violations, self.samples),
            "running_accuracy": _mean(self.correct, self.samples),
        }

    def clear(self) -> None:
        """Reset the sums after a record."""
        self.__init__()  # type: ignore[misc]

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        self.correct = 0 if saved.get("correct") is not None else None
        super().load_state_dict(saved)
        if not 0 <= max(self.correct or 0, self.violations) <= self.samples <= 2**53 >= self.objectives:
            counts = f"{self.correct} correct samples, {self.violations} violations"
            raise ValueError(f"the tally has {counts} and {self.samples} samples in total")


def _mean(total: int | float | None, count: int) -> float | None:
    return None if total is None or not count or not math.isfinite(total) else total / count


Share = Annotated[float, Field(gt=0, le=1)]
"""The fraction of the steps, at the end of training, over which theta is averaged."""


class MeanTheta:
    """The mean of theta over the last fraction ``share`` of T steps, which replaces theta after step T.

    See Polyak-Ruppert averaging (Polyak and Juditsky 1992) and stochastic weight averaging (Izmailov et al.
    2018). The mean includes the buffers of a network, such as running averages.
    """

    def __init__(self, F: FeatureMap, share: float, T: int) -> None:
        # these tensors share their memory with the network's and the kernel's
        theta = F.network.state_dict() | {f"kernel.{name}": p.data for name, p in F.kernel_parameters.items()}
        self.theta = {name: v for name, v in theta.items() if v.is_floating_point()}
        self.mean = {name: v.clone() for name, v in self.theta.items()}
        self.T, self.steps = T, max(1, round(share * T))

    def follow(self, t: int) -> None:
        """Include theta after step t in the mean."""
        n = t - (self.T - self.steps)
        if n < 1:
            return
        for name, v in self.theta.items():
            self.mean[name] += (v - self.mean[name]) / n
            if t == self.T:
                v.copy_(self.mean[name])

    def state_dict(self) -> StateDict:
        return dict(self.mean)

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore a saved mean. Raise a ValueError if the mean belongs to a different network."""
        self.mean = loaded_value("mean", self.mean, saved)
