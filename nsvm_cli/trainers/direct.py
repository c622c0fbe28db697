"""Methods without steps, which are fitted in one call to features with the current theta."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import pydantic
import torch
from jaxtyping import Float
from pydantic import Field, ValidationError
from torch import Tensor

from nsvm_cli.config.registry import STRICT, Count, Positive, keeps, one_line
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.metrics import METRICS
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import Kernel, is_linear
from nsvm_cli.models.losses import LOSSES, CrammerSinger, EpsilonInsensitive, Formula, Hinge, SquaredHinge
from nsvm_cli.models.nsvm import Expansion, scores_of
from nsvm_cli.models.objectives import random_subset
from nsvm_cli.output import say
from nsvm_cli.tasks import Regression
from nsvm_cli.trainers.base import Problem, State, Trainer

Grid = Annotated[dict[str, Annotated[list[int | float], Field(min_length=1)]], Field(min_length=1)]
"""Lists of values to try, by the name of the parameter in scikit-learn."""

Values = Mapping[str, int | float]
"""A value for each parameter of a ``Grid``."""

FOLDS, MOST_SAMPLES = 3, 5000
"""Number of folds in cross-validation, and maximum number of training samples that cross-validation uses."""


class DirectSolver(Trainer[State]):
    """A method without steps, which ``finish`` fits to the features z_j = F_theta(x_j)."""

    moves_theta = False
    chooses_steps = True

    @property
    def total(self) -> int:
        return 0

    def start(self, problem: Problem, F: FeatureMap) -> State:
        return State(F=F, sampler=problem.sampler(), t=0)

    def step(self, problem: Problem, state: State) -> None:
        raise NotImplementedError

    def finish(self, problem: Problem, state: State) -> Expansion:
        return self.solve(problem, state.F(problem.x))

    @abstractmethod
    def solve(self, problem: Problem, z: Float[Tensor, "m n"]) -> Expansion:
        """Return the model trained on the features z of the training samples."""


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Majority(DirectSolver):
    """A constant model, which predicts the most frequent class (the first of ties) or the mean target."""

    trains_svm: ClassVar[bool] = False
    is_constant: ClassVar[bool] = True

    def solve(self, problem: Problem, z: Float[Tensor, "m n"]) -> Expansion:
        y, outputs = problem.y, problem.task.outputs
        answer = y.mean() if isinstance(problem.task, Regression) else y.mode().values
        bias = torch.eye(*outputs).to(z)[int(answer)] if outputs else float(answer)
        return Expansion(z[:0], z.new_zeros(0, *outputs), 1.0, bias)


class ScikitLearn(DirectSolver):
    """An estimator of scikit-learn. ``grid`` lists values to try for hyperparameters in ``searchable``."""

    searchable: ClassVar[tuple[str, ...]]
    grid: Grid | None

    @abstractmethod
    def machine(self, problem: Problem, n: int) -> Any:
        """Return scikit-learn's estimator, not yet fitted, for samples with n features."""

    def check(self, problem: Problem, F: FeatureMap) -> None:
        super().check(problem, F)
        parameters = {*self.searchable} & self.machine(problem, n=1).get_params().keys()
        expect_searchable(self.name, self.grid, parameters)

    def fit(self, problem: Problem, z: Float[Tensor, "m n"], **values: int | float) -> Any:
        """Return the estimator with parameters ``values``, fitted to features z of the training samples."""
        machine, x = self.machine(problem, z.shape[1]).set_params(**values), z.double().cpu().numpy()
        with scikit_learn_limits():
            return machine.fit(x, problem.y.cpu().numpy(), sample_weight=problem.weights)

    def search(self, problem: Problem, F: FeatureMap) -> tuple[dict[str, Any], dict[str, Any]] | None:
        return grid_search(self.grid, problem, F, self._score) if self.grid else None

    def _score(self, values: Values, train: Problem, test: Problem) -> float:
        """Return the score on test samples after training with these values of a grid."""
        return fold_score(test, decisions(self.fit(train, train.x, **values), test.x))


