"""Algorithms 0 to 4 with compiled stretches of steps, and with the states that they have without."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
from threadpoolctl import ThreadpoolController

from nsvm_cli.engines.look_ahead.base import Window
from nsvm_cli.engines.look_ahead.trainers import LookAheadAlg1, LookAheadAlg2, LookAheadPegasos
from nsvm_cli.engines.numba import alg1, alg2, alg3, alg4, forms, pegasos
from nsvm_cli.engines.numba.coverage import covers_loss, unit
from nsvm_cli.engines.numba.forms import BAD_G, DONE
from nsvm_cli.engines.numba.jit import loaded
from nsvm_cli.engines.numba.theta import Theta, fill, kernel_form, samples_form, support_form, vector
from nsvm_cli.errors import NotFiniteError
from nsvm_cli.randomness import BLOCK, Sampler
from nsvm_cli.trainers import Problem, State, Trainer
from nsvm_cli.trainers.alg1 import Alg1
from nsvm_cli.trainers.alg2 import Alg2
from nsvm_cli.trainers.alg3 import Alg3
from nsvm_cli.trainers.alg4 import Alg4, Alg4State
from nsvm_cli.trainers.coefficients import SampleState
from nsvm_cli.trainers.pegasos import Pegasos, PegasosState
from nsvm_cli.trainers.terms import Alg1State


@cache
def _one_thread() -> None:
    """Let scipy's products of matrices, which compiled functions call, take one thread from now on."""
    import scipy.linalg.cython_blas  # noqa: F401

    for library in ThreadpoolController().lib_controllers:
        if "scipy" in library.filepath:
            library.set_num_threads(1)


def blocks(sampler: Sampler, t: int, until: int, begin: int = 2) -> Iterator[tuple[np.ndarray, int, int]]:
    """Yield the blocks of steps that are drawn together, from step t + 1 to ``until``: the samples of all
    steps of a block, its first step, and the last one to take. ``begin`` is the first step of all.
    """
    while t < until:
        block = (t + 1) // BLOCK
        first, last = max(block * BLOCK, begin), min(until, (block + 1) * BLOCK - 1)
        yield sampler.ahead(first), first, last
        t = last


@dataclass
class Stretches:
    """What stretches of steps read and write: the numbers of a state, and theta if it moves."""

    problem: Problem
    state: State
    unit: str
    theta: Theta | None = None
    progress: forms.Progress = field(init=False)

    def __post_init__(self) -> None:
        _one_thread()
        state = self.state
        last, gap = 1, 1.0
        if state.engine is not None:
            last, gap = state.engine.last_violation, state.engine.mean_gap
        self.progress = forms.Progress(
            np.array([state.t]),
            np.array([last]),
            np.array([gap]),
            np.array([float(state.tally.objective), 0.0, math.nan]),
            np.zeros(3, np.int64),
            np.zeros(1),
        )

    def take(self, stretch: Callable[..., int], *arguments: Any) -> None:
        """Take a stretch.

        Raises:
            NotFiniteError: a quantity is no longer finite. The state is then not a valid one.
        """
        theta = self.theta
        of_theta = () if theta is None else (theta.network, theta.optimizer)
        status = loaded(stretch, self.unit)(*of_theta, *arguments)
        if status != DONE:
            quantity = "the decision value g" if status == BAD_G else "the objective"
            raise NotFiniteError(quantity, int(self.progress.t[0]))

    def store(self) -> None:
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
        if state.engine is not None:
            state.engine.last_violation = int(progress.last_violation[0])
            state.engine.mean_gap = float(progress.mean_gap[0])
        if self.theta is not None:
            self.theta.store()


def _with_room(rows: np.ndarray, room: int) -> np.ndarray:
    """Return a copy of the rows of a matrix, with room for others behind them."""
    out = np.empty((room, rows.shape[1]), rows.dtype)
    out[: len(rows)] = rows
    return out


def _room(state: SampleState, k: int, steps: int) -> int:
    """Return how large the support may be after so many steps."""
    c = state.coefficients
    return min(len(c.alpha), len(c.support) + k * steps)


