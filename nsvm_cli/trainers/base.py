"""What a trainer is: frozen hyperparameters, and an explicit state that its steps read and write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from pydantic import Field
from torch import Tensor

from nsvm_cli.errors import InputError
from nsvm_cli.models.feature_map import FeatureMap, Shard
from nsvm_cli.models.kernels import MEMORY_BUDGET, Kernel, kernel_sums
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.parallel.distributed import SINGLE_PROCESS, Processes
from nsvm_cli.randomness import Sampler
from nsvm_cli.storage.state_dict import StateDict, expect_keys, load_fields, loaded_like, save_fields

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

    def at(self, i: Int64[Tensor, " p"]) -> Float[Tensor, "p ..."]:
        """x_i for the samples i."""
        return self.x.index_select(0, i)  # several times faster than x[i]

    def sampler(self, k: int = 1) -> Sampler:
        """Draws i_t, or A_t of size k.

        Raises:
            InputError: k > m.
        """
        m = len(self.y)
        if k > m:
            raise InputError(f"algorithm.batch_size={k}: expected at most the {m} training samples")
        return Sampler(self.seed, m, k)

    def shard(self, rows: tuple[int, Int64[Tensor, " p"]] | None = None) -> Shard | None:
        """Where several processes each have a part of an objective, this one's."""
        return Shard(self.processes, rows) if self.processes.size > 1 else None

    def sums(
        self, z: Float[Tensor, "p n"], terms: Float[Tensor, "q n"], w: Float[Tensor, " q"]
    ) -> Float[Tensor, " p"]:
        """sum_j w_j K(terms_j, z_i) for every i, over the terms of all processes."""
        return self.processes.sum(kernel_sums(self.K, z, terms, w, self.memory_budget))


@dataclass(kw_only=True)
class State:
    """Everything that a step reads or writes beside the problem.

    ``t`` counts the steps done, as the paper does: the initialisation of Algorithms 0 to 3 is step 1.
    ``g`` is the latest decision value, ``objective`` the value before the latest move of theta,
    ``violations`` the number of samples that were found with a margin below 1.

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
        """The number of non-zero coefficients so far."""
        raise NotImplementedError

    def state_dict(self) -> StateDict:
        """What there is to save, without theta and the sampler.

        Raises:
            InputError: a field holds what cannot be saved.
        """
        return save_fields(self, but=("F", "sampler"))

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Makes this state, which has just been started, the one that was saved.

        Raises:
            ValueError: what was saved is not of this kind.
        """
        load_fields(self, saved, but=("F", "sampler"))


class Coefficients:
    """alpha in R^m, of which only the non-zero part is ever computed with.

    ``support`` holds the indices j with alpha_j > 0, in the order in which they joined. Both stay in the
    host's memory: single entries change at every step.
    """

    def __init__(self, m: int) -> None:
        self.alpha: Float64[np.ndarray, " m"] = np.zeros(m)
        self._order: Int64[np.ndarray, " m"] = np.empty(m, np.int64)
        self._joined = 0

    @property
    def support(self) -> Int64[np.ndarray, " s"]:
        return self._order[: self._joined]

    def add(self, i: Int64[np.ndarray, " k"], amount: float) -> None:
        """alpha_j += amount for every j in i (no repeats)."""
        joining = i[self.alpha[i] == 0]
        self._order[self._joined : self._joined + len(joining)] = joining
        self._joined += len(joining)
        self.alpha[i] += amount

    def state_dict(self) -> StateDict:
        """The support, in its order, and its alphas."""
        j = self.support.copy()
        return {"support": torch.from_numpy(j), "alpha": torch.from_numpy(self.alpha[j])}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """See ``State.load_state_dict``."""
        expect_keys(saved, ["support", "alpha"])
        s = len(saved["support"])
        j = loaded_like(torch.empty(s, dtype=torch.int64), saved["support"], "support").numpy()
        alpha = loaded_like(torch.empty(s, dtype=torch.float64), saved["alpha"], "alpha").numpy()
        m = len(self.alpha)
        if not (len(np.unique(j)) == s and (j >= 0).all() and (j < m).all() and (alpha > 0).all()):
            raise ValueError(f"the support is not a set of indices below {m} with positive alpha")
        self.alpha[:], self._joined = 0, s
        self._order[:s], self.alpha[j] = j, alpha

    def on(
        self, like: Float[Tensor, " m"], processes: Processes = SINGLE_PROCESS
    ) -> tuple[Int64[Tensor, " s"], Float[Tensor, " s"]]:
        """The support (or the share of one of several processes), and its alphas, as tensors like y."""
        j = processes.shard(self.support).copy()  # torch minds memory that goes on changing
        return torch.from_numpy(j).to(like.device), torch.from_numpy(self.alpha[j]).to(like)


def coefficients(problem: Problem, i: Int64[np.ndarray, " k"], amount: float) -> Coefficients:
    """alpha^(2): ``amount`` on the first samples drawn, 0 elsewhere."""
    alpha = Coefficients(len(problem.y))
    alpha.add(i, amount)
    return alpha


