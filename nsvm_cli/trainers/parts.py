"""What the settings of a run name that needs no data: its parts, and the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from nsvm_cli.config.registry import build
from nsvm_cli.config.settings import Settings
from nsvm_cli.errors import InputError
from nsvm_cli.models.composed_kernels import kernel_of
from nsvm_cli.models.kernel_gradients import Differences, build_gradient
from nsvm_cli.models.kernels import Kernel
from nsvm_cli.models.losses import LOSSES
from nsvm_cli.models.optimizers import OPTIMIZERS, Rule
from nsvm_cli.parallel.device import select_device
from nsvm_cli.trainers import Trainer, build_trainer


@dataclass(frozen=True)
class Parts:
    """The parts of a run; ``gradient`` estimates that of the kernel, if its settings ask for it."""

    algorithm: Trainer[Any]
    kernel: Kernel
    gradient: Differences | None
    optimizer: Rule
    device: torch.device


def build_parts(settings: Settings) -> Parts:
    """Return the parts, set up the device, and check that the loss, which needs data, accepts its settings.

    Raises:
        InputError: a name or a setting is wrong, or there is no such device.
    """
    algorithm, loss = build_trainer(settings.algorithm), settings.loss
    if settings.calibration == "sigmoid" and settings.task == "regression":
        raise InputError("calibration=sigmoid gives probabilities of classes, and task=regression has none")
    if settings.class_weight and settings.task == "regression":
        raise InputError("class_weight is for classes, and task=regression has none")
    if loss is not None:
        build(LOSSES, "loss", loss)
    if not algorithm.trains_svm and (loss or settings.full_objective):
        wrong = f"loss={loss['name']}" if loss else "full_objective"
        raise InputError(f"{wrong} needs an SVM, and algorithm={settings.algorithm['name']} trains none")
    K, gradient = kernel_of(settings), build_gradient(settings.kernel)
    optimizer = build(OPTIMIZERS, "optimizer", settings.optimizer)
    device = select_device(settings.device, settings.threads)
    return Parts(algorithm, K, gradient, optimizer, device)
