"""What compiled functions cover, and when they are worth it. Nothing here needs Numba before it is used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from torch import Tensor, nn

from nsvm_cli.engines.look_ahead import trainers as look_ahead
from nsvm_cli.models.dropout import Dropout
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import RBF
from nsvm_cli.models.losses import Binary, CrammerSinger, Hinge
from nsvm_cli.models.networks import CNN, MLP, Normalize, WithOutput
from nsvm_cli.models.optimizers import SGD
from nsvm_cli.trainers import Problem, Trainer
from nsvm_cli.trainers.alg1 import Alg1
from nsvm_cli.trainers.alg2 import Alg2
from nsvm_cli.trainers.alg3 import Alg3
from nsvm_cli.trainers.alg4 import Alg4
from nsvm_cli.trainers.pegasos import Pegasos
from nsvm_cli.trainers.svc import SVC

COMPILED: set[type] = {Pegasos, Alg1, Alg2, Alg3, Alg4, SVC}
COMPILED |= {RBF, Hinge, Binary, CrammerSinger, SGD}
"""What has a compiled form, beside networks. What is derived from these may compute something else."""


def uncovered(trainer: Trainer[Any], problem: Problem, F: FeatureMap) -> str | None:
    """Return what compiled functions do not cover in this run; None if they cover it."""
    if beyond := look_ahead.uncovered(trainer, problem, F):
        return beyond
    if problem.x.device.type != "cpu":
        return f"device={problem.x.device.type}"
    if isinstance(trainer, SVC):
        return None
    for name, part in (("algorithm", trainer), ("kernel", problem.K)):
        if type(part) not in COMPILED:
            return f"{name} {type(part).__name__}"
    if option := look_ahead.changed(trainer, ("objective", "loss")):
        return option
    if not {type(problem.loss), type(problem.loss.l)} <= COMPILED:
        return "losses other than hinge, of two classes or by crammer_singer"
    if problem.penalties:
        return "penalties"
    if isinstance(trainer, Pegasos):
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
    if type(settings) not in COMPILED:
        return f"optimizer {type(settings).__name__}"
    if settings.groups:
        return "optimizer.groups"
    return None


def units(parts: Iterable[Trainer[Any]], problem: Problem) -> list[str]:
    """Return the units of compiled code that take the steps of these parts of a run; see ``code``."""
    names = [type(part).__name__.lower() for part in parts if type(part) in COMPILED]
    return [unit(name, problem.x) for name in names]


def unit(algorithm: str, x: Tensor) -> str:
    """Return the name of the unit for an algorithm on samples like x."""
    return f"{algorithm}-{x.dtype}".replace("torch.", "")


def parts_of(network: nn.Module) -> tuple[MLP | CNN, Dropout, Normalize | None] | None:
    """Return a network that compiled functions cover, its dropout, and what normalises its features; None for
    another one.
    """
    normalize: Any = None
    if type(network) is WithOutput:
        network, normalize = network
    if type(network) not in (MLP, CNN) or type(normalize) not in (Normalize, type(None)):
        return None
    (dropout,) = (module for module in network.modules() if isinstance(module, Dropout))
    return cast(Any, network), dropout, normalize


TRAINED = 500_000
"""Parameters of theta above which the products of matrices take the time, and torch is as fast."""

SHORT = {"pegasos": 5_000, "alg1": 1_000, "alg2": 500, "alg3": 500, "alg4": 1_000}
LONG = {"pegasos": 200_000, "alg1": 20_000, "alg2": 4_000, "alg3": 4_000, "alg4": 10_000}
"""The fewest steps of an algorithm for which compiled functions are worth loading, and worth compiling."""


def pays_off(trainer: Trainer[Any], F: FeatureMap, compiled_before: bool) -> bool:
    """Return whether a run is long enough for compiled functions to be loaded, or to be compiled first, and
    its network small enough for them to be faster.
    """
    name = type(trainer).__name__.lower()
    small = not trainer.moves_theta or sum(p.numel() for p in F.network.parameters()) <= TRAINED
    return small and trainer.total >= (SHORT if compiled_before else LONG).get(name, 0)