def expect_loss(name: str, problem: Problem, *supported: type[Formula]) -> None:
    """Raise an InputError unless the algorithm supports the loss."""
    if not any(keeps(type(problem.loss.l), loss, "slope", "value", "curvature") for loss in supported):
        loss = {kind: word for word, kind in LOSSES.items()}.get(type(problem.loss.l), problem.loss.l)
        advice = "set algorithm=pegasos or, with alg4, algorithm.solver=pegasos"
        raise InputError(f"{name} does not support loss={loss}; {advice}")


def expect_searchable(name: str, grid: Grid | None, searchable: Collection[str]) -> None:
    """Raise an InputError if a grid contains a parameter that the algorithm cannot search."""
    for parameter in grid or ():
        if parameter not in searchable:
            hint = did_you_mean(parameter, searchable)
            raise InputError(f"algorithm.grid.{parameter}: {name} cannot search this parameter; {hint}")


def grid_search(
    grid: Grid, problem: Problem, F: FeatureMap, score: Callable[[Values, Problem, Problem], float]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings with the best mean score in ``cross_validation``, like ``Trainer.search``.

    ``score`` is called with the values of a candidate, a training problem and a test problem. The samples of
    these problems are features. An InputError is raised if a value is invalid.
    """
    from sklearn.model_selection import ParameterGrid

    m = len(problem.y)
    candidates = [*ParameterGrid(grid)]
    # in ascending order of C, so that ``score`` can start from the previous solution
    by_C = sorted(candidates, key=lambda values: [values[k] for k in sorted(values, reverse=True)])
    scores = np.zeros(len(by_C))
    try:
        for train, test in cross_validation(problem, F):
            scores += [score(values, train, test) for values in by_C]
    except ValueError as error:
        reason = one_line(error) if isinstance(error, ValidationError) else error
        raise InputError(f"algorithm.grid: {reason}") from None
    chosen = max(candidates, key=lambda values: scores[by_C.index(values)])
    settings = dict(
        STANDS_FOR[k](v, m) if k in STANDS_FOR else (f"algorithm.{k}", v) for k, v in chosen.items()
    )
    return {**settings, "algorithm.grid": None}, {"candidates": len(candidates), "chosen": chosen}


def cross_validation(
    problem: Problem, F: Callable[[Tensor], Tensor], folds: int = FOLDS, repeats: int = 0
) -> Iterator[tuple[Problem, Problem]]:
    """Yield a training problem and a test problem for each fold, whose samples are the features F(x).

    At most ``MOST_SAMPLES`` random training samples are used. If a class has fewer samples than ``folds``,
    there are fewer folds. Samples are assigned to folds in their order or, with ``repeats``, at random, and
    the folds of each repetition differ. An InputError is raised if there are too few samples in total or of a
    class.
    """
    from sklearn.model_selection import KFold, StratifiedKFold

    m = len(problem.y)
    rows = random_subset(m, min(m, MOST_SAMPLES), problem.seed, problem.y.device).sort().values
    whole = problem.of(rows.cpu().numpy(), F(problem.x[rows]))
    sizes = {name: int(members.sum()) for name, members in problem.task.strata(whole.host_y)}
    rarest = min(sizes, key=lambda name: sizes[name])
    each = 1 if problem.task.classes else 2  # R^2 requires two samples
    if (few := sizes[rarest]) < 2 * each:
        of_class = f" of class {rarest}" if rarest else ""
        expected = f"at least {2 * each} training samples{of_class}"
        raise InputError(f"cross-validation requires {expected}, found {few}")
    splitter = StratifiedKFold if problem.task.classes else KFold
    for r in range(max(repeats, 1)):
        how = {"shuffle": True, "random_state": (problem.seed + r) % 2**32} if repeats else {}
        for fold in splitter(min(folds, few // each), **how).split(whole.host_y, whole.host_y):
            train, test = (whole.of(part, whole.x[part]) for part in fold)
            yield train, test


def svm_score(
    svm: Any,
    values: Values,
    train: Problem,
    test: Problem,
    solve: Callable[[Any, Problem], Expansion] = lambda svm, problem: svm.solve(problem, problem.x),
) -> float:
    """Return the score on test samples after training an SVM with these values of a grid.

    ``solve`` returns the trained model, given the SVM and a problem whose samples are features.
    """
    K = replace(train.K, gamma=values["gamma"]) if "gamma" in values else train.K  # type: ignore[type-var]
    loss = train.loss
    if "epsilon" in values:
        loss = replace(loss, l=EpsilonInsensitive(values["epsilon"]))
    lam = 1 / (values["C"] * len(train.y)) if "C" in values else svm.lam
    g = solve(replace(svm, lam=lam, grid=None), replace(train, K=K, loss=loss))
    return fold_score(test, g(K, test.x))


def fold_score(problem: Problem, g: Float[Tensor, " m *outputs"]) -> float:
    """Return ``problem.metric`` of decision values, negative if smaller values are better.

    If the metric is None, it is the weighted accuracy or R^2. An undefined metric is -infinity.
    """
    from sklearn.metrics import accuracy_score, r2_score  # slow to import

    # for real targets, labels and decisions of the problem are standardised
    task, y, g = problem.task, problem.y.cpu(), g.cpu()
    y = y if task.classes else task.decide(y)
    if problem.metric is None:
        usual = accuracy_score if task.classes else r2_score
        return float(usual(y, task.decide(g), sample_weight=problem.weights))
    value = scores_of(task, y, g, weights=problem.weights)[problem.metric]
    return -math.inf if value is None else METRICS[problem.metric].sign * value


STANDS_FOR: dict[str, Callable[[float, int], tuple[str, Any]]] = {
    "C": lambda C, m: ("algorithm.lam", 1 / (C * m)),
    "alpha": lambda alpha, m: ("algorithm.lam", alpha / m),
    "gamma": lambda gamma, m: ("kernel.gamma", gamma),
    "epsilon": lambda epsilon, m: ("loss", {"name": "epsilon_insensitive", "epsilon": epsilon}),
}
"""For each scikit-learn parameter, a function of its value and the number m of training samples, which
returns the name of the corresponding setting and the setting's value."""


def decisions(machine: Any, z: Float[Tensor, "p n"]) -> Float[Tensor, " p *outputs"]:
    """Return the decision values of a fitted estimator of scikit-learn for features z."""
    g = getattr(machine, "decision_function", machine.predict)
    with scikit_learn_limits():
        return torch.from_numpy(g(z.double().cpu().numpy())).to(z)


@contextmanager
def scikit_learn_limits() -> Iterator[None]:
    """Context manager: limit scikit-learn to torch's number of threads, and silence its warnings."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(torch.get_num_threads()), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


MAX_ITERATIONS = 10_000
"""Maximum number of iterations of L-BFGS or passes of LIBLINEAR, after which a warning is shown."""

TOLERANCE = 1e-7
"""LIBLINEAR's tolerance for the squared hinge and Crammer-Singer losses. The default is too coarse for
separable classes."""


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class LinearModel(ScikitLearn):
    """A linear model f(x) = <w, F_theta(x)> + b. For more than two classes, each class has a w and a b.

    The objective is lambda/2 ||w||^2 + 1/m sum_j w_j l_j, where l_j is the loss of sample j, and w_j is its
    weight. This is the objective of scikit-learn with C = 1/(lambda m).
    """

    lam: Positive = 1e-4
    grid: Grid | None = None

    def C(self, problem: Problem) -> float:
        limits = np.finfo(np.float64)  # scikit-learn refuses a quotient that is 0 or infinite
        return float(np.clip(1 / (self.lam * len(problem.y)), limits.tiny, limits.max))

    def check(self, problem: Problem, F: FeatureMap) -> None:
        super().check(problem, F)
        if not is_linear(problem.K):
            kernel = type(problem.K).__name__.lower()
            raise InputError(f"{self.name} requires kernel=linear, got kernel={kernel}; use svc or pegasos")

    def solve(self, problem: Problem, z: Float[Tensor, "m n"]) -> Expansion:
        machine = self.fit(problem, z)
        if machine.n_iter_ is not None and np.max(machine.n_iter_) >= machine.max_iter:
            say(
                f"{self.name} stopped after {machine.max_iter} iterations, before it converged; "
                f"set algorithm.lam above {self.lam:g}{', or use pegasos' if self.trains_svm else ''}"
            )
        w, b = torch.from_numpy(np.atleast_2d(machine.coef_)).to(z), np.atleast_1d(machine.intercept_)
        if problem.task.outputs:
            return Expansion(w, torch.eye(len(w)).to(z), 1.0, torch.from_numpy(b).to(z))
        return Expansion(w, z.new_ones(1), 1.0, float(b[0]))


class LinearSVM(LinearModel):
    """scikit-learn's LinearSVC, or LinearSVR for real targets. The training time is proportional to m."""

    searchable: ClassVar[tuple[str, ...]] = ("C", "epsilon")

    def check(self, problem: Problem, F: FeatureMap) -> None:
        super().check(problem, F)
        squared = [] if isinstance(problem.loss, CrammerSinger) else [SquaredHinge]
        expect_loss(self.name, problem, Hinge, EpsilonInsensitive, *squared)

    def machine(self, problem: Problem, n: int) -> Any:
        from sklearn import svm  # slow to import, and needed only here

        l = problem.loss.l  # noqa: E741
        settings: dict[str, Any] = {"random_state": 0, "max_iter": MAX_ITERATIONS, "C": self.C(problem)}
        if isinstance(l, EpsilonInsensitive):
            return svm.LinearSVR(epsilon=l.epsilon, **settings)
        if isinstance(problem.loss, CrammerSinger):
            return svm.LinearSVC(multi_class="crammer_singer", tol=TOLERANCE, **settings)
        if isinstance(l, Hinge):
            return svm.LinearSVC(loss="hinge", dual=True, **settings)
        return svm.LinearSVC(dual="auto", tol=TOLERANCE, **settings)


class Logistic(LinearModel):
    """scikit-learn's LogisticRegression or, for real targets, Ridge with alpha = lambda m.

    The loss l_j of ``LinearModel`` is the cross-entropy (multinomial for more than two classes) or, for real
    targets, (y_j - f(x_j))^2 / 2. The bias is not regularised.
    """

    searchable: ClassVar[tuple[str, ...]] = ("C", "alpha")
    trains_svm: ClassVar[bool] = False

    def machine(self, problem: Problem, n: int) -> Any:
        from sklearn import linear_model  # slow to import, and needed only here

        if isinstance(problem.task, Regression):
            return linear_model.Ridge(alpha=1 / self.C(problem))
        return linear_model.LogisticRegression(C=self.C(problem), max_iter=MAX_ITERATIONS)


@dataclass(frozen=True)
class TreeEnsemble(Expansion):
    """A model whose decision function is computed by ``trees``, an estimator of scikit-learn."""

    trees: Any = None

    def __call__(self, K: Kernel, z: Float[Tensor, "p n"]) -> Float[Tensor, " p *outputs"]:
        return decisions(self.trees, z) + self.bias


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Trees(ScikitLearn):
    """scikit-learn's HistGradientBoostingClassifier, or HistGradientBoostingRegressor for real targets."""

    searchable: ClassVar[tuple[str, ...]] = ("learning_rate", "max_leaf_nodes", "max_iter")
    trains_svm: ClassVar[bool] = False
    saves_model: ClassVar[bool] = False
    unit: ClassVar[str] = "iterations"
    learning_rate: Positive = 0.1
    max_leaf_nodes: Annotated[int, Field(ge=2)] = 31
    max_iter: Count = 100
    grid: Grid | None = None

    def size(self, m: int) -> int:
        return self.max_iter

    def share(self, problem: Problem, size: int) -> tuple[Trainer[State], Problem]:
        return replace(self, max_iter=size), problem

    def machine(self, problem: Problem, n: int) -> Any:
        from sklearn import ensemble  # slow to import, and needed only here

        kind = "Regressor" if isinstance(problem.task, Regression) else "Classifier"
        return getattr(ensemble, f"HistGradientBoosting{kind}")(
            learning_rate=self.learning_rate,
            max_leaf_nodes=self.max_leaf_nodes,
            max_iter=self.max_iter,
            random_state=problem.seed % 2**32,
        )

    def solve(self, problem: Problem, z: Float[Tensor, "m n"]) -> Expansion:
        return TreeEnsemble(z[:0], z.new_zeros(0, *problem.task.outputs), 1.0, trees=self.fit(problem, z))
