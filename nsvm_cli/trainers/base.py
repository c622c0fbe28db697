"""The interface of an algorithm: frozen hyperparameters, and a state that its steps read and write."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from pydantic import Field
from torch import Tensor

from nsvm_cli.config.registry import OneLine, Registry, build
from nsvm_cli.errors import InputError, NotFiniteError
from nsvm_cli.memory import MEMORY_BUDGET
from nsvm_cli.models.feature_map import Batch, FeatureMap, Objective
from nsvm_cli.models.kernels import Kernel, kernel_sums
from nsvm_cli.models.losses import Binary, Hinge, Loss, any_output
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.models.penalties import of_pairs, penalised
from nsvm_cli.randomness import Sampler
from nsvm_cli.storage.state_dict import NOT_SAVED, RESTORED, Saved
from nsvm_cli.tasks import BINARY, Task
from nsvm_cli.trainers.means import MeanTheta, Tally
from nsvm_cli.trainers.samplers import SAMPLERS

BatchSize = Annotated[int, Field(ge=1, le=10**6)]
PairedBatchSize = Annotated[int, Field(ge=2, le=10**6)]
"""The batch size of an objective that compares pairs of samples, such as an alignment."""


@dataclass(frozen=True)
class Problem(OneLine):
    """The input of every algorithm (paper, Section 4): data set D, kernel K, loss and seed."""

    x: Any  # ScaledSamples: standardised samples, (m, d) or (m, channels, height, width)
    y: Float[Tensor, " m"]  # labels as the task codes them: -1 and +1 for two classes
    K: Kernel
    seed: int
    memory_budget: int = MEMORY_BUDGET  # for kernel values, in MiB
    task: Task = BINARY
    loss: Loss = Binary(Hinge())  # noqa: RUF009  # frozen
    penalties: Mapping[str, float] = field(default_factory=dict)  # weights by name
    weights: Float64[np.ndarray, " m"] | None = None  # positive, with a mean of 1; None if all are 1
    draws: Mapping[str, Any] = field(default_factory=lambda: {"name": "uniform"})  # the section ``sampler``
    metric: str | None = None  # the metric by which searches choose; None: weighted accuracy or R^2

    def __post_init__(self) -> None:
        if not isinstance(self.loss, Loss):
            raise InputError(f"Problem: expected a loss such as {Binary(Hinge())}, got {self.loss}")

    @cached_property
    def host_y(self) -> Float64[np.ndarray, " m"]:
        """y in host memory, in float64."""
        return self.y.double().cpu().numpy()

    def __getitem__(self, i: Int64[np.ndarray, " p"]) -> tuple[Batch, Float[Tensor, " p"]]:
        """Return the samples i, and their labels."""
        j = torch.from_numpy(i).to(self.y.device)
        return Batch(self.x.index_select(0, j), i), self.y[j]  # several times faster than x[j]

    def of(self, rows: Int64[np.ndarray, " p"], x: Float[Tensor, "p ..."]) -> Problem:
        """Return the problem restricted to the samples ``rows``, with ``x`` instead of ``self.x[rows]``."""
        weights = None if self.weights is None else self.weights[rows]
        return replace(self, x=x, y=self.y[torch.from_numpy(rows).to(self.y.device)], weights=weights)

    def w(self, i: Int64[np.ndarray, " p"]) -> Float[Tensor, " p"] | None:
        """Return the weights of the samples i as a tensor like y, or None if all weights are 1."""
        return None if self.weights is None else torch.from_numpy(self.weights[i]).to(self.y)

    def increments(
        self, i: Int64[np.ndarray, " p"], g: Float[np.ndarray, " p *outputs"]
    ) -> Float64[np.ndarray, " p *outputs"]:
        """Return -w_i dl/df(y_i, g_i), the increments of alpha_i in explicit steps; see ``models.losses``."""
        increments = self.loss.increments(self.host_y[i], g)
        return increments if self.weights is None else (increments.T * self.weights[i]).T

    def first_increments(
        self, i: Int64[np.ndarray, " k"], z: Float[Tensor, "k n"], lam: float
    ) -> Float64[Tensor, " k *outputs"]:
        """Return the increments of alpha in step 1, where f = 0: y_i / k for k samples and the hinge loss."""
        increments = self.increments(i, np.zeros((len(i), *self.task.outputs)))
        return torch.from_numpy(self.implicit_increments(increments, z, lam, i) / len(i)).to(self.y.device)

    def implicit_increments(
        self,
        increments: Float64[np.ndarray, " p *outputs"],
        z: Float[Tensor, "p n"],
        shrinkage: float,
        batch: Int64[np.ndarray, " k"],
    ) -> Float64[np.ndarray, " p *outputs"]:
        """Return the increments of alpha in implicit steps; see ``nsvm_cli.models.losses``.

        ``increments`` are the increments in explicit steps on samples with the features z, ``shrinkage`` is
        lambda t, and ``batch`` holds all samples of the step.
        """
        if self.loss.curvature == 0:
            return increments
        kappa = self.K.diag(z).double().cpu().numpy() / shrinkage
        if self.weights is not None:
            kappa *= self.weights[batch].mean()
        return (increments.T / (1 + self.loss.curvature * kappa)).T

    def sampler(self, k: int = 1) -> Sampler:
        """Return a sampler of samples i_t or batches A_t of size k. Raise an InputError if k exceeds m."""
        m = len(self.y)
        if k > m:
            raise InputError(
                f"algorithm.batch_size={k}: expected at most {m}, the number of training samples"
            )
        sampler: Sampler = build(SAMPLERS, "sampler", self.draws, self, k)
        if (name := self.draws["name"]) != "uniform":
            try:
                sampler(1)
            except ValueError as error:
                raise InputError(f"sampler={name}: {error}") from None
        return sampler

    def sums(
        self, z: Float[Tensor, "p n"], terms: Float[Tensor, "q n"], w: Float[Tensor, " q *outputs"]
    ) -> Float[Tensor, " p *outputs"]:
        """Return sum_j w_j K(terms_j, z_i) for every i."""
        return kernel_sums(self.K, z, terms, w, self.memory_budget)


@dataclass(kw_only=True)
class State(Saved, OneLine):
    """Everything that a step reads or writes, apart from the problem."""

    # every field is saved unless its metadata exclude it; see ``nsvm_cli.storage.state_dict``
    F: FeatureMap = field(metadata=NOT_SAVED)  # holds theta
    sampler: Sampler = field(metadata=NOT_SAVED)  # ``sampler(t)`` draws i_t or A_t
    t: int  # number of steps taken; the initialisation of Algorithms 0 to 3 is step 1, as in the paper
    violations: int = 0  # number of margin violations so far
    g: float | None = None  # latest decision value; for a batch, the decision value of the first sample
    objective: Tensor | None = None  # value before the latest step in theta, of shape ()
    tally: Tally = field(default_factory=Tally)  # sums from which the next record is computed
    mean: MeanTheta | None = None  # mean of theta, if the algorithm averages theta
    engine: Any = field(default=None, metadata=RESTORED)  # state of the engine, if the engine has a state

    @property
    def part(self) -> int | None:
        """The part of the algorithm that step t belongs to, or None for an algorithm without parts."""
        return None

    @property
    def support_vectors(self) -> int:
        """The current number of non-zero coefficients, or 0 for a state without coefficients."""
        return 0

    @property
    def figures(self) -> dict[str, Any]:
        """The algorithm's own metrics, which records and results contain besides the common metrics."""
        return {}


