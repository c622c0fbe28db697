"""The parts that the settings of a run name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nsvm_cli.config.registry import build
from nsvm_cli.config.settings import Settings
from nsvm_cli.errors import InputError
from nsvm_cli.models.kernel_gradients import Differences, build_gradient
from nsvm_cli.models.kernels import Kernel, build_kernel
from nsvm_cli.models.losses import LOSSES
from nsvm_cli.models.optimizers import Rule, build_optimizer
from nsvm_cli.trainers import Trainer, build_trainer


@dataclass(frozen=True)
class Parts:
    """The parts that need no data; ``gradient`` estimates that of the kernel, if its settings ask for it."""

    algorithm: Trainer[Any]
    kernel: Kernel
    gradient: Differences | None
    optimizer: Rule


def build_parts(settings: Settings) -> Parts:
    """Return the parts that need no data, and check that the loss, which does, accepts its settings.

    Raises:
        InputError: a name or a setting is wrong.
    """
    algorithm, K = build_trainer(settings.algorithm), build_kernel(settings.kernel)
    parts = Parts(algorithm, K, build_gradient(settings.kernel), build_optimizer(settings.optimizer))
    if settings.calibration and settings.task == "regression":
        raise InputError("calibration=sigmoid gives probabilities of classes, and task=regression has none")
    if settings.loss is not None:
        build(LOSSES, "loss", settings.loss)
    if not parts.algorithm.trains_svm:
        wrong = f"loss={settings.loss['name']}" if settings.loss else "full_objective"
        if settings.loss or settings.full_objective:
            name = settings.algorithm["name"]
            raise InputError(f"{wrong} needs an SVM, and algorithm={name} trains none")
    return parts
