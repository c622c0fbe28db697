"""What happened in the steps since the last record, for the means in the next one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor

from nsvm_cli.storage.state_dict import Saved, StateDict


@dataclass
class Tally(Saved):
    """Sums over the steps since the last record.

    ``objective`` is the sum of the objective before each theta step, over ``objectives`` values. Before the
    steps learnt from them, ``samples`` were decided, ``correct`` of them correctly (None for real targets);
    ``violations`` of them violated the margin.

    The sums are part of a checkpoint, so that records do not depend on interruptions.
    """

    objective: Float64[Tensor, ""] = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))
    objectives: int = 0
    samples: int = 0
    correct: int | None = 0
    violations: int = 0

    def add_objective(self, value: Tensor) -> None:
        """Add the objective of one theta step, without waiting for the device."""
        self.objective = self.objective + value  # in float64
        self.objectives += 1

    def add_decisions(self, samples: int, correct: int | None, violations: int) -> None:
        """Add samples that were decided before a step learnt from them."""
        self.samples += samples
        self.correct = None if correct is None else (self.correct or 0) + correct
        self.violations += violations

    def means(self) -> dict[str, float | None]:
        """Return the means as they are recorded; None where there is nothing to average."""
        return {
            "objective": _mean(float(self.objective), self.objectives),
            "violation_rate": _mean(self.violations, self.samples),
            "running_accuracy": _mean(self.correct, self.samples),
        }

    def clear(self) -> None:
        """Reset the sums after a record."""
        self.__init__()  # type: ignore[misc]

    def state_dict(self) -> StateDict:
        # a copy, since the parts of Algorithm 4 share a tally
        return {**super().state_dict(), "objective": self.objective.clone()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        self.correct = 0 if saved.get("correct") is not None else None
        super().load_state_dict(saved)
        if not 0 <= max(self.correct or 0, self.violations) <= self.samples <= 2**53 >= self.objectives:
            raise ValueError(f"{self.correct} correct and {self.violations} violations of {self.samples}")


def _mean(total: int | float | None, count: int) -> float | None:
    return None if total is None or not count or not math.isfinite(total) else total / count
