"""Algorithms 0 to 4 with compiled training loops; see ``nsvm_cli.engines.numba.stretches``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
from threadpoolctl import ThreadpoolController

from nsvm_cli.engines import look_ahead
from nsvm_cli.engines.coverage import unit
from nsvm_cli.engines.numba import forms, stretches
from nsvm_cli.engines.numba.jit import loaded
from nsvm_cli.errors import NotFiniteError
from nsvm_cli.randomness import BLOCK
from nsvm_cli.trainers import Problem, Trainer
from nsvm_cli.trainers.alg1 import Alg1, Alg1State
from nsvm_cli.trainers.alg2 import Alg2
from nsvm_cli.trainers.alg3 import Alg3
from nsvm_cli.trainers.alg4 import Alg4, Alg4State
from nsvm_cli.trainers.coefficients import SampleState
from nsvm_cli.trainers.pegasos import Pegasos


@cache
def _one_thread() -> None:
    """Limit SciPy's matrix products, which compiled functions call, to one thread from now on."""
    import scipy.linalg.cython_blas  # noqa: F401

    for library in ThreadpoolController().lib_controllers:
        if "scipy" in library.filepath:
            library.set_num_threads(1)


class Stretches:
    """A compiled training loop of a trainer, and its arguments, which are made from the state and theta."""

    def __init__(
        self, stretch: Callable[..., None], trainer: Trainer[Any], problem: Problem, state: Any
    ) -> None:
        _one_thread()
        self.problem, self.state, self.stretch = problem, state, stretch
        self.T = trainer.last_theta_step if trainer.moves_theta else None
        network: Any = None
        x = z = problem.x if trainer.moves_theta else state.z
        if trainer.moves_theta:
            network = forms.network_form(state.F, x.shape[1:])
            z = x.new_empty(0, network.width)
        self.unit = unit(stretch.__name__, x)
        K = forms.kernel_form(problem.K, z, network is not None and network.normalize)
        self.support = None
        if isinstance(state, SampleState):
            c = state.coefficients
            alpha = c.alpha.reshape(len(c.alpha), -1)  # stretches change this memory
            order = np.pad(c.support, (0, len(alpha) - len(c.support)))
            self.support = forms.Support(alpha, order, np.array([len(c.support)]), c.in_support)
        ahead = state.engine or look_ahead.Ahead()
        progress = forms.Progress(
            np.array([state.t]),
            np.array([ahead.last_violation]),
            np.array([ahead.mean_gap]),
            np.array([float(state.tally.objective), 0.0, math.nan]),
            np.zeros(3, np.int64),
            np.zeros(1),
        )
        numbers = x.flatten(1).contiguous().numpy()
        weights = np.empty(0) if problem.weights is None else problem.weights
        lam = trainer.lam or 0.0  # null in auto, whose Part 1 does not use lambda
        self.run = forms.Run(numbers, problem.host_y, weights, lam, K, network, progress)

    def blocks(self, until: int, begin: int = 2) -> Iterator[tuple[np.ndarray, int, int]]:
        """For each block of steps, yield the drawn samples, the first step, and the last step to take."""
        t = self.state.t  # the algorithm starts with step ``begin``
        while t < until:
            block = (t + 1) // BLOCK
            first, last = max(block * BLOCK, begin), min(until, (block + 1) * BLOCK - 1)
            if self.T is not None:
                rates, rate = self.run.F.rates, self.state.F.optimizer.settings.rate
                progress = (np.arange(t, last) / self.T).tolist()
                rates[(t + 1) % BLOCK : last % BLOCK + 1] = [*map(rate, progress)]
            yield self.state.sampler.rest_of_block(first), first, last
            t = last

    def take(self, *arguments: Any) -> None:
        """Take the steps of a block, which the last three arguments describe (see ``blocks``).

        Raises:
            NotFiniteError: a quantity is no longer finite. The state is then invalid.
        """
        try:
            loaded(self.stretch, self.unit)(self.run, *arguments)
        except FloatingPointError as error:  # its message is the quantity
            raise NotFiniteError(str(error), int(self.run.progress.t[0])) from None

    def store(self) -> None:
        """Copy the results of the steps to the state and to theta."""
        state, progress, tally = self.state, self.run.progress, self.state.tally
        total, objectives, latest = progress.objectives.tolist()
        if objectives:
            tally.objective = torch.tensor(total, dtype=torch.float64)
            tally.objectives += int(objectives)
            state.objective = torch.tensor(latest, dtype=self.problem.x.dtype)
            forms.fill([p.data for p in state.F.network.parameters()], self.run.F.theta)
            forms.fill(state.F.optimizer.state["momenta"], self.run.F.momenta)
            state.F.theta_steps += int(objectives)
        samples, correct, violations = progress.decided.tolist()
        if samples:
            tally.add_decisions(samples, correct, violations)
            state.violations += violations
            state.g = float(progress.g[0])
        state.t = int(progress.t[0])
        if self.support is not None:
            state.coefficients.support = self.support.order[: self.support.joined[0]]
        if state.engine is not None:
            state.engine.last_violation = int(progress.last_violation[0])
            state.engine.mean_gap = float(progress.mean_gap[0])
            state.engine.window = None


