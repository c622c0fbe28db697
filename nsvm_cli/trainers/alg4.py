"""Algorithm 4: align the kernel, then train an SVM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import pydantic
import torch
from torch import Tensor

from nsvm_cli.config.registry import STRICT, Positive, entry_of
from nsvm_cli.errors import NotFiniteError
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.models.objectives import LOSSES, alignment
from nsvm_cli.storage.state_dict import RESTORED
from nsvm_cli.trainers.base import BatchSize, BatchTrainer, Problem, State, Steps, Trainer
from nsvm_cli.trainers.pegasos import Pegasos
from nsvm_cli.trainers.svc import SVC

SOLVERS: dict[str, Callable[[int, float], Trainer[Any]]] = {
    "pegasos": lambda steps, lam: Pegasos(steps, lam),
    "svc": lambda steps, lam: SVC(lam),
}
"""Solvers for the SVM of Part 2, from ``solver_steps`` and ``lam``: trainers that keep theta fixed."""


@dataclass(kw_only=True)
class Alg4State(State):
    """``part_2`` is the state of the solver, once Part 1 is done."""

    part_2: State | None = field(default=None, metadata=RESTORED)

    @property
    def part(self) -> int:
        return 2 if self.part_2 else 1

    @property
    def support_vectors(self) -> int:
        return self.part_2.support_vectors if self.part_2 else 0


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Alg4(BatchTrainer[Alg4State]):
    """Part 1 improves the kernel alignment in theta; Part 2 trains an SVM (paper, Algorithm 4).

    ``step`` implements one iteration of Part 1, and ``svm`` is the solver of Part 2. ``state.t`` counts the
    steps of Part 1, then those of the solver. It requires K(a, a) != 0.
    """

    steps: Steps
    batch_size: BatchSize = 16
    loss: Annotated[str, entry_of(LOSSES)] = "squared"
    solver: Annotated[str, entry_of(SOLVERS)] = "pegasos"
    solver_steps: Steps = 10000
    lam: Positive = 1e-4

    @property
    def svm(self) -> Trainer[Any]:
        """The solver of Part 2."""
        return SOLVERS[self.solver](self.solver_steps, self.lam)

    @property
    def total(self) -> int:
        return self.steps + self.svm.total

    @property
    def last_theta_step(self) -> int:
        return self.steps

    def check(self, problem: Problem, F: FeatureMap) -> None:
        super().check(problem, F)
        self.svm.check(problem, F)

    def start(self, problem: Problem, F: FeatureMap) -> Alg4State:
        return Alg4State(F=F, sampler=problem.sampler(self.k), t=0)

    def restore(self, problem: Problem, F: FeatureMap, saved: Mapping[str, Any]) -> Alg4State:
        state = super().restore(problem, F, saved)
        if saved["part_2"] is not None:
            state.part_2 = self.svm.restore(problem, F, saved["part_2"])
            state.part_2.tally = state.tally
        return state

    def advance(self, problem: Problem, state: Alg4State, until: int) -> None:
        super().advance(problem, state, min(until, self.steps))
        if state.t < until:
            self._advance_part_2(problem, state, until)

    def step(self, problem: Problem, state: Alg4State) -> None:
        K, L = problem.K, LOSSES[self.loss]
        t = state.t + 1
        A = torch.from_numpy(state.sampler(t)).to(problem.y.device)
        x_A, y_A = problem.at(A), problem.y[A]

        def objective(z: Tensor) -> tuple[Tensor, list[Tensor]]:
            """L(1, alignment); the factor 2 is due to the symmetry of K_A."""
            K_A = K(z, z)
            aligned, slope = alignment(K_A, y_A)
            loss, slope_loss = L(1.0, aligned)
            return loss, [2 * slope_loss * K.gradient(z, z, K_A, slope)]

        state.objective = state.F.descend([x_A], objective, t, self.last_theta_step)
        state.t = t

    def _advance_part_2(self, problem: Problem, state: Alg4State, until: int) -> None:
        if state.part_2 is None:
            state.part_2 = self.svm.start(problem, state.F)
            state.part_2.tally = state.tally
        try:
            self.svm.advance(problem, state.part_2, until - self.steps)
        except NotFiniteError as error:
            raise NotFiniteError(error.quantity, self.steps + error.step) from None
        state.violations, state.g = state.part_2.violations, state.part_2.g
        state.objective = None  # theta is fixed from now on
        state.t = until

    def classifies(self, state: Alg4State) -> bool:
        return state.part_2 is not None or state.t == self.total

    def finish(self, problem: Problem, state: Alg4State) -> Expansion:
        """Return the expansion of Part 2; during Part 1, that of a Part 2 started now."""
        return self.svm.finish(problem, state.part_2 or self.svm.start(problem, state.F))
