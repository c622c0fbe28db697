"""The SVM on fixed features, solved in its dual form: C-SVC, and epsilon-SVR for real targets."""

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
from torch.nn import functional

from nsvm_cli.config.registry import STRICT, Positive
from nsvm_cli.errors import InputError, NotFiniteError
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.losses import EpsilonInsensitive, Hinge, OneVsRest, Squared, SquaredHinge
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.models.optimizers import SGD
from nsvm_cli.output import say
from nsvm_cli.storage.state_dict import NOT_SAVED, StateDict, loaded_value
from nsvm_cli.tasks import Classification
from nsvm_cli.trainers.base import Problem, State, Trainer
from nsvm_cli.trainers.direct import Grid, expect_loss, expect_searchable, grid_search, svm_score
from nsvm_cli.trainers.dual import Dual, DualState, ReferenceSMO, classification, regression

SUPPORTED = (Hinge, SquaredHinge, EpsilonInsensitive, Squared)
"""The losses with a dual problem in the form of ``Dual``."""

STEPS = 100
"""Number of steps of a run. Each step reduces the gap by the same factor."""

STEP_SECONDS = 0.2
"""Number of seconds after which ``advance`` returns within a step, so that the loop can check for signals."""


def shifted(x: Float[Tensor, "p c h w"]) -> list[Float[Tensor, "p c h w"]]:
    """Return four copies of images, shifted by one pixel down, up, right and left; the edge is repeated."""
    h, w = x.shape[2:]
    padded = functional.pad(x, (1, 1, 1, 1), mode="replicate")
    return [padded[:, :, a : a + h, b : b + w] for a, b in ((0, 1), (2, 1), (1, 0), (1, 2))]


@dataclass
class SVM:
    """One of the SVMs of a problem: its training samples j, their dual problem, and its solver's state."""

    j: Int64[np.ndarray, " n"]
    dual: Dual
    state: DualState = field(init=False)

    def __post_init__(self) -> None:
        self.state = self.dual.start()
        self.update_results()

    def update_results(self) -> None:
        dual, state = self.dual, self.state
        self.beta = dual.beta(state)[: len(self.j)]  # sum_k y_k a_k for each sample
        self.bias, self.gap = dual.bias_and_gap(state)
        self.value = dual.value(state)