def _support_with_room(x: np.ndarray, state: SampleState, draws: int) -> np.ndarray:
    """Return the rows of the support, with room for the rows that this number of draws may add."""
    c = state.coefficients
    out = np.empty((min(len(c.alpha), len(c.support) + draws), x.shape[1]), x.dtype)
    out[: len(c.support)] = x[c.support]
    return out


class CompiledPegasos(look_ahead.LookAheadPegasos):
    def advance(self, problem: Problem, state: SampleState, until: int) -> None:
        steps, window = Stretches(stretches.pegasos, self, problem, state), state.engine.window
        z_support = _support_with_room(steps.run.x, state, self.k * (until - state.t))
        s = np.empty((max(1, stretches.LONGEST // self.k) * self.k, math.prod(problem.task.outputs)))
        group_start = np.array([window.first if window else 0])  # s belongs to this group
        if window:
            s[: len(window.s)] = window.s.reshape(len(window.s), -1)[: len(s)]
        for block in steps.blocks(until):
            steps.take(steps.support, z_support, s, group_start, *block)
        steps.store()
        if group_start[0]:
            i = state.sampler.rest_of_block(int(group_start[0]))[: len(s) // self.k].ravel()
            of_outputs = s[: len(i)].reshape(len(i), *problem.task.outputs)
            state.engine.window = look_ahead.Window(int(group_start[0]), self.k, i, of_outputs)


class CompiledAlg1(look_ahead.LookAheadAlg1):
    def advance(self, problem: Problem, state: Alg1State, until: int) -> None:
        steps, filled = Stretches(stretches.alg1, self, problem, state), np.array([len(state.i)])
        for block in steps.blocks(until):
            terms, room = (state.i, state.z, state.alpha), self.k * len(block[0])
            i, z, alpha = (torch.cat([rows, rows.new_empty(room, *rows.shape[1:])]) for rows in terms)
            steps.take(i.numpy(), z.numpy(), alpha.reshape(len(alpha), -1).numpy(), filled, *block)
            state.i, state.z, state.alpha = (rows[: filled[0]] for rows in (i, z, alpha))
        steps.store()


class CompiledAlg2(look_ahead.LookAheadAlg2):
    def advance(self, problem: Problem, state: SampleState, until: int) -> None:
        steps = Stretches(stretches.alg2, self, problem, state)
        x_j = _support_with_room(steps.run.x, state, self.k * (until - state.t))
        for block in steps.blocks(until):
            steps.take(steps.support, x_j, *block)
        steps.store()


class CompiledAlg3(Alg3):
    def advance(self, problem: Problem, state: SampleState, until: int) -> None:
        steps = Stretches(stretches.alg3, self, problem, state)
        centred = problem.task.centred if self.centred is None else self.centred
        for block in steps.blocks(until):
            steps.take(steps.support, self.mu, centred, *block)
        steps.store()


class CompiledAlg4(Alg4):
    """Algorithm 4 with a compiled Part 1, and a compiled Part 2 if its solver has a compiled form."""

    def _solver(self, steps: int) -> Trainer[Any]:
        return look_ahead.with_faster_class(super()._solver(steps), COMPILED)

    def advance(self, problem: Problem, state: Alg4State, until: int) -> None:
        if state.t < (end := min(until, self.last_theta_step)):
            self._advance_part_1(problem, state, end)
        super().advance(problem, state, until)

    def _advance_part_1(self, problem: Problem, state: Alg4State, until: int) -> None:
        steps, T = Stretches(stretches.alg4, self, problem, state), self.last_theta_step
        centred = problem.task.centred if self.centred is None else self.centred
        means, averaged = ([*state.mean.mean.values()], state.mean.steps) if state.mean else ([], 0)
        mean = forms.vector([problem.x.new_empty(0), *means])
        for block in steps.blocks(until, begin=1):
            steps.take(math.prod(problem.task.outputs), centred, mean, T - averaged, *block)
        if means and until == T:
            steps.run.F.theta[:] = mean
        steps.store()
        forms.fill(means, mean)


COMPILED = look_ahead.LOOK_AHEAD | {
    Pegasos: CompiledPegasos,
    Alg1: CompiledAlg1,
    Alg2: CompiledAlg2,
    Alg3: CompiledAlg3,
    Alg4: CompiledAlg4,
}
