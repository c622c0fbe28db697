"""Algorithms 0, 1, 2 and 4 with look-ahead: the steps that ``step`` defines, many at a time."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import fields
from types import new_class
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from nsvm_cli.config.registry import keeps
from nsvm_cli.engines.look_ahead.base import Amount, Evaluation, LookAhead, Terms, descend
from nsvm_cli.engines.numba.code import is_usable
from nsvm_cli.models.dropout import Dropout
from nsvm_cli.models.feature_map import Batch, FeatureMap
from nsvm_cli.models.kernels import RBF, Kernel
from nsvm_cli.models.losses import Binary, CrammerSinger, Hinge
from nsvm_cli.models.networks import CNN, MLP, MaxPool
from nsvm_cli.models.objectives import products
from nsvm_cli.models.optimizers import SGD
from nsvm_cli.trainers.alg1 import Alg1, Alg1State
from nsvm_cli.trainers.alg2 import Alg2
from nsvm_cli.trainers.alg3 import Alg3
from nsvm_cli.trainers.alg4 import Alg4
from nsvm_cli.trainers.base import Problem, Trainer
from nsvm_cli.trainers.coefficients import SampleState
from nsvm_cli.trainers.dual import Dual
from nsvm_cli.trainers.pegasos import Pegasos
from nsvm_cli.trainers.svc import SVC


class LookAheadPegasos(LookAhead[SampleState], Pegasos):
    def evaluate(self, problem: Problem, state: SampleState, i: Int64[np.ndarray, " p"]) -> Evaluation:
        z = state.features(problem, i)
        return Evaluation(Batch(z, i), z)  # Algorithm 0 uses only the features of a sample

    def terms(self, problem: Problem, state: SampleState) -> Terms:
        j, alpha = state.terms(problem)
        return state.features(problem, j), alpha

    def on_violation(self, problem: Problem, state: SampleState, t: int, at: Evaluation, a: Amount) -> None:
        state.coefficients.add(at.x.i, a)


class LookAheadAlg1(LookAhead[Alg1State], Alg1):
    def terms(self, problem: Problem, state: Alg1State) -> Terms:
        return state.z, state.alpha

    def on_violation(self, problem: Problem, state: Alg1State, t: int, at: Evaluation, a: Amount) -> None:
        lam = self.lam
        alpha_t = torch.from_numpy(a).to(problem.y)
        z_s, alpha_s = state.z, state.alpha
        c = products(-alpha_t / (lam * (t - 1)), alpha_s)

        def objective(K: Kernel, z: Tensor) -> tuple[Tensor, list[Tensor]]:
            """-alpha_t / (lambda (t-1)) sum_s alpha_s K(z_s, F_theta(x_t)), summed over violations"""
            K_ts = K(z, z_s)
            return (K_ts.reshape(1, -1) @ c.flatten()).sum(), [K.gradient(z, z_s, K_ts, c)]

        state.objective = descend(state.F, [at], objective, problem.K, t, self.last_theta_step)
        state.add(at.x.i, at.z, alpha_t)


class LookAheadAlg2(LookAhead[SampleState], Alg2):
    def terms(self, problem: Problem, state: SampleState) -> Terms:
        _, alpha, at_j = self._support(problem, state)
        return at_j.z, alpha

    def on_violation(self, problem: Problem, state: SampleState, t: int, at: Evaluation, a: Amount) -> None:
        lam, i = self.lam, at.x.i
        j, alpha_j, at_j = self._support(problem, state)
        alpha_i = torch.from_numpy(a).to(problem.y)
        c = products(alpha_j, -alpha_i / (lam * (t - 1)))
        # a violating x_i that is one of the x_j passes through F only once
        shared = torch.from_numpy(j == i[:, None]).nonzero().to(c.device)
        i_shared, j_shared = shared[:, 0], shared[:, 1]
        new = np.setdiff1d(np.arange(len(i)), i_shared.cpu().numpy())
        i_new = torch.from_numpy(new).to(c.device)

        def objective(K: Kernel, z_j: Tensor, *z_new: Tensor) -> tuple[Tensor, list[Tensor]]:
            """-alpha_i / (lambda (t-1)) sum_j alpha_j K(F_theta(x_j), F_theta(x_i)), summed over i"""
            z_i = z_j.new_empty(len(i), z_j.shape[1])
            z_i[i_shared] = z_j[j_shared]
            z_i[i_new] = torch.cat([*z_new, z_i[:0]])
            K_ji = K(z_j, z_i)
            # in the order of ``step``, on which random directions of kernel.gradient depend
            by_z_i, by_z_j = K.gradient(z_i, z_j, K_ji.T, c.T), K.gradient(z_j, z_i, K_ji, c)
            by_z_j[j_shared] += by_z_i[i_shared]
            return c.flatten() @ K_ji.flatten(), [by_z_j, *(by_z_i[i_new] for _ in z_new)]

        batch = [at_j, at.rows(new)] if len(new) else [at_j]
        state.objective = descend(state.F, batch, objective, problem.K, t, self.last_theta_step)
        state.coefficients.add(i, a)

    def _support(
        self, problem: Problem, state: SampleState
    ) -> tuple[Int64[np.ndarray, " s"], Float[Tensor, " s *outputs"], Evaluation]:
        """Return the indices j of the support vectors, alpha_j, and F_theta(x_j)."""
        ahead, moves = state.engine, (state.F.theta_steps, state.violations)
        if ahead.moves != moves:
            j, alpha = state.terms(problem)
            ahead.moves, ahead.support = moves, (j, alpha, self.evaluate(problem, state, j))
        support: tuple[np.ndarray, Tensor, Evaluation] = ahead.support
        return support


class LookAheadAlg4(Alg4):
    """Algorithm 4: Part 1 step by step, and Part 2 with look-ahead."""

    def _solver(self, steps: int) -> Trainer[Any]:
        return faster(super()._solver(steps), TRAINERS)


class WorkingSetSVC(SVC):
    """The SVM by working sets, where Numba is installed."""

    def solver(self, problem: Problem, z: Float[Tensor, "n d"], dual: Dual) -> Any:
        if not is_usable():
            return super().solver(problem, z, dual)
        from nsvm_cli.engines.numba.kernel_rows import Rows
        from nsvm_cli.engines.numba.working_sets import WorkingSets

        return WorkingSets(dual, Rows(problem.K, z, problem.memory_budget), self.tol)


STEPS = (
    *("moves_theta", "step", "advance", "compare", "descend", "_advance_part_1", "_solver"),
    *("fixed", "evaluate", "terms", "on_violation"),  # which ``LookAhead`` adds
)
"""What the steps of an algorithm consist of."""

REPLACED: dict[type, tuple[str, ...]] = {
    **dict.fromkeys((Pegasos, Alg1, Alg2, Alg3, Alg4), STEPS),
    SVC: ("solver",),
    RBF: ("__call__", "gradient", "diag", "parts"),
    **dict.fromkeys((Binary, CrammerSinger), ("step", "of", "curvature")),
    Hinge: ("slope", "value", "curvature"),
    SGD: ("update", "kept"),
    **dict.fromkeys((MLP, CNN), ("__init__", "forward")),
    **dict.fromkeys((Dropout, MaxPool, nn.Linear, nn.Conv2d), ("forward",)),
    **dict.fromkeys((nn.ReLU, nn.Flatten, nn.ModuleList), ("forward",)),
}
"""The classes that have another form in an engine, and what this takes the place of."""


def base_of(part: object) -> type | None:
    """Return the class whose form in an engine computes what a part does: its own, or one that it derives
    from without overriding what that form takes the place of; None if there is none.
    """
    base = next((base for base in type(part).__mro__ if base in REPLACED), None)
    return base if base and keeps(type(part), base, *REPLACED[base]) else None


OPTIONS: dict[type | None, tuple[str, ...]] = {
    Alg1: ("refresh_every", "budget"),
    Alg2: ("objective", "projection"),
}
"""Settings that look-ahead covers at their defaults."""


def uncovered(trainer: Trainer[Any], problem: Problem, F: FeatureMap) -> str | None:
    """Return what look-ahead does not cover in this run; None if it covers it."""
    if F.draws and trainer.moves_theta:
        return "networks that draw at random in training"
    if (options := OPTIONS.get(base_of(trainer))) is None:
        return None
    return changed(trainer, options) or ("penalties" if problem.penalties else None)


def changed(trainer: Trainer[Any], options: tuple[str, ...]) -> str | None:
    """Return the first of these settings, where the algorithm has them, that is not at our default."""
    for field in fields(base_of(trainer)):  # type: ignore[arg-type]  # a dataclass
        if field.name in options and (value := getattr(trainer, field.name)) != field.default:
            return f"algorithm.{field.name}={value}"
    return None


def faster(trainer: Trainer[Any], trainers: Mapping[Any, type[Trainer[Any]]]) -> Trainer[Any]:
    """Return the same algorithm as the class that ``trainers`` have for it; itself if they have none."""
    if (fast := trainers.get(base_of(trainer))) is None:
        return trainer
    kind, trainer = type(trainer), copy(trainer)
    joined = fast if issubclass(fast, kind) else new_class(kind.__name__, (fast, kind))
    object.__setattr__(trainer, "__class__", joined)  # its fields are frozen
    return trainer


TRAINERS: dict[type[Trainer[Any]], type[Trainer[Any]]] = {
    Pegasos: LookAheadPegasos,
    Alg1: LookAheadAlg1,
    Alg2: LookAheadAlg2,
    Alg4: LookAheadAlg4,
    SVC: WorkingSetSVC,
}
