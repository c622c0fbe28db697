"""Algorithm 4: align the kernel, then train an SVM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any

import pydantic
from torch import Tensor

from nsvm_cli.config.registry import STRICT, Count, Positive, entry_of
from nsvm_cli.errors import InputError, NotFiniteError
from nsvm_cli.models.feature_map import FeatureMap, Training
from nsvm_cli.models.kernels import Kernel
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.models.objectives import KERNEL_OBJECTIVES
from nsvm_cli.storage.state_dict import RESTORED
from nsvm_cli.trainers.base import BatchSize, BatchTrainer, PairedBatchSize, Problem, State, Trainer
from nsvm_cli.trainers.direct import LinearSVM
from nsvm_cli.trainers.means import MeanTheta, Share
from nsvm_cli.trainers.nystroem import Nystroem
from nsvm_cli.trainers.pegasos import Pegasos
from nsvm_cli.trainers.svc import SVC

Objective = Annotated[str, entry_of(KERNEL_OBJECTIVES)]

SOLVERS: dict[str, Callable[[int, float, int | None], Trainer[Any]]] = {
    "pegasos": Pegasos,
    "svc": lambda steps, lam, k: SVC(lam),
    "linear": lambda steps, lam, k: LinearSVM(lam),
    "nystroem": lambda steps, lam, k: Nystroem(lam),
}
"""Functions that return the solver of Part 2, given the number of steps, ``lam`` and the batch size."""

LAM = 1e-4
"""The default of lambda in Part 2."""

MAX_SVC_SAMPLES = 100_000
"""Maximum number of samples for which ``solver=None`` means svc, whose training time grows quadratically."""


@dataclass(kw_only=True)
class Alg4State(State):
    """The state of Part 1 and, once Part 1 is done, the state ``part_2`` of the solver."""

    part_2: State | None = field(default=None, metadata=RESTORED)

    @property
    def part(self) -> int:
        return 2 if self.part_2 else 1

    @property
    def support_vectors(self) -> int:
        return self.part_2.support_vectors if self.part_2 else 0

    @property
    def figures(self) -> dict[str, Any]:
        return self.part_2.figures if self.part_2 else {}


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Alg4(BatchTrainer[Alg4State]):
    """Part 1 trains theta to align the kernel with the labels; Part 2 trains an SVM (paper, Algorithm 4).

    ``loss`` is the objective of Part 1 by its name in ``KERNEL_OBJECTIVES``; ``leave_one_out`` is not in the
    paper. K(a, a) must not be 0. ``solver=None`` means svc or, for more than ``MAX_SVC_SAMPLES`` samples,
    nystroem. ``solver_batch_size`` is the batch size of Pegasos in Part 2. ``average`` is the fraction of
    Part 1, at its end, over which theta is averaged. ``centred`` sets whether the alignment is centred; None
    means the default of the task. ``virtual`` is a setting of the solver svc.

    By default, the two parts take the numbers of steps in ``split``. If ``steps`` is set, it is the total
    number of steps, which is split in the proportion of ``split``. If ``solver_steps`` is set too, Part 1
    takes ``steps`` and Part 2 takes ``solver_steps``.
    """

    steps: Count | None = None  # type: ignore[assignment]
    batch_size: PairedBatchSize = 16
    loss: Objective = "squared"
    solver: Annotated[str, entry_of(SOLVERS)] | None = "pegasos"
    solver_steps: Count | None = None
    lam: Positive = LAM
    split: tuple[Count, Count] = (10000, 10000)
    centred: bool | None = None
    average: Share | None = None
    solver_batch_size: BatchSize | None = None
    epochs: Positive | None = None
    virtual: bool = False

    @cached_property
    def part_steps(self) -> tuple[int, int]:
        part_1, part_2 = self.steps or self.split[0], self.solver_steps or self.split[1]
        if (solver := self._solver(part_2)).chooses_steps:
            return part_1, solver.total
        if self.steps and not self.solver_steps:
            rounded = round(self.steps * self.split[0] / sum(self.split))
            part_1 = min(max(rounded, 1), self.steps - 1)
            part_2 = self.steps - part_1
        return part_1, part_2

    @property
    def svm(self) -> Trainer[Any]:
        """The solver of Part 2."""
        return self._solver(self.part_steps[1])

    @property
    def parts(self) -> tuple[Trainer[Any], ...]:
        return (self, self.svm)

    def _solver(self, steps: int) -> Trainer[Any]:
        solver = SOLVERS[self.solver or "svc"](steps, self.lam or LAM, self.solver_batch_size)
        return replace(solver, virtual=self.virtual) if isinstance(solver, SVC) else solver

    @property
    def total(self) -> int:
        return sum(self.part_steps)

    def for_samples(self, m: int) -> BatchTrainer[Alg4State]:
        changes: dict[str, Any] = {"solver": self.solver or ("nystroem" if m > MAX_SVC_SAMPLES else "svc")}
        changes["solver_batch_size"] = self.solver_batch_size and min(self.solver_batch_size, m)
        if self.epochs and self.last_theta_step:
            changes["solver_steps"] = self.part_steps[1] or None
        return replace(super().for_samples(m), **changes)  # type: ignore[type-var]  # a dataclass

    def check(self, problem: Problem, F: FeatureMap) -> None:
        super().check(problem, F)
        if self.virtual and not isinstance(self.svm, SVC):
            raise InputError("algorithm.virtual requires algorithm.solver=svc")
        self.svm.check(replace(problem, penalties={}), F)

    def start(self, problem: Problem, F: FeatureMap) -> Alg4State:
        mean = MeanTheta(F, self.average, self.last_theta_step) if self.average else None
        return Alg4State(F=F, sampler=problem.sampler(self.k), t=0, mean=mean)

    def restore(self, problem: Problem, F: FeatureMap, saved: Mapping[str, Any]) -> Alg4State:
        state = super().restore(problem, F, saved)
        if saved["part_2"] is not None:
            state.part_2 = self.svm.restore(problem, F, saved["part_2"])
            state.part_2.tally = state.tally
        part_1 = state.t - (state.part_2.t if state.part_2 else 0)
        if part_1 > self.last_theta_step or (state.part_2 and part_1 < self.last_theta_step):
            raise ValueError(
                f"expected {part_1} steps of Part 1, as in the checkpoint, got {self.last_theta_step}; set "
                f"algorithm.steps={part_1}, and set the steps of Part 2 with algorithm.solver_steps"
            )
        return state

    def step(self, problem: Problem, state: Alg4State) -> None:
        if state.t >= self.last_theta_step:
            self._advance_part_2(problem, state, state.t + 1)
            return
        L, t = KERNEL_OBJECTIVES[self.loss], state.t + 1
        A = state.sampler(t)  # choose A_t
        x_A, y_A = problem[A]
        c_A, w_A = problem.task.code(y_A), problem.w(A)
        centred = problem.task.centred if self.centred is None else self.centred

        def objective(F: Training, K: Kernel) -> Tensor:
            z = F(x_A)
            return L(K(z, z), c_A, centred, w_A)

        self.descend(problem, state, objective)
        state.t = t

    def advance(self, problem: Problem, state: Alg4State, until: int) -> None:
        super().advance(problem, state, min(until, self.last_theta_step))
        if state.t < until:
            self._advance_part_2(problem, state, until)

    def _advance_part_2(self, problem: Problem, state: Alg4State, until: int) -> None:
        if state.part_2 is None:
            state.part_2 = self.svm.start(problem, state.F)
            state.part_2.tally = state.tally
        try:
            self.svm.advance(problem, state.part_2, until - self.last_theta_step)
        except NotFiniteError as error:
            raise NotFiniteError(error.quantity, self.last_theta_step + error.step) from None
        state.violations, state.g = state.part_2.violations, state.part_2.g
        state.objective = None  # theta is fixed from now on
        state.t = self.last_theta_step + state.part_2.t

    def finish(self, problem: Problem, state: Alg4State) -> Expansion:
        """Return the expansion of Part 2. If Part 2 has not begun yet, it begins with the current theta."""
        part_2 = state.part_2
        if part_2 is None:
            part_2 = self.svm.start(problem, state.F)
            if self.svm.chooses_steps:
                self.svm.complete(problem, part_2)
        return self.svm.finish(problem, part_2)