S = TypeVar("S", bound=State)


class Trainer(ABC, Generic[S]):
    """An algorithm, registered in ``TRAINERS``. Its fields are its settings.

    ``step`` defines the algorithm. An engine may override ``advance``, but must give the same result.
    """

    trains_svm: ClassVar[bool] = True
    """Whether the algorithm minimises the loss of ``Problem``."""

    lam: float
    """The regularisation parameter lambda, if the algorithm trains an SVM."""

    moves_theta: ClassVar[bool] = True
    """Whether steps change theta, using the optimizer."""

    chooses_steps: ClassVar[bool] = False
    """Whether the algorithm itself, not a setting, determines the number of steps, which may be 0."""

    unit: ClassVar[str] = "samples"
    """The unit in which ``size`` measures the work of an algorithm with ``chooses_steps``."""

    growth: ClassVar[int] = 1
    """The training time is proportional to ``size`` raised to this power."""

    is_constant: ClassVar[bool] = False
    """Whether the model predicts the same for all samples."""

    saves_model: ClassVar[bool] = True
    """Whether the model can be saved in a model file, which holds tensors only."""

    @property
    def name(self) -> str:
        """The name of the algorithm in messages, which is the same for all engines."""
        return next(iter(Registry.kinds["algorithm"].names_of(type(self))), type(self).__name__.lower())

    @property
    @abstractmethod
    def total(self) -> int:
        """The value of ``state.t`` at which training ends."""

    @property
    def part_steps(self) -> tuple[int, ...]:
        """The numbers of steps of all parts of the algorithm, which add up to ``total``."""
        return (self.total,)

    @property
    def parts(self) -> tuple[Trainer[Any], ...]:
        """The algorithms of the parts, in the order in which they run. The first is this algorithm itself."""
        return (self,)

    @property
    def k(self) -> int:
        """The number of samples drawn per step."""
        return 1

    @property
    def last_theta_step(self) -> int:
        """The last step that may change theta."""
        return self.part_steps[0]

    def usual_loss(self, kind: str) -> str | None:
        """Return the name of the loss to use if none is set, or None for the default of the task."""
        return None

    def for_samples(self, m: int) -> Trainer[S]:
        """Return this algorithm after filling in settings that depend on the number m of training samples."""
        return self

    def size(self, m: int) -> int:
        """Return the amount of work for m training samples, in units of ``unit``."""
        return m

    def share(self, problem: Problem, size: int) -> tuple[Trainer[S], Problem]:
        """Return this algorithm and the problem, reduced to ``size`` units of work (see ``unit``).

        By default, the problem keeps ``size`` samples, and lambda changes so that C = 1/(lambda m) stays the
        same.
        """
        m = len(problem.y)
        rows = np.arange(size) * m // size
        share = problem.of(rows, problem.x[torch.from_numpy(rows).to(problem.y.device)])
        same_C = {"lam": self.lam * m / size} if hasattr(self, "lam") else {}
        return replace(self, **same_C), share  # type: ignore[type-var]  # a dataclass

    def search(self, problem: Problem, F: FeatureMap) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Search for the best settings, and return two dicts, or return None if no search is set.

        The first dict contains the best settings, under dotted names such as ``algorithm.lam``. The second
        contains the fields of the result that describe the search.
        """
        return None

    def check(self, problem: Problem, F: FeatureMap) -> None:
        """Raise an InputError if this algorithm cannot handle the problem."""
        problem.sampler(self.k)
        if problem.penalties and not (self.moves_theta and F.parameters):
            raise InputError(
                "penalties require a run that trains theta, but theta is fixed in this run; remove penalties"
            )
        if self.k < 2 and (name := of_pairs(problem.penalties)):
            raise InputError(
                f"penalties.{name} requires batches of at least 2 samples; set algorithm.batch_size above 1"
            )

    @abstractmethod
    def start(self, problem: Problem, F: FeatureMap) -> S:
        """Return the state before the first iteration of the loop."""

    @abstractmethod
    def step(self, problem: Problem, state: S) -> None:
        """Take step ``state.t + 1``. Raise a NotFiniteError if a quantity is no longer finite."""

    def advance(self, problem: Problem, state: S, until: int) -> None:
        """Take the steps up to ``until``, or fewer steps to let the caller check for signals.

        The result does not depend on the steps at which this method returns.
        """
        while state.t < until:
            self.step(problem, state)

    def complete(self, problem: Problem, state: S) -> S:
        """Take all remaining steps, and return the state."""
        while state.t < self.total:
            self.advance(problem, state, self.total)
        return state

    def find_violations(
        self,
        problem: Problem,
        state: S,
        i: Int64[np.ndarray, " k"],
        g: Float[Tensor, " k *outputs"],
        z: Float[Tensor, "k n"],
    ) -> tuple[Int64[np.ndarray, " v"], Float64[Tensor, " v *outputs"]]:
        """Return the positions v in i of the samples that violate the margin, and their increments of alpha.

        g and z are the decision values and the features of the k samples i of a step. With the hinge loss and
        two classes, the samples with y_i g_i < 1 violate the margin. The increment of alpha_i is then y_i / k
        times the sample's weight. If g is not finite, a NotFiniteError is raised.
        """
        t, decisions = state.t + 1, g.double().cpu().numpy()
        if not np.isfinite(decisions).all():
            raise NotFiniteError("the decision value g", t)
        increments = problem.increments(i, decisions)
        v = any_output(increments != 0).nonzero()[0]
        state.tally.add_decisions(len(i), problem.task.correct(problem.host_y[i], decisions), len(v))
        state.violations += len(v)
        state.g = float(decisions.flat[0])
        z_v = z[torch.from_numpy(v).to(z.device)]
        alpha_v = problem.implicit_increments(increments[v], z_v, self.lam * t, i) / len(i)
        return v, torch.from_numpy(alpha_v).to(z.device)

    def descend(self, problem: Problem, state: S, objective: Objective) -> None:
        """Take a step in theta on an objective plus the penalties, as part of step ``state.t + 1``."""
        t = state.t + 1
        if problem.penalties:
            objective = penalised(objective, problem.penalties, problem[state.sampler(t)][0])
        state.objective = state.F.descend(objective, problem.K, t, self.last_theta_step)
        state.tally.add_objective(state.objective)
        if state.mean:
            state.mean.follow(t)

    def has_svm(self, state: S) -> bool:
        """Return whether this state has an SVM. In Part 1 of an algorithm with two parts, it has none."""
        return state.part != 1 or state.t == self.total

    @abstractmethod
    def finish(self, problem: Problem, state: S) -> Expansion:
        """Return the expansion of g after ``state.t`` steps, without changing the state."""

    def restore(self, problem: Problem, F: FeatureMap, saved: Mapping[str, Any]) -> S:
        """Return the state from the state dict ``saved``, equal in every bit. F must already be restored.

        Raises:
            ValueError: the saved state belongs to another algorithm or problem.
        """
        state = self.start(problem, F)
        state.load_state_dict(saved)
        return state


class BatchTrainer(Trainer[S]):
    """An algorithm that takes ``steps`` steps on batches of ``batch_size`` samples (None: one sample).

    If ``epochs`` is set, the steps in theta make at most this number of passes over the training samples.
    """

    steps: int
    batch_size: int | None
    epochs: float | None = None

    @property
    def k(self) -> int:
        return self.batch_size or 1

    @property
    def total(self) -> int:
        return self.steps

    def for_samples(self, m: int) -> BatchTrainer[S]:
        changes = {"batch_size": m} if self.k > m else {}
        if self.epochs and self.last_theta_step:
            limit = max(1, math.floor(self.epochs * m / min(self.k, m)))
            changes["steps"] = min(self.last_theta_step, limit)
        return replace(self, **changes)  # type: ignore[type-var]  # a dataclass
