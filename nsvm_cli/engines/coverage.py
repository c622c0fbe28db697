"""Decide which runs the engines ``torch`` and ``numba`` support, and when compiled steps are worthwhile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, cast

from torch import Tensor, nn

from nsvm_cli.config.registry import keeps
from nsvm_cli.models.dropout import Dropout
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import RBF
from nsvm_cli.models.losses import Binary, CrammerSinger, Hinge
from nsvm_cli.models.networks import CNN, MLP, MaxPool, Normalize, WithOutput
from nsvm_cli.models.optimizers import SGD
from nsvm_cli.trainers import Problem, Trainer
from nsvm_cli.trainers.alg1 import Alg1
from nsvm_cli.trainers.alg2 import Alg2
from nsvm_cli.trainers.alg3 import Alg3
from nsvm_cli.trainers.alg4 import Alg4
from nsvm_cli.trainers.pegasos import Pegasos
from nsvm_cli.trainers.svc import SVC

STEP_METHODS = (
    *("moves_theta", "step", "advance", "find_violations", "descend", "maintain", "_solver"),
    *("fixed", "evaluate", "terms", "on_violation"),  # added by ``LookAhead``
)
"""Attributes that define the steps of an algorithm."""

REPLACED: dict[type, tuple[str, ...]] = {
    **dict.fromkeys((Pegasos, Alg1, Alg2, Alg3, Alg4), STEP_METHODS),
    SVC: ("solver",),
    RBF: ("__call__", "gradient", "diag", "parts"),
    **dict.fromkeys((Binary, CrammerSinger), ("increments", "of", "curvature")),
    Hinge: ("slope", "value", "curvature"),
    SGD: ("update", "state"),
    **dict.fromkeys((MLP, CNN), ("__init__", "forward")),
    **dict.fromkeys((Dropout, MaxPool, nn.Linear, nn.Conv2d), ("forward",)),
    **dict.fromkeys((nn.ReLU, nn.Flatten, nn.ModuleList), ("forward",)),
}
"""Classes for which an engine has a faster form, and the attributes that the faster form replaces."""


def base_of(part: object) -> type | None:
    """Return the class in ``REPLACED`` whose faster form can replace the object, or None if there is none."""
    base = next((base for base in type(part).__mro__ if base in REPLACED), None)
    return base if base and keeps(type(part), base, *REPLACED[base]) else None


def uncovered_by_torch(trainer: Trainer[Any], problem: Problem, F: FeatureMap) -> str | None:
    """Return a part or setting of a run that look-ahead does not support, or None."""
    if F.draws and trainer.moves_theta:
        return "networks that draw random numbers in training"
    if base_of(trainer) not in (Alg1, Alg2):
        return None
    return changed(trainer, "objective", "projection") or ("penalties" if problem.penalties else None)


def changed(trainer: Trainer[Any], *options: str) -> str | None:
    """Return the first of these settings that differs from its default, as KEY=VALUE, or None."""
    for field in fields(base_of(trainer)):  # type: ignore[arg-type]  # a dataclass
        if field.name in options and (value := getattr(trainer, field.name)) != field.default:
            return f"algorithm.{field.name}={value}"
    return None


def uncovered_by_numba(trainer: Trainer[Any], problem: Problem, F: FeatureMap) -> str | None:
    """Return a part or setting of a run that compiled functions do not support, or None."""
    if uncovered := uncovered_by_torch(trainer, problem, F):
        return uncovered
    if problem.x.device.type != "cpu":
        return f"device={problem.x.device.type}"
    if (base := base_of(trainer)) is None:
        return f"algorithm {type(trainer).__name__}"
    if base is SVC:
        return None
    if base_of(problem.K) is None or F.kernel_parameters:
        return f"kernel {type(problem.K).__name__}"
    if option := changed(trainer, "objective", "loss", "refresh_every", "budget"):
        return option
    if None in map(base_of, (problem.loss, problem.loss.l)):
        return "losses other than hinge with two classes or multiclass=crammer_singer"
    if problem.penalties:
        return "penalties"
    if base is Pegasos:
        return None  # Pegasos takes the features of any network
    if not isinstance(problem.x, Tensor):
        return "images that take more memory than memory_budget"
    if F.kernel_gradient is not None:
        return "kernel.gradient"
    if covered_parts(F.network) is None:
        return "networks other than mlp and cnn"
    if F.augment is not None:
        return "augmentation"
    if not all(p.requires_grad for p in F.network.parameters()):
        return "frozen parameters"
    settings: Any = F.optimizer.settings
    if base_of(settings) is None:
        return f"optimizer {type(settings).__name__}"
    return next((f"optimizer.{name}" for name in ("groups", "clip") if getattr(settings, name)), None)


def units(parts: Iterable[Trainer[Any]], problem: Problem) -> list[str]:
    """Return the names of the compilation units that these algorithms need; see ``engines.numba.code``."""
    bases = [base for part in parts if (base := base_of(part))]
    return [unit(base.__name__.lower(), problem.x) for base in bases]


def unit(algorithm: str, x: Tensor) -> str:
    """Return the name of an algorithm's compilation unit for samples like x, such as ``alg1-float32``."""
    return f"{algorithm}-{x.dtype}".replace("torch.", "")


def covered_parts(network: nn.Module) -> tuple[MLP | CNN, Dropout, Normalize | None] | None:
    """Return the MLP or CNN, its dropout and ``Normalize`` module, or None if the network is unsupported."""
    normalize: Any = None
    if type(network) is WithOutput:
        network, normalize = network
    covered = isinstance(network, MLP | CNN) and None not in map(base_of, network.modules())
    if not covered or type(normalize) not in (Normalize, type(None)):
        return None
    (dropout,) = (module for module in network.modules() if isinstance(module, Dropout))
    return cast(Any, network), dropout, normalize


MOST_PARAMETERS = 500_000
"""Number of parameters of theta above which torch is as fast, since matrix products take most of the time."""

LOAD_FROM = {"pegasos": 5_000, "alg1": 1_000, "alg2": 500, "alg3": 500, "alg4": 1_000}
"""Minimum number of steps of an algorithm for which loading its compiled functions is worthwhile."""

COMPILE_FROM = {"pegasos": 200_000, "alg1": 20_000, "alg2": 4_000, "alg3": 4_000, "alg4": 10_000}
"""Minimum number of steps of an algorithm for which compiling its functions is worthwhile."""


def pays_off(trainer: Trainer[Any], F: FeatureMap, compiled_before: bool) -> bool:
    """Return whether compiled steps are faster, given the length of the run and the size of the network."""
    name = getattr(base_of(trainer), "__name__", "").lower()
    small = not trainer.moves_theta or sum(p.numel() for p in F.network.parameters()) <= MOST_PARAMETERS
    return small and trainer.total >= (LOAD_FROM if compiled_before else COMPILE_FROM).get(name, 0)
