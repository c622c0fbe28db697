"""Algorithms 0 to 4 with compiled stretches of steps, and with the states that they have without."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from nsvm_cli.engines.look_ahead.base import Window
from nsvm_cli.engines.look_ahead.trainers import LookAheadAlg1, LookAheadAlg2, LookAheadPegasos
from nsvm_cli.engines.numba import alg1, alg2, alg3, alg4, forms, pegasos
from nsvm_cli.engines.numba.coverage import unit
from nsvm_cli.engines.numba.forms import BAD_G, DONE
from nsvm_cli.engines.numba.jit import loaded
from nsvm_cli.engines.numba.theta import Theta, fill, kernel_form, support_form, vector
from nsvm_cli.errors import NotFiniteError
from nsvm_cli.randomness import BLOCK, Sampler
from nsvm_cli.trainers import Problem, Trainer
from nsvm_cli.trainers.alg1 import Alg1
from nsvm_cli.trainers.alg2 import Alg2
from nsvm_cli.trainers.alg3 import Alg3
from nsvm_cli.trainers.alg4 import Alg4, Alg4State
from nsvm_cli.trainers.coefficients import SampleState
from nsvm_cli.trainers.pegasos import Pegasos, PegasosState
from nsvm_cli.trainers.terms import Alg1State

Block = tuple[np.ndarray, int, int]
"""The samples of steps that are drawn together, the first of these steps, and the last one to take."""


@cache
def _one_thread() -> None:
    """Let scipy's products of matrices, which compiled functions call, take one thread from now on."""
    import scipy.linalg.cython_blas  # noqa: F401

    for library in ThreadpoolController().lib_controllers:
        if "scipy" in library.filepath:
            library.set_num_threads(1)


def blocks(sampler: Sampler, t: int, until: int, begin: int = 2) -> Iterator[Block]:
    """Yield the blocks from step t + 1 to ``until``. ``begin`` is the first step of all."""
    while t < until:
        block = (t + 1) // BLOCK
        first, last = max(block * BLOCK, begin), min(until, (block + 1) * BLOCK - 1)
        yield sampler.ahead(first), first, last
        t = last


class Stretches:
    """What stretches of steps read and write: the numbers of a state, and theta if it moves.

    Args:
        algorithm: the module of the stretch.
        problem: the problem.
        state: the state.
        lam: lambda.
        x: the samples, or their features where theta does not move.
        T: the last step that moves theta, or None.
    """

    def __init__(
        self, algorithm: ModuleType, problem: Problem, state: Any, lam: float, x: Tensor, T: int | None = None
    ) -> None:
        _one_thread()
        self.problem, self.state, self.stretch = problem, state, algorithm.stretch
        self.theta = None if T is None else Theta.of(state.F, T, x)
        self.unit = unit(algorithm.__name__.rpartition(".")[2], x, None if T is None else state.F)
        self.samples = forms.TrainingSet(x.flatten(1).contiguous().numpy(), problem.host_y, lam)
        ahead, theta = state.engine, self.theta
        self.read = kernel_form(problem.K, x) if theta is None else theta.kernel(problem.K), self.samples
        self.of_theta = () if theta is None else (theta.network, theta.optimizer)
        self.progress = forms.Progress(
            np.array([state.t]),
            np.array([ahead.last_violation if ahead else 1]),
            np.array([ahead.mean_gap if ahead else 1.0]),
            np.array([float(state.tally.objective), 0.0, math.nan]),
            np.zeros(3, np.int64),
            np.zeros(1),
        )

    def take(self, block: Block, *own: Any, more: tuple[Any, ...] = ()) -> None:
        """Take the steps of a block, with the stretch's own arguments before and after them.

        Raises:
            NotFiniteError: a quantity is no longer finite. The state is then not a valid one.
        """
        arguments = *self.of_theta, *self.read, *own, self.progress, *block, *more
        status = loaded(self.stretch, self.unit)(*arguments)
        if status != DONE:
            quantity = "the decision value g" if status == BAD_G else "the objective"
            raise NotFiniteError(quantity, int(self.progress.t[0]))

    def store(self, support: forms.Support | None = None) -> None:
        """Write everything back."""
        state, progress, tally = self.state, self.progress, self.state.tally
        total, objectives, latest = progress.objectives.tolist()
        if objectives:
            tally.objective = torch.tensor(total, dtype=torch.float64)
            tally.objectives += int(objectives)
            state.objective = torch.tensor(latest, dtype=self.problem.x.dtype)
        samples, correct, violations = progress.decided.tolist()
        if samples:
            tally.add_decisions(samples, correct, violations)
            state.violations += violations
            state.g = float(progress.g[0])
        state.t = int(progress.t[0])
        if support is not None:
            state.coefficients.joined = int(support.joined[0])
        if state.engine is not None:
            state.engine.last_violation = int(progress.last_violation[0])
            state.engine.mean_gap = float(progress.mean_gap[0])
            state.engine.window = None
        if self.theta is not None:
            self.theta.store()


