"""What compiled functions cover, and when they are worth it. Nothing here needs Numba before it is used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from torch import Tensor, nn

from nsvm_cli.engines.look_ahead import trainers as look_ahead
from nsvm_cli.engines.look_ahead.trainers import base_of
from nsvm_cli.models.dropout import Dropout
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.networks import CNN, MLP, Normalize, WithOutput
from nsvm_cli.trainers import Problem, Trainer
from nsvm_cli.trainers.pegasos import Pegasos
from nsvm_cli.trainers.svc import SVC


def uncovered(trainer: Trainer[Any], problem: Problem, F: FeatureMap) -> str | None:
    """Return what compiled functions do not cover in this run; None if they cover it."""
    if beyond := look_ahead.uncovered(trainer, problem, F):
        return beyond
    if problem.x.device.type != "cpu":
        return f"device={problem.x.device.type}"
    if (base := base_of(trainer)) is None:
        return f"algorithm {type(trainer).__name__}"
    if base is SVC:
        return None
    if base_of(problem.K) is None or F.of_kernel:
        return f"kernel {type(problem.K).__name__}"
    if option := look_ahead.changed(trainer, ("objective", "loss")):
        return option
    if None in map(base_of, (problem.loss, problem.loss.l)):
        return "losses other than hinge, of two classes or by crammer_singer"
    if problem.penalties:
        return "penalties"
    if base is Pegasos:
        return None  # which takes the features of any network
    if F.kernel_gradient is not None:
        return "kernel.gradient"
    if parts_of(F.network) is None:
        return "networks other than mlp and cnn"
    if F.augment is not None:
        return "augmentation"
    if not all(p.requires_grad for p in F.network.parameters()):
        return "parameters that do not move"
    settings: Any = getattr(F.optimizer, "settings", None)
    if base_of(settings) is None:
        return f"optimizer {type(settings).__name__}"
    return "optimizer.groups" if settings.groups else None


def units(parts: Iterable[Trainer[Any]], problem: Problem) -> list[str]:
    """Return the units of compiled code that take the steps of these parts of a run; see ``code``."""
    bases = [base for part in parts if (base := base_of(part))]
    return [unit(base.__name__.lower(), problem.x) for base in bases]


def unit(algorithm: str, x: Tensor) -> str:
    """Return the name of the unit for an algorithm on samples like x."""
    return f"{algorithm}-{x.dtype}".replace("torch.", "")


def parts_of(network: nn.Module) -> tuple[MLP | CNN, Dropout, Normalize | None] | None:
    """Return a covered network, its dropout, and what normalises its features; None for any other one."""
    normalize: Any = None
    if type(network) is WithOutput:
        network, normalize = network
    covered = isinstance(network, MLP | CNN) and None not in map(base_of, network.modules())
    if not covered or type(normalize) not in (Normalize, type(None)):
        return None
    (dropout,) = (module for module in network.modules() if isinstance(module, Dropout))
    return cast(Any, network), dropout, normalize


TRAINED = 500_000
"""Parameters of theta above which the products of matrices take the time, and torch is as fast."""

SHORT = {"pegasos": 5_000, "alg1": 1_000, "alg2": 500, "alg3": 500, "alg4": 1_000}
LONG = {"pegasos": 200_000, "alg1": 20_000, "alg2": 4_000, "alg3": 4_000, "alg4": 10_000}
"""The fewest steps of an algorithm for which compiled functions are worth loading, and worth compiling."""


def pays_off(trainer: Trainer[Any], F: FeatureMap, compiled_before: bool) -> bool:
    """Return whether a run is long enough, and its network small enough, for compiled steps to be faster."""
    name = getattr(base_of(trainer), "__name__", "").lower()
    small = not trainer.moves_theta or sum(p.numel() for p in F.network.parameters()) <= TRAINED
    return small and trainer.total >= (SHORT if compiled_before else LONG).get(name, 0)