class SVMs(list[SVM]):
    """The SVMs of a problem. The state dict has one tensor per field, which joins the values of all SVMs."""

    def state_dict(self) -> StateDict:
        states = [vars(svm.state) for svm in self]
        fields = {name: [np.atleast_1d(state[name]) for state in states] for name in states[0]}
        return {name: torch.from_numpy(np.concatenate(values)) for name, values in fields.items()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        for name, joined in loaded_value("parts", self.state_dict(), saved).items():
            values = [vars(svm.state)[name] for svm in self]
            pieces = joined.split([*map(np.size, values)])
            for svm, value, piece in zip(self, values, pieces, strict=True):
                loaded = piece.clone().numpy() if isinstance(value, np.ndarray) else piece.item()
                setattr(svm.state, name, loaded)
        for svm in self:
            svm.update_results()


class WarmStarts:
    """A function that trains SVMs, each from the previous solution if samples and kernel are the same."""

    latest: tuple[Problem, SVCState] | None = None

    def __call__(self, svm: SVC, problem: Problem) -> Expansion:
        start = None
        if self.latest and self.latest[0].x is problem.x and self.latest[0].K == problem.K:
            start = self.latest[1]
        self.latest = problem, svm.solved(problem, start)
        return svm.finish(*self.latest)


@dataclass(kw_only=True)
class SVCState(State):
    """The state of the SVMs ``parts``, which are solved one after another."""

    i: Int64[np.ndarray, " m"] = field(metadata=NOT_SAVED)  # the indices of the samples in the training set
    z: Float[Tensor, "m n"] = field(metadata=NOT_SAVED)
    parts: SVMs
    scale: float = field(metadata=NOT_SAVED)  # lambda, the ratio of the objectives of ``SVC`` and ``Dual``
    solved: int = 0  # number of SVMs that are done
    widest: float = 0.0  # largest gap of the KKT conditions so far, of the SVM being solved
    closest: float = 0.0  # smallest gap since ``widest``
    solver: Any = field(default=None, metadata=NOT_SAVED)  # solver of the SVM being solved

    @property
    def support_vectors(self) -> int:
        return len(np.unique(np.concatenate([svm.j[svm.beta != 0] for svm in self.parts])))

    @property
    def figures(self) -> dict[str, Any]:
        """The dual value and the duality gap, summed over all SVMs."""
        value, gap = sum(svm.value for svm in self.parts), sum(svm.gap for svm in self.parts)
        return {"dual_value": self.scale * value, "duality_gap": self.scale * gap}

    def take_over(self, solver: Any, j: Int64[np.ndarray, " n"]) -> None:
        """Reuse the kernel rows of an earlier solver for the next SVM if both have the same samples j."""
        svm = self.parts[self.solved]
        self.solver = replace(solver, dual=svm.dual) if np.array_equal(svm.j, j) else None


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class SVC(Trainer[SVCState]):
    """The SVM on the features z_j = F_theta(x_j), trained to its optimum by solving the dual problem::

        min_f  lambda/2 ||f||^2 + 1/m sum_j w_j l_j

    l_j is the loss of sample j, w_j is its weight, and C = 1/(lambda m). The loss is the hinge loss or its
    square or, for real targets, the epsilon-insensitive or squared loss. f has an unregularised bias, unless
    ``bias`` is false. Without a bias, f is the limit of kernelized Pegasos. For more than two classes, an SVM
    is trained for each pair of classes or, with ``multiclass=one_vs_rest``, for each class against the rest.
    lambda=None means 1/m, for which C = 1.

    With ``virtual``, a second SVM is trained on the support vectors and on copies of their images, shifted by
    one pixel in four directions (virtual support vectors; DeCoste and Schölkopf 2002). An image and its
    copies share its weight, so that l_j becomes the mean of their losses.

    Step t ends when the logarithm of the gap has covered t/100 of the distance from its largest value to the
    logarithm of ``tol``. With several SVMs, it ends when t/100 of all distances are covered.
    """

    moves_theta = False
    chooses_steps = True
    growth = 2

    lam: Positive | None = None  # type: ignore[assignment]  # a number in training
    tol: Positive = 1e-3
    bias: bool = True
    grid: Grid | None = None
    virtual: bool = False

    @property
    def total(self) -> int:
        return STEPS

    def for_samples(self, m: int) -> SVC:
        return replace(self, lam=1 / m) if self.lam is None else self

    def C(self, problem: Problem) -> float:
        """Return 1/(lambda m)."""
        m = len(problem.y)
        return min(1 / (self.lam or 1 / m) / m, 1e100)

    def check(self, problem: Problem, F: FeatureMap) -> None:
        super().check(problem, F)
        expect_loss(self.name, problem, *SUPPORTED)
        if self.virtual and len(shape := problem.x.shape[1:]) != 3:
            raise InputError(f"algorithm.virtual requires images, got samples of shape {[*shape]}")
        searchable = ["C", *["gamma"] * hasattr(problem.K, "gamma")]
        searchable += ["epsilon"] * isinstance(problem.loss.l, EpsilonInsensitive)
        expect_searchable(self.name, self.grid, searchable)

    def search(self, problem: Problem, F: FeatureMap) -> tuple[dict[str, Any], dict[str, Any]] | None:
        score = partial(svm_score, self, solve=WarmStarts())
        return grid_search(self.grid, problem, F, score) if self.grid else None

    def start(self, problem: Problem, F: FeatureMap) -> SVCState:
        m, z, sampler = len(problem.y), F(problem.x), problem.sampler()
        i = np.arange(m)
        if self.virtual:
            i, problem = self._with_copies(problem, F, z)
            z = problem.x
        parts = SVMs(self._svms(problem))
        return SVCState(F=F, sampler=sampler, t=0, i=i, z=z, parts=parts, scale=self.lam or 1 / m)

    def _with_copies(
        self, problem: Problem, F: FeatureMap, z: Float[Tensor, "m n"]
    ) -> tuple[Int64[np.ndarray, " s"], Problem]:
        """Return the indices i of the support vectors and their copies, and the problem of their features."""
        first = self.solve(problem, z)
        if first.i is None or not len(first.i):
            return np.arange(len(z)), replace(problem, x=z)
        j = first.i.cpu().numpy()
        copies = [z[first.i], *map(F, shifted(problem[j][0].x))]
        reduced = problem.of(i := np.tile(j, len(copies)), torch.cat(copies))
        share = self.C(problem) / self.C(reduced) / len(copies)
        w = np.ones(len(i)) if reduced.weights is None else reduced.weights
        return i, replace(reduced, weights=share * w)

    def _svms(self, problem: Problem) -> list[SVM]:
        """Return the SVMs of a problem.

        In classification, y = +1 for the second of two classes, for the first class of a pair, or for the
        class that is separated from the rest.
        """
        y, m, task, l = problem.host_y, len(problem.y), problem.task, problem.loss.l  # noqa: E741
        C = self.C(problem) * (np.ones(m) if problem.weights is None else problem.weights)
        all_samples, classes = np.arange(m), range(len(task.classes))

        def classifier(y: Float64[np.ndarray, " n"], j: Int64[np.ndarray, " n"] = all_samples) -> SVM:
            return SVM(j, classification(y, C[j], self.bias, l.curvature))

        if not isinstance(task, Classification):
            epsilon = l.epsilon if isinstance(l, EpsilonInsensitive) else 0.0
            return [SVM(all_samples, regression(y, epsilon, C, self.bias, l.curvature))]
        if not task.outputs:
            return [classifier(y)]
        if isinstance(problem.loss, OneVsRest):
            return [classifier(np.where(y == r, 1.0, -1.0)) for r in classes]
        pairs = [(r, np.flatnonzero((y == r) | (y == q))) for r, q in combinations(classes, 2)]
        return [classifier(np.where(y[j] == r, 1.0, -1.0), j) for r, j in pairs]

    def step(self, problem: Problem, state: SVCState) -> None:
        t = state.t
        while state.t == t:
            self.advance(problem, state, t + 1)

    def advance(self, problem: Problem, state: SVCState, until: int) -> None:
        """Iterate until step ``until`` has ended, but not much longer than ``STEP_SECONDS``."""
        start = time.monotonic()
        while state.t < until:
            if (reached := self._reached(state)) > state.t:
                state.t = min(until, reached)
            elif time.monotonic() - start > STEP_SECONDS:
                break
            else:
                self._iterate(problem, state)
        if state.solved < len(state.parts):
            state.parts[state.solved].update_results()

    def _reached(self, state: SVCState) -> int:
        """Return the last step that has ended."""
        fraction = 0.0
        if state.closest < state.widest:
            closest = max(state.closest, self.tol)
            fraction = min(math.log(closest / state.widest) / math.log(self.tol / state.widest), 0.99)
        return int(STEPS * (state.solved + fraction) / len(state.parts))

    def _iterate(self, problem: Problem, state: SVCState) -> None:
        """Take an iteration of the solver, and continue with the next SVM if the current SVM is done."""
        svm = state.parts[state.solved]
        if state.solver is None:
            z = state.z[torch.from_numpy(svm.j).to(state.z.device)]
            if not problem.K.diag(z).isfinite().all():
                raise NotFiniteError("a kernel value", state.t + 1)
            state.solver = self.solver(problem, z, svm.dual)
        state.solver.step(svm.state)
        if not (gap := svm.state.gap) < math.inf:
            raise NotFiniteError("the gap of the KKT conditions", state.t + 1)
        if gap > state.widest:
            state.widest = state.closest = gap
        state.closest = min(state.closest, gap)
        if not svm.state.done:
            return
        svm.update_results()
        state.solved += 1
        state.widest = state.closest = 0.0
        if state.solved < len(state.parts):
            state.take_over(state.solver, svm.j)
        elif (gap := max(svm.state.gap for svm in state.parts)) >= self.tol:
            exact = "dtype=float64 or " if state.z.dtype == torch.float32 else ""
            say(
                f"{self.name} stopped at a gap of {gap:.2g}, above tol={self.tol:g}; set "
                f"algorithm.lam above {self.lam:g}, or use {exact}pegasos"
            )

    def solver(self, problem: Problem, z: Float[Tensor, "n d"], dual: Dual) -> Any:
        """Return the solver of one SVM on features z. Raise an InputError if it needs too much memory."""
        needed = len(z) ** 2 * 8 / 2**20
        if needed > problem.memory_budget:
            raise InputError(
                f"{self.name} without Numba requires {needed:.1f} MiB for the {len(z)} x {len(z)} kernel "
                f"matrix, more than memory_budget={problem.memory_budget}; run pip install 'nsvm[fast]', or "
                "use pegasos"
            )
        K = problem.K(z.double(), z.double()).cpu().numpy()
        return ReferenceSMO(dual, np.pad(K, (0, int(dual.s.max()) + 1 - len(z))), self.tol, z.dtype)

    def finish(self, problem: Problem, state: SVCState) -> Expansion:
        z = state.z
        alpha = np.zeros((len(z), len(state.parts)))
        for r, svm in enumerate(state.parts):
            alpha[svm.j, r] = svm.beta
        support = np.flatnonzero(alpha.any(1))
        j, i = (torch.from_numpy(rows).to(z.device) for rows in (support, state.i[support]))
        alpha_j = torch.from_numpy(alpha[support]).to(z)
        if not problem.task.outputs:
            return Expansion(z[j], alpha_j[:, 0], 1.0, state.parts[0].bias, i=i)
        bias = z.new_tensor([svm.bias for svm in state.parts])
        one_vs_one = not isinstance(problem.loss, OneVsRest)
        return Expansion(z[j], alpha_j, 1.0, bias, one_vs_one=one_vs_one, i=i)

    def solve(self, problem: Problem, z: Float[Tensor, "m n"]) -> Expansion:
        """Return the SVM trained on the features z of the training samples."""
        problem = replace(problem, x=z)
        return self.finish(problem, self.solved(problem))

    def solved(self, problem: Problem, earlier: SVCState | None = None) -> SVCState:
        """Return the final state for a problem whose samples are features, without copies of samples.

        ``earlier`` is the final state of a problem with the same samples and kernel, from which to start.
        """
        features = FeatureMap(nn.Identity(), SGD(1.0), problem.seed)
        state = replace(self, virtual=False).start(problem, features)
        if earlier:
            for svm, other in zip(state.parts, earlier.parts, strict=True):
                svm.state = svm.dual.warm_start(other.dual, other.state)
            state.take_over(earlier.solver, earlier.parts[-1].j)
        return self.complete(problem, state)

    def restore(self, problem: Problem, F: FeatureMap, saved: Mapping[str, Any]) -> SVCState:
        state = super().restore(problem, F, saved)
        if not 0 <= state.solved <= len(state.parts):
            raise ValueError(f"expected 0 to {len(state.parts)} solved SVMs, got {state.solved}")
        return state