def _with_room(x: np.ndarray, state: SampleState, more: int) -> np.ndarray:
    """Return the rows of the support, with room for those that may join in so many draws."""
    c = state.coefficients
    out = np.empty((min(len(c.alpha), len(c.support) + more), x.shape[1]), x.dtype)
    out[: len(c.support)] = x[c.support]
    return out


class CompiledPegasos(LookAheadPegasos):
    """Algorithm 0."""

    def advance(self, problem: Problem, state: PegasosState, until: int) -> None:
        support, steps = support_form(state), Stretches(pegasos, problem, state, self.lam, state.z)
        z_support = _with_room(steps.samples.x, state, self.k * (until - state.t))
        s = np.empty((max(1, pegasos.GROUP // self.k) * self.k, support.alpha.shape[1]))
        held, window = np.zeros(1, np.int64), state.engine.window  # the first step of the group that s is of
        if window is not None:
            s[: len(window.s)] = window.s.reshape(len(window.s), -1)[: len(s)]
            held[0] = window.first
        for block in blocks(state.sampler, state.t, until):
            steps.take(block, support, z_support, more=(s, held))
        steps.store(support)
        if held[0]:
            i = state.sampler.ahead(int(held[0]))[: len(s) // self.k].ravel()
            of_outputs = s[: len(i)].reshape(len(i), *problem.task.outputs)
            state.engine.window = Window(int(held[0]), self.k, i, problem.host_y[i], of_outputs)


class CompiledAlg1(LookAheadAlg1):
    """Algorithm 1."""

    def advance(self, problem: Problem, state: Alg1State, until: int) -> None:
        steps = Stretches(alg1, problem, state, self.lam, problem.x, self.last_theta_step)
        filled = np.array([state.z.filled])
        for block in blocks(state.sampler, state.t, until):
            i, z, alpha = (rows.reserve(self.k * len(block[0])) for rows in (state.i, state.z, state.alpha))
            steps.take(block, i.numpy(), z.numpy(), alpha.reshape(len(alpha), -1).numpy(), filled)
            state.i.filled = state.z.filled = state.alpha.filled = int(filled[0])
        steps.store()


class CompiledAlg2(LookAheadAlg2):
    """Algorithm 2."""

    def advance(self, problem: Problem, state: SampleState, until: int) -> None:
        support = support_form(state)
        steps = Stretches(alg2, problem, state, self.lam, problem.x, self.last_theta_step)
        x_j = _with_room(steps.samples.x, state, self.k * (until - state.t))
        for block in blocks(state.sampler, state.t, until):
            steps.take(block, support, x_j)
        steps.store(support)


class CompiledAlg3(Alg3):
    """Algorithm 3."""

    def advance(self, problem: Problem, state: SampleState, until: int) -> None:
        support = support_form(state)
        steps = Stretches(alg3, problem, state, self.lam, problem.x, self.last_theta_step)
        centred = problem.task.centred if self.centred is None else self.centred
        for block in blocks(state.sampler, state.t, until):
            steps.take(block, support, more=(self.mu, centred))
        steps.store(support)


class CompiledAlg4(Alg4):
    """Algorithm 4: Part 1, and Part 2 if its solver is compiled."""

    def _solver(self, steps: int) -> Trainer[Any]:
        solver = super()._solver(steps)
        if type(solver) is not Pegasos:
            return solver
        return CompiledPegasos(solver.steps, solver.lam, solver.batch_size)

    def _advance_part_1(self, problem: Problem, state: Alg4State, until: int) -> None:
        if state.t >= until:
            return
        centred = problem.task.centred if self.centred is None else self.centred
        classes = len(problem.task.classes) if problem.task.outputs else 1
        steps = Stretches(alg4, problem, state, self.lam, problem.x, self.last_theta_step)
        means, averaged = ([*state.mean.mean.values()], state.mean.steps) if state.mean else ([], 0)
        mean = vector([problem.x.new_empty(0), *means])
        for block in blocks(state.sampler, state.t, until, begin=1):
            steps.take(block, more=(classes, centred, mean, averaged))
        steps.store()
        fill(means, mean)


TRAINERS: dict[type[Trainer[Any]], type[Trainer[Any]]] = {
    Pegasos: CompiledPegasos,
    Alg1: CompiledAlg1,
    Alg2: CompiledAlg2,
    Alg3: CompiledAlg3,
    Alg4: CompiledAlg4,
}
