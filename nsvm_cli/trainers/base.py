"""The contract of an algorithm: frozen hyperparameters, and a state that its steps read and write."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor

from nsvm_cli.errors import InputError
from nsvm_cli.models.feature_map import FeatureMap, Shard
from nsvm_cli.models.kernels import MEMORY_BUDGET, Kernel, kernel_sums
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.parallel.distributed import SINGLE_PROCESS, Processes
from nsvm_cli.randomness import Sampler
from nsvm_cli.storage.state_dict import StateDict, load_fields, save_fields
from nsvm_cli.tasks import BINARY, Task

Steps = Annotated[int, Field(ge=1)]
BatchSize = Annotated[int, Field(ge=2)]


@dataclass(frozen=True)
class Problem:
    """What every algorithm is given (paper, Section 4): the data set D, the kernel K; and the seed.

    ``memory_budget`` is in MiB, for kernel values.
    """

    x: Float[Tensor, "m ..."]
    y: Float[Tensor, " m"]
    K: Kernel
    seed: int
    processes: Processes = SINGLE_PROCESS
    memory_budget: int = MEMORY_BUDGET
    task: Task = BINARY

    def at(self, i: Int64[Tensor, " p"]) -> Float[Tensor, "p ..."]:
        """Return x_i for the samples i."""
        return self.x.index_select(0, i)  # several times faster than x[i]

    def sampler(self, k: int = 1) -> Sampler:
        """Return what draws i_t, or A_t of size k.

        Raises:
            InputError: k > m.
        """
        m = len(self.y)
        if k > m:
            raise InputError(f"algorithm.batch_size={k}: expected at most the {m} training samples")
        return Sampler(self.seed, m, k)

    def shard(self, rows: tuple[int, Int64[Tensor, " p"]] | None = None) -> Shard | None:
        """Return this process's part of an objective for ``F.descend``; None for a single process."""
        return Shard(self.processes, rows) if self.processes.size > 1 else None

    def sums(
        self, z: Float[Tensor, "p n"], terms: Float[Tensor, "q n"], w: Float[Tensor, " q"]
    ) -> Float[Tensor, " p"]:
        """Return sum_j w_j K(terms_j, z_i) for every i, over the terms of all processes."""
        return self.processes.sum(kernel_sums(self.K, z, terms, w, self.memory_budget))


@dataclass(kw_only=True)
class State:
    """Everything that a step reads or writes beside the problem.

    ``t`` counts the steps done, as the paper does: the initialisation of Algorithms 0 to 3 is step 1.
    ``g`` is the latest decision value, ``objective`` the value before the latest move of theta,
    ``violations`` the number of samples that were found to violate the margin.

    Every field is saved, but for those that say otherwise: see ``nsvm_cli.storage.state_dict``.
    """

    F: FeatureMap
    sampler: Sampler
    t: int
    violations: int = 0
    g: float | None = None
    objective: Tensor | None = None

    @property
    def support_vectors(self) -> int:
        """The number of non-zero coefficients so far; 0 for an algorithm without any while it trains."""
        return 0

    @property
    def version(self) -> tuple[int, int]:
        """What changes whenever theta or alpha does; see ``Derived``."""
        return self.F.theta_steps, self.violations

    def state_dict(self) -> StateDict:
        """Return what there is to save, without theta and the sampler.

        Raises:
            InputError: a field holds what cannot be saved.
        """
        return save_fields(self, but=("F", "sampler"))

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Make this state, which has just been started, the one that was saved.

        Raises:
            ValueError: what was saved is not of this kind.
        """
        load_fields(self, saved, but=("F", "sampler"))


S = TypeVar("S", bound=State)


class Trainer(ABC, Generic[S]):
    """An algorithm. Its constructor takes what its YAML file holds, and it is listed in ``TRAINERS``.

    ``nsvm_cli.runs.loop.run`` is the only caller of ``start``, then ``advance`` until ``total`` steps are
    done, then ``finish``. Derive from ``StepTrainer``, or from ``LookAheadTrainer`` for an algorithm that
    acts on violations only.
    """

    def __init_subclass__(cls) -> None:
        if "step" in vars(cls) and "advance" not in vars(cls) and not issubclass(cls, StepTrainer):
            raise TypeError(f"{cls.__name__} defines step, which the advance it inherits never calls")

    @property
    @abstractmethod
    def total(self) -> int:
        """The value of ``state.t`` at which training ends."""

    @property
    def k(self) -> int:
        """The number of samples that a step draws."""
        return 1

    @property
    def last_theta_step(self) -> int:
        """The last step in which theta may move."""
        return self.total

    def check(self, problem: Problem, F: FeatureMap) -> None:
        """Refuse, before anything is computed, a problem that this algorithm cannot take.

        Raises:
            InputError: what does not fit together.
        """
        problem.sampler(self.k)

    @abstractmethod
    def start(self, problem: Problem, F: FeatureMap) -> S:
        """Return the state before the first pass of the loop."""

    @abstractmethod
    def advance(self, problem: Problem, state: S, until: int) -> None:
        """Do all passes of the loop up to step ``until``. Where the caller stops in between changes no bit.

        Raises:
            NotFiniteError: a quantity is no longer finite.
        """

    def classifies(self, state: S) -> bool:
        """Return whether g is worth evaluating yet."""
        return True

    @abstractmethod
    def finish(self, problem: Problem, state: S) -> Expansion:
        """Return what g is made of after ``state.t`` steps; leave the state as it was."""

    def save(self, problem: Problem, state: S) -> StateDict:
        """Return what ``restore`` needs beside theta; of several processes, each is given all of it."""
        return state.state_dict()

    def restore(self, problem: Problem, F: FeatureMap, saved: Mapping[str, Any]) -> S:
        """Return the state that was saved, to the bit; theta has been restored already.

        Raises:
            ValueError: what was saved is not of this algorithm, or of another problem.
        """
        state = self.start(problem, F)
        self.load(problem, state, saved)
        return state

    def load(self, problem: Problem, state: S, saved: Mapping[str, Any]) -> None:
        """Make a state that has just been started the one that was saved; a part of ``restore``."""
        state.load_state_dict(saved)


class StepTrainer(Trainer[S]):
    """An algorithm that is written step by step."""

    @abstractmethod
    def step(self, problem: Problem, state: S) -> None:
        """Do one pass of the loop: step ``state.t + 1``."""

    def advance(self, problem: Problem, state: S, until: int) -> None:
        while state.t < until:
            self.step(problem, state)


class BatchTrainer(StepTrainer[S]):
    """An algorithm whose every step draws ``batch_size`` samples."""

    steps: int
    batch_size: int

    @property
    def k(self) -> int:
        return self.batch_size

    @property
    def total(self) -> int:
        return self.steps