class CompiledPegasos(LookAheadPegasos):
    """Algorithm 0. As Part 2 of Algorithm 4 it may get a loss that is not covered: that is torch's."""

    def advance(self, problem: Problem, state: PegasosState, until: int) -> None:
        if not covers_loss(problem):
            super().advance(problem, state, until)
            return
        K, samples = kernel_form(problem.K, state.z), samples_form(problem, state.z, self.lam)
        support, steps = support_form(state), Stretches(problem, state, unit("pegasos", state.z))
        z_support = _with_room(samples.x[state.coefficients.support], _room(state, self.k, until - state.t))
        s = np.empty((max(1, pegasos.GROUP // self.k) * self.k, support.alpha.shape[1]))
        held = np.zeros(1, np.int64)  # the first step of the group that s is of
        if state.engine.window is not None:
            s[: len(state.engine.window.s)] = state.engine.window.s.reshape(len(state.engine.window.s), -1)[
                : len(s)
            ]
            held[0] = state.engine.window.first
        for drawn, first, last in blocks(state.sampler, state.t, until):
            steps.take(
                pegasos.stretch, K, samples, support, z_support, steps.progress, drawn, first, last, s, held
            )
        steps.store()
        state.coefficients.joined = int(support.joined[0])
        state.engine.window = None
        if held[0]:
            i = state.sampler.ahead(int(held[0]))[: len(s) // self.k].ravel()
            of_outputs = s[: len(i)].reshape(len(i), *problem.task.outputs)
            state.engine.window = Window(int(held[0]), self.k, i, problem.host_y[i], of_outputs)


class CompiledAlg1(LookAheadAlg1):
    """Algorithm 1."""

    def advance(self, problem: Problem, state: Alg1State, until: int) -> None:
        samples, theta = (
            samples_form(problem, problem.x, self.lam),
            Theta.of(state.F, self.last_theta_step, problem.x),
        )
        K, steps = (
            theta.kernel(problem.K),
            Stretches(problem, state, unit("alg1", problem.x, state.F), theta),
        )
        filled = np.array([state.z.filled])
        for drawn, first, last in blocks(state.sampler, state.t, until):
            i, z, alpha = (rows.reserve(self.k * len(drawn)) for rows in (state.i, state.z, state.alpha))
            terms = i.numpy(), z.numpy(), alpha.reshape(len(alpha), -1).numpy(), filled
            steps.take(alg1.stretch, K, samples, *terms, steps.progress, drawn, first, last)
            state.i.filled = state.z.filled = state.alpha.filled = int(filled[0])
        steps.store()
        state.engine.window = None


class CompiledAlg2(LookAheadAlg2):
    """Algorithm 2."""

    def advance(self, problem: Problem, state: SampleState, until: int) -> None:
        samples = samples_form(problem, problem.x, self.lam)
        support, theta = support_form(state), Theta.of(state.F, self.last_theta_step, problem.x)
        steps = Stretches(problem, state, unit("alg2", problem.x, state.F), theta)
        room = _room(state, self.k, until - state.t)
        x_j, K = _with_room(samples.x[state.coefficients.support], room), theta.kernel(problem.K)
        for drawn, first, last in blocks(state.sampler, state.t, until):
            steps.take(alg2.stretch, K, samples, support, x_j, steps.progress, drawn, first, last)
        steps.store()
        state.coefficients.joined = int(support.joined[0])
        state.engine.window = None


class CompiledAlg3(Alg3):
    """Algorithm 3."""

    def advance(self, problem: Problem, state: SampleState, until: int) -> None:
        samples, support = samples_form(problem, problem.x, self.lam), support_form(state)
        theta = Theta.of(state.F, self.last_theta_step, problem.x)
        steps = Stretches(problem, state, unit("alg3", problem.x, state.F), theta)
        K = theta.kernel(problem.K)
        centred = problem.task.centred if self.centred is None else self.centred
        for drawn, first, last in blocks(state.sampler, state.t, until):
            of_block = drawn, first, last, self.mu, centred
            steps.take(alg3.stretch, K, samples, support, steps.progress, *of_block)
        steps.store()
        state.coefficients.joined = int(support.joined[0])


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
        theta = Theta.of(state.F, self.last_theta_step, problem.x)
        steps = Stretches(problem, state, unit("alg4", problem.x, state.F), theta)
        samples = samples_form(problem, problem.x, self.lam)
        K = theta.kernel(problem.K)
        means = [*state.mean.mean.values()] if state.mean else []
        mean = vector(means) if means else theta.network.theta[:0].copy()
        for drawn, first, last in blocks(state.sampler, state.t, until, begin=1):
            of_theta = (
                classes,
                centred,
                forms.ALIGNMENT_LOSSES[self.loss],
                mean,
                state.mean.steps if state.mean else 0,
            )
            steps.take(alg4.stretch, K, samples, steps.progress, drawn, first, last, *of_theta)
        steps.store()
        fill(means, mean)


TRAINERS: dict[type[Trainer[Any]], type[Trainer[Any]]] = {
    Pegasos: CompiledPegasos,
    Alg1: CompiledAlg1,
    Alg2: CompiledAlg2,
    Alg3: CompiledAlg3,
    Alg4: CompiledAlg4,
}