class Rows:
    """A tensor that grows by rows at its end, with room to spare."""

    def __init__(self, first: Float[Tensor, "s ..."]) -> None:
        self._room, self._filled = first, len(first)

    @property
    def tensor(self) -> Float[Tensor, "s ..."]:
        return self._room[: self._filled]

    def append(self, rows: Float[Tensor, "k ..."]) -> None:
        filled = self._filled + len(rows)
        if filled > len(self._room):
            room = self._room.new_empty(2 * filled, *rows.shape[1:])
            room[: self._filled] = self.tensor
            self._room = room
        self._room[self._filled : filled] = rows
        self._filled = filled

    def state_dict(self) -> StateDict:
        """The rows."""
        return {"rows": self.tensor}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """See ``State.load_state_dict``."""
        expect_keys(saved, ["rows"])
        like = self._room.new_empty(len(saved["rows"]), *self._room.shape[1:])
        self._room = loaded_like(like, saved["rows"], "rows")
        self._filled = len(self._room)


S = TypeVar("S", bound=State)


class Trainer(Generic[S]):
    """An algorithm. One of your own derives from this and is listed in ``TRAINERS``.

    Its constructor takes what its YAML file holds. ``nsvm_cli.runs.loop.run`` is the only thing that calls
    ``start``, then ``advance`` until ``total`` steps are done, then ``finish``.
    """

    def __init_subclass__(cls) -> None:
        if "step" in vars(cls) and "advance" not in vars(cls) and cls.advance is not Trainer.advance:
            raise TypeError(f"{cls.__name__} defines step, which the advance it inherits may never call")

    @property
    def total(self) -> int:
        """The value of ``state.t`` at which training ends."""
        raise NotImplementedError

    @property
    def k(self) -> int:
        """The number of samples that a step draws."""
        return 1

    @property
    def last_theta_step(self) -> int:
        """The last step in which theta may move."""
        return self.total

    def progress(self, t: int) -> float:
        """Of the steps in which theta may move, the share that comes before step t."""
        return (t - 1) / self.last_theta_step

    def check(self, problem: Problem, F: FeatureMap) -> None:
        """Refuses, before anything is computed, a problem that this algorithm cannot take.

        Raises:
            InputError: what does not fit together.
        """
        problem.sampler(self.k)

    def start(self, problem: Problem, F: FeatureMap) -> S:
        """The state before the first pass of the loop."""
        raise NotImplementedError

    def step(self, problem: Problem, state: S) -> None:
        """One pass of the loop: step ``state.t + 1``."""
        raise NotImplementedError

    def advance(self, problem: Problem, state: S, until: int) -> None:
        """All passes up to step ``until``. Where the caller stops in between changes no bit."""
        while state.t < until:
            self.step(problem, state)

    def classifies(self, state: S) -> bool:
        """Whether g is worth judging yet."""
        return True

    def finish(self, problem: Problem, state: S) -> Expansion:
        """What g is made of after ``state.t`` steps; leaves the state as it was."""
        raise NotImplementedError

    def save(self, problem: Problem, state: S) -> StateDict:
        """What ``restore`` needs, beside theta; of several processes, each is given all of it."""
        return state.state_dict()

    def restore(self, problem: Problem, F: FeatureMap, saved: Mapping[str, Any]) -> S:
        """The state that was saved, to the bit; theta has been restored already.

        Raises:
            ValueError: what was saved is not of this algorithm, or of another problem.
        """
        state = self.start(problem, F)
        self.load(problem, state, saved)
        return state

    def load(self, problem: Problem, state: S, saved: Mapping[str, Any]) -> None:
        """Makes a state that has just been started the one that was saved; a part of ``restore``."""
        state.load_state_dict(saved)


class BatchTrainer(Trainer[S]):
    """An algorithm whose every step draws ``batch_size`` samples."""

    steps: int
    batch_size: int

    @property
    def k(self) -> int:
        return self.batch_size

    @property
    def total(self) -> int:
        return self.steps


class BareState(State):
    """The state of an algorithm that has no coefficients while it trains."""

    @property
    def support_vectors(self) -> int:
        return 0


@dataclass(kw_only=True)
class SampleState(State):
    """The state of an algorithm whose alpha has one entry for each training sample."""

    coefficients: Coefficients

    @property
    def support_vectors(self) -> int:
        return len(self.coefficients.support)

    def terms(self, problem: Problem) -> tuple[Int64[Tensor, " s"], Float[Tensor, " s"]]:
        """This process's share of the support: the indices j, and alpha_j y_j."""
        j, alpha = self.coefficients.on(problem.y, problem.processes)
        return j, alpha * problem.y[j]


def expansion(problem: Problem, state: SampleState, lam: float) -> Expansion:
    """g(x) = 1/(lambda t) sum_j alpha_j y_j K(F_theta(x_j), F_theta(x)), its non-zero terms."""
    j, alpha = state.coefficients.on(problem.y)
    return Expansion(state.F(problem.at(j)), alpha, problem.y[j], lam * state.t)
