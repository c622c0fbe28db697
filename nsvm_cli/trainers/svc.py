"""The SVM on fixed features by its dual problem: C-SVC, and epsilon-SVR for real targets."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pydantic
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from nsvm_cli.config.registry import STRICT, Positive
from nsvm_cli.errors import InputError, NotFiniteError
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.losses import EpsilonInsensitive, Hinge, OneVsRest
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.models.optimizers import SGD
from nsvm_cli.output import say
from nsvm_cli.storage.state_dict import NOT_SAVED, RESTORED
from nsvm_cli.tasks import Classification
from nsvm_cli.trainers.base import Problem, State, Trainer
from nsvm_cli.trainers.direct import Grid, expect_loss, expect_searchable, searched, svm_score
from nsvm_cli.trainers.dual import Dual, DualState, classification, regression, smo_step

STEPS = 100
"""The steps of a run; each closes the gap by the same factor."""

MOST = 10**7
"""The most steps of SMO for an SVM. With lambda near 0, its dual value would grow almost without end."""

PATIENCE, LEAST = 1000, 1e-12
"""SMO by the book gives up after so many steps in which the dual value did not grow by this share of it."""

PAUSE_SECONDS = 0.2
"""Seconds after which ``advance`` returns within a step, so that the loop can check for signals."""


@dataclass
class Part:
    """One of the SVMs of a problem: the samples j that it is trained on, their dual problem, and the state
    that its solver begins with, and changes.
    """

    j: Int64[np.ndarray, " n"]
    dual: Dual
    state: DualState


@dataclass(kw_only=True)
class SVCState(State):
    """The first ``solved`` of the ``parts`` are done; ``dual`` is the state of the next one, and ``solver``
    takes its iterations. ``widest`` is the largest gap of its KKT conditions so far, and ``closest`` the
    smallest one since; ``unclosed`` is the largest gap at which a part ended without converging.

    ``beta`` holds sum_k y_k a_k for each sample of each part, one part after the other, and ``bias``, ``gap``
    and ``value`` those of each part (see ``Dual``), at the latest pause.
    """

    z: Float[Tensor, "m n"] = field(metadata=NOT_SAVED)
    parts: list[Part] = field(metadata=NOT_SAVED)
    beta: Float64[np.ndarray, " all"]
    bias: Float64[np.ndarray, " parts"]
    gap: Float64[np.ndarray, " parts"]
    value: Float64[np.ndarray, " parts"]
    scale: float = field(metadata=NOT_SAVED)
    solved: int = 0
    widest: float = 0.0
    closest: float = 0.0
    unclosed: float = 0.0
    dual: DualState | None = field(default=None, metadata=RESTORED)
    solver: Any = field(default=None, metadata=NOT_SAVED)

    @property
    def support_vectors(self) -> int:
        j = np.concatenate([part.j for part in self.parts])
        return len(np.unique(j[self.beta != 0]))

    def beta_of(self, r: int) -> Float64[np.ndarray, " n"]:
        """Return the numbers of part r in ``beta``, which may be changed."""
        begin = sum(len(part.j) for part in self.parts[:r])
        return self.beta[begin : begin + len(self.parts[r].j)]

    @property
    def figures(self) -> dict[str, Any]:
        """The value of the dual problem and that of the objective minus it, sums over all parts."""
        done = self.solved + (self.dual is not None)
        gap = float(self.gap[:done].sum()) if done == len(self.parts) else None
        return {"dual_value": self.scale * float(self.value.sum()), "duality_gap": gap and self.scale * gap}

    def note(self) -> None:
        """Store the results so far of the part that is being solved."""
        problem, state, r = self.parts[self.solved].dual, self.dual, self.solved
        assert state is not None
        beta = self.beta_of(r)
        beta[:] = np.bincount(problem.s, problem.y * state.alpha)[: len(beta)]
        self.bias[r], self.gap[r] = problem.bias(state), problem.gap(state)
        self.value[r] = problem.value(state)


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class SVC(Trainer[SVCState]):
    """The optimum of the SVM on z_j = F_theta(x_j), with C = 1/(lambda m), by its dual problem::

        min lambda/2 ||f||^2 + 1/m sum_j w_j l_j

    f has a bias of its own, unless ``bias`` is false: it is then what kernelized Pegasos tends to. Several
    classes are told apart in pairs, or with ``multiclass=one_vs_rest`` each from the rest, by one SVM after
    another. Step t ends when the gap has come t/100 of the way from its largest value to ``tol``, by its
    logarithm; of several SVMs, when that share of all is done.
    """

    moves_theta = False
    own_steps = True

    lam: Positive = 1e-4
    tol: Positive = 1e-3
    bias: bool = True
    grid: Grid | None = None

    @property
    def total(self) -> int:
        return STEPS

    def C(self, problem: Problem) -> float:
        """Return 1/(lambda m)."""
        return min(1 / self.lam / len(problem.y), 1e100)

    def check(self, problem: Problem, F: FeatureMap) -> None:
        super().check(problem, F)
        expect_loss("svc", problem, Hinge, EpsilonInsensitive)
        known = ["C", *["gamma"] * hasattr(problem.K, "gamma")]
        known += ["epsilon"] * isinstance(problem.loss.l, EpsilonInsensitive)
        expect_searchable("svc", self.grid, known)

    def search(self, problem: Problem, F: FeatureMap) -> tuple[dict[str, Any], dict[str, Any]] | None:
        return searched(self.grid, problem, F, partial(svm_score, self, solve=Path())) if self.grid else None

    def start(self, problem: Problem, F: FeatureMap) -> SVCState:
        z = F(problem.x)
        if not problem.K.diag(z.double()).isfinite().all():
            raise NotFiniteError("a kernel value", 1)
        parts = self.parts_of(problem)
        bias, gap, value = np.zeros((3, len(parts)))
        state = SVCState(
            F=F,
            sampler=problem.sampler(),
            t=0,
            z=z,
            parts=parts,
            beta=np.zeros(sum(len(part.j) for part in parts)),
            bias=bias,
            gap=gap,
            value=value,
            scale=self.lam,
        )
        state.dual = parts[0].state
        return state

    def parts_of(self, problem: Problem) -> list[Part]:
        """Return the SVMs of a problem; y is positive for the second of two classes, and the first of a pair.

        Raises:
            InputError: some class has no training sample.
        """
        y, m, task = problem.host_y, len(problem.y), problem.task
        C = self.C(problem) * (np.ones(m) if problem.weights is None else problem.weights)
        everyone, classes = np.arange(m), range(len(task.classes))

        def apart(y: Float64[np.ndarray, " n"], j: Int64[np.ndarray, " n"] = everyone) -> Part:
            dual = classification(y, C[j], self.bias)
            return Part(j, dual, dual.start())

        if not isinstance(task, Classification):
            assert isinstance(problem.loss.l, EpsilonInsensitive)
            dual = regression(y, problem.loss.l.epsilon, C, self.bias)
            return [Part(everyone, dual, dual.start())]
        if len(np.unique(y)) < len(classes):
            raise InputError("svc needs training samples of every class")
        if not task.outputs:
            return [apart(y)]
        if isinstance(problem.loss, OneVsRest):
            return [apart(np.where(y == r, 1.0, -1.0)) for r in classes]
        pairs = [(r, np.flatnonzero((y == r) | (y == q))) for r, q in combinations(classes, 2)]
        return [apart(np.where(y[j] == r, 1.0, -1.0), j) for r, j in pairs]

    def step(self, problem: Problem, state: SVCState) -> None:
        t = state.t
        while state.t == t:
            self.advance(problem, state, t + 1)

    def advance(self, problem: Problem, state: SVCState, until: int) -> None:
        """Iterate until step ``until`` has ended, or for a short time."""
        began = time.monotonic()
        while state.t < until:
            if (reached := self._reached(state)) > state.t:
                state.t = min(until, reached)
            elif time.monotonic() - began > PAUSE_SECONDS:
                break
            else:
                self._iterate(problem, state)
        if state.dual is not None:
            state.note()

    def _reached(self, state: SVCState) -> int:
        """Return the last step whose end has been reached."""
        share = 0.0
        if state.closest < state.widest:
            closest = max(state.closest, self.tol)
            share = min(math.log(closest / state.widest) / math.log(self.tol / state.widest), 0.99)
        return int(STEPS * (state.solved + share) / len(state.parts))

    def _iterate(self, problem: Problem, state: SVCState) -> None:
        """Take an iteration of the solver, and go on to the next part after the last one."""
        part, dual = state.parts[state.solved], state.dual
        assert dual is not None
        if state.solver is None:
            state.solver = self.solver(
                problem, state.z[torch.from_numpy(part.j).to(state.z.device)], part.dual
            )
        state.solver.step(dual)
        if dual.gap > state.widest:
            state.widest = state.closest = dual.gap
        state.closest = min(state.closest, dual.gap)
        if not (dual.done or dual.steps >= MOST):
            return
        state.note()
        if dual.status(self.tol) != "converged":
            state.unclosed = max(state.unclosed, dual.gap)
        state.solved += 1
        self._go_on(state, part)

    def _go_on(self, state: SVCState, solved: Part) -> None:
        """Begin the next part, with the rows of the last one if it has the same samples, or end."""
        state.dual = None
        state.widest = state.closest = 0.0
        if state.solved < len(state.parts):
            part = state.parts[state.solved]
            state.dual = part.state
            state.solver = replace(state.solver, dual=part.dual) if part.j is solved.j else None
        elif state.unclosed:
            say(
                f"svc stopped at a gap of {state.unclosed:.2g}, where it expects {self.tol:g}: raise "
                f"algorithm.lam={self.lam:g}, or use pegasos"
            )

    def solver(self, problem: Problem, z: Float[Tensor, "n d"], dual: Dual) -> Any:
        """Return what takes the iterations for a part, of features z: SMO by the book.

        Raises:
            InputError: the kernel matrix takes more than the memory budget.
        """
        needed = len(z) ** 2 * 8 / 2**20
        if needed > problem.memory_budget:
            raise InputError(
                f"svc needs the {len(z)} x {len(z)} kernel matrix here, {needed:.1f} MiB of "
                f"memory_budget={problem.memory_budget}: pip install 'nsvm[fast]', or use pegasos"
            )
        K = problem.K(z, z).double().cpu().numpy()
        return Book(dual, np.pad(K, (0, int(dual.s.max()) + 1 - len(z))), self.tol)

    def finish(self, problem: Problem, state: SVCState) -> Expansion:
        z = state.z
        alpha = np.zeros((len(z), len(state.parts)))
        for r, part in enumerate(state.parts):
            alpha[part.j, r] = state.beta_of(r)
        support = np.flatnonzero(alpha.any(1))
        j, alpha_j = torch.from_numpy(support).to(z.device), torch.from_numpy(alpha[support]).to(z)
        if not problem.task.outputs:
            return Expansion(z[j], alpha_j[:, 0], 1.0, float(state.bias[0]), i=j)
        pairs = not isinstance(problem.loss, OneVsRest)
        return Expansion(z[j], alpha_j, 1.0, torch.from_numpy(state.bias).to(z), one_vs_one=pairs, i=j)

    def solve(self, problem: Problem, z: Float[Tensor, "m n"]) -> Expansion:
        """Return the SVM on the features z, (m, n), of the training samples."""
        problem = replace(problem, x=z)
        return self.finish(problem, self.solved(problem))

    def solved(self, problem: Problem, earlier: SVCState | None = None) -> SVCState:
        """Return the state at the end, for samples that are features, beginning where that of the same
        samples and kernel with another lambda or epsilon has ended.
        """
        state = self.start(problem, FeatureMap(nn.Identity(), SGD(1.0), problem.seed))
        if earlier:
            for part, other in zip(state.parts, earlier.parts, strict=True):
                part.state = part.dual.after(other.dual, other.state)
            state.dual = state.parts[0].state
            if np.array_equal(state.parts[0].j, earlier.parts[-1].j):
                state.solver = replace(earlier.solver, dual=state.parts[0].dual)
        return self.complete(problem, state)

    def restore(self, problem: Problem, F: FeatureMap, saved: Mapping[str, Any]) -> SVCState:
        state = super().restore(problem, F, saved)
        if not 0 <= state.solved <= len(state.parts):
            raise ValueError(f"{state.solved} of {len(state.parts)} SVMs are solved")
        last = state.solved == len(state.parts)
        if last != (saved["dual"] is None):
            raise ValueError("expected the state of the SVM that is being solved")
        state.dual = None if last else state.parts[state.solved].dual.restored(saved["dual"])
        return state


@dataclass
class Path:
    """Solve one problem after another: with the samples and kernel of the one before, from where it ended."""

    latest: tuple[Problem, SVCState] | None = None

    def __call__(self, svm: SVC, problem: Problem) -> Expansion:
        earlier = None
        if self.latest and self.latest[0].x is problem.x and self.latest[0].K == problem.K:
            earlier = self.latest[1]
        self.latest = problem, svm.solved(problem, earlier)
        return svm.finish(*self.latest)


@dataclass(frozen=True)
class Book:
    """SMO by the book, an iteration a step; K is that of all samples."""

    dual: Dual
    K: Float64[np.ndarray, "n n"]
    tol: float

    def step(self, state: DualState) -> None:
        smo_step(self.dual, state, self.K, self.tol)
        if (value := self.dual.value(state)) > state.best + LEAST * abs(value):
            state.best, state.since = value, state.steps
        elif state.steps - state.since > PATIENCE:
            state.done = 1
