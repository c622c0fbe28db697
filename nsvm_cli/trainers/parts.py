"""What the settings of a run name that needs no data: its parts, and the device."""

from __future__ import annotations

from typing import Any

import torch

from nsvm_cli.config.registry import build
from nsvm_cli.config.settings import Settings
from nsvm_cli.errors import InputError
from nsvm_cli.models.composed_kernels import kernel_of
from nsvm_cli.models.kernel_gradients import Differences, build_gradient
from nsvm_cli.models.losses import LOSSES
from nsvm_cli.models.optimizers import OPTIMIZERS, Rule
from nsvm_cli.parallel.device import select_device
from nsvm_cli.trainers import Trainer, build_trainer


def build_parts(settings: Settings) -> tuple[Trainer[Any], Rule, Differences | None, torch.device]:
    """Return the algorithm, the optimizer, what estimates the kernel's gradient, and the device, set up.

    The loss and the kernel, which need data, are only checked to accept their settings.

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
    kernel_of(settings)
    gradient = build_gradient(settings.kernel)
    optimizer = build(OPTIMIZERS, "optimizer", settings.optimizer)
    return algorithm, optimizer, gradient, select_device(settings.device, settings.threads)
