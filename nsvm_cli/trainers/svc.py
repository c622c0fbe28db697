"""scikit-learn's SVMs as solvers for Part 2 of Algorithm 4: the dual approach, which the paper allows."""

from __future__ import annotations

import itertools
import warnings
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import pydantic
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from nsvm_cli.config.registry import STRICT, Positive
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernel_gradients import WithGradient
from nsvm_cli.models.kernels import RBF, Kernel, Linear, Polynomial
from nsvm_cli.models.losses import (
    LOSSES,
    CrammerSinger,
    EpsilonInsensitive,
    Formula,
    Hinge,
    OneVsRest,
    SquaredHinge,
)
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.models.objectives import KERNEL_ROWS, OVERFLOW
from nsvm_cli.output import say
from nsvm_cli.trainers.base import Problem, State, Trainer

MAX_EPOCHS = 10_000
"""The most passes of LIBLINEAR over the samples; a solver that needs more says so."""

MAX_ITERATIONS = 10**6
"""The most iterations of LIBSVM, each of which changes two coefficients, or 10 m if that is more. Without a
limit it would not end for C = 1e9."""


class DirectSolver(Trainer[State]):
    """A solver without steps for the loop to drive: it runs in ``finish``, on z_j = F_theta(x_j).

    lambda/2 ||f||^2 + 1/m sum_j l_j is scikit-learn's objective with C = 1/(lambda m).
    """

    name: ClassVar[str]
    lam: float
    starts_with_features = True

    @property
    def total(self) -> int:
        return 0

    def start(self, problem: Problem, F: FeatureMap) -> State:
        return State(F=F, sampler=problem.sampler(), t=0)

    def step(self, problem: Problem, state: State) -> None:
        """Raise an error: there are no steps."""
        raise NotImplementedError

    def finish(self, problem: Problem, state: State) -> Expansion:
        return self.solve(problem, state.F(problem.x))

    @abstractmethod
    def solve(self, problem: Problem, z: Float[Tensor, "m n"]) -> Expansion:
        """Return the SVM trained on the features z, (m, n), of the training samples."""

    def fit(self, problem: Problem, machine: Any, x: np.ndarray) -> Any:
        """Return scikit-learn's machine, fitted with C = 1/(lambda m); warn if it has not converged."""
        from sklearn.exceptions import ConvergenceWarning

        limits = np.finfo(np.float64)  # the quotient may be 0 or infinite, which scikit-learn refuses
        machine.set_params(C=float(np.clip(1 / (self.lam * len(x)), limits.tiny, limits.max)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            machine.fit(x, problem.y.cpu().numpy())
        if np.max(machine.n_iter_) >= machine.max_iter:
            say(
                f"algorithm.solver={self.name} stopped after {machine.max_iter} iterations, before it "
                f"converged: raise algorithm.lam={self.lam:g}, or use algorithm.solver=pegasos"
            )
        return machine


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class SVC(DirectSolver):
    """The dual problem with a bias, solved to scikit-learn's precision: SVC, or SVR for real targets.

    More than two classes are told apart in pairs, which is neither of the settings of ``multiclass``.
    """

    name: ClassVar[str] = "svc"
    lam: Positive = 1e-4

    def check(self, problem: Problem, F: FeatureMap) -> None:
        m = len(problem.y)
        needed = m * m * 8 / 2**20
        if needed > problem.memory_budget and not _scikit_learns_own(problem.K.without(WithGradient), n=1):
            raise InputError(
                f"algorithm.solver=svc needs the {m} x {m} kernel matrix with this kernel, {needed:.1f} MiB "
                f"of memory_budget={problem.memory_budget}: use algorithm.solver=pegasos, or kernel=rbf"
            )
        _expect_loss(problem, "svc", Hinge, EpsilonInsensitive)
        if isinstance(problem.loss, OneVsRest):
            raise InputError(
                "algorithm.solver=svc tells classes apart in pairs: for multiclass=one_vs_rest use "
                "algorithm.solver=pegasos, or linear"
            )

    def solve(self, problem: Problem, z: Float[Tensor, "m n"]) -> Expansion:
        from sklearn import svm  # slow to import, and needed only here

        K = problem.K.without(WithGradient)
        machine = svm.SVC
        settings: dict[str, Any] = {"max_iter": max(MAX_ITERATIONS, 10 * len(z))}
        if isinstance(problem.loss.l, EpsilonInsensitive):
            machine, settings["epsilon"] = svm.SVR, problem.loss.l.epsilon
        if own := _scikit_learns_own(K, z.shape[1]):
            points = z.double()
            if not K.diag(points).isfinite().all():  # |K(a, b)|^2 <= K(a, a) K(b, b)
                raise RunError(OVERFLOW)
            settings |= {"cache_size": problem.memory_budget, **own}
            svc = self.fit(problem, machine(**settings), points.cpu().numpy())
        else:
            svc = self.fit(problem, machine(kernel="precomputed", **settings), _gram(problem, z))
        j = torch.from_numpy(svc.support_).to(z.device, torch.int64)
        if problem.task.outputs:
            alpha = torch.from_numpy(_by_pairs(svc.dual_coef_, svc.n_support_)).to(z)
            return Expansion(z[j], alpha, 1.0, torch.from_numpy(svc.intercept_).to(z), one_vs_one=True, i=j)
        alpha = torch.from_numpy(svc.dual_coef_[0]).to(z)
        return Expansion(z[j], alpha, 1.0, float(svc.intercept_[0]), i=j)


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class LinearSVM(DirectSolver):
    """The primal problem in the weights of the linear kernel: LinearSVC, or LinearSVR for real targets.

    f(x) = <w, F_theta(x)>, so w is the only term: one for each class. SVC computes m^2 kernel values; this
    takes time in proportion to m.
    """

    name: ClassVar[str] = "linear"
    lam: Positive = 1e-4

    def check(self, problem: Problem, F: FeatureMap) -> None:
        K = problem.K.without(WithGradient)
        if type(K) is not Linear:
            raise InputError(
                f"algorithm.solver=linear expects kernel=linear, got {type(K).__name__.lower()}: "
                "use solver=svc or pegasos"
            )
        squared = [] if isinstance(problem.loss, CrammerSinger) else [SquaredHinge]
        _expect_loss(problem, "linear", Hinge, EpsilonInsensitive, *squared)

    def solve(self, problem: Problem, z: Float[Tensor, "m n"]) -> Expansion:
        from sklearn import svm

        l = problem.loss.l  # noqa: E741
        settings: dict[str, Any] = {"random_state": 0, "max_iter": MAX_EPOCHS}
        if isinstance(l, EpsilonInsensitive):
            machine = svm.LinearSVR(epsilon=l.epsilon, **settings)
        elif isinstance(problem.loss, CrammerSinger):
            machine = svm.LinearSVC(multi_class="crammer_singer", **settings)
        else:
            loss = "hinge" if isinstance(l, Hinge) else "squared_hinge"
            machine = svm.LinearSVC(loss=loss, dual="auto" if loss == "squared_hinge" else True, **settings)
        self.fit(problem, machine, z.double().cpu().numpy())
        w, b = np.atleast_2d(machine.coef_), np.atleast_1d(machine.intercept_)
        if problem.task.outputs:
            return Expansion(
                torch.from_numpy(w).to(z), torch.eye(len(w)).to(z), 1.0, torch.from_numpy(b).to(z)
            )
        return Expansion(torch.from_numpy(w).to(z), z.new_ones(1), 1.0, float(b[0]))


def _expect_loss(problem: Problem, solver: str, *supported: type[Formula]) -> None:
    if not isinstance(problem.loss.l, supported):
        name = next(name for name, formula in LOSSES.items() if type(problem.loss.l) is formula)
        raise InputError(f"algorithm.solver={solver} has no loss={name}: use algorithm.solver=pegasos")


def _by_pairs(
    dual_coef: Float64[np.ndarray, "others s"], support: np.ndarray
) -> Float64[np.ndarray, "s pairs"]:
    """Return the coefficients of each pair of classes, from SVC's, which has one row for each *other* class.

    Args:
        dual_coef: SVC's ``dual_coef_``; support vectors are sorted by class.
        support: how many of them belong to each class.
    """
    C = len(support)
    members = np.split(np.arange(dual_coef.shape[1]), np.cumsum(support)[:-1])
    alpha = np.zeros((dual_coef.shape[1], C * (C - 1) // 2))
    for pair, (i, j) in enumerate(itertools.combinations(range(C), 2)):
        alpha[members[i], pair] = dual_coef[j - 1, members[i]]
        alpha[members[j], pair] = dual_coef[i, members[j]]
    return alpha


def _scikit_learns_own(K: Kernel, n: int) -> dict[str, Any] | None:
    """Return scikit-learn's settings for a kernel that it can compute in blocks, or None."""
    # exact types, because a subclass is another kernel
    gamma = 1 / n if getattr(K, "gamma", None) is None else K.gamma  # type: ignore[attr-defined]
    if type(K) is RBF:
        return {"kernel": "rbf", "gamma": gamma}
    if type(K) is Linear:
        return {"kernel": "linear"}
    if type(K) is Polynomial:
        return {"kernel": "poly", "degree": K.degree, "gamma": gamma, "coef0": K.c}
    return None


def _gram(problem: Problem, z: Float[Tensor, "m n"]) -> Float64[np.ndarray, "m m"]:
    """Return the kernel matrix, (m, m); ``check`` has verified that it fits in memory."""
    gram = np.empty((len(z), len(z)))
    for row in range(0, len(z), KERNEL_ROWS):
        gram[row : row + KERNEL_ROWS] = problem.K(z[row : row + KERNEL_ROWS], z).cpu().numpy()
    if not np.isfinite(gram).all():
        raise RunError(OVERFLOW)
    return gram
