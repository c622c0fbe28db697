"""The registry of algorithms, and functions that build the parts of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from nsvm_cli.config.registry import Registry, build
from nsvm_cli.config.settings import Settings
from nsvm_cli.errors import InputError
from nsvm_cli.models.composed_kernels import kernel_of
from nsvm_cli.models.kernel_gradients import Differences, build_gradient
from nsvm_cli.models.losses import LOSSES
from nsvm_cli.models.optimizers import OPTIMIZERS, Rule
from nsvm_cli.parallel.device import select_device
from nsvm_cli.trainers.alg1 import Alg1
from nsvm_cli.trainers.alg2 import Alg2
from nsvm_cli.trainers.alg3 import Alg3
from nsvm_cli.trainers.alg4 import Alg4
from nsvm_cli.trainers.auto import Auto
from nsvm_cli.trainers.base import Problem, State, Trainer
from nsvm_cli.trainers.cross_entropy import CrossEntropy
from nsvm_cli.trainers.direct import LinearSVM, Logistic, Majority, Trees
from nsvm_cli.trainers.nystroem import Nystroem
from nsvm_cli.trainers.pegasos import LinearPegasos, Pegasos
from nsvm_cli.trainers.svc import SVC

__all__ = ["TRAINERS", "Problem", "State", "Trainer", "build_parts", "build_trainer"]

TRAINERS: Registry[type[Trainer[Any]]] = Registry("algorithm", Trainer)
TRAINERS |= {
    "pegasos": Pegasos,
    "linear_pegasos": LinearPegasos,
    "alg1": Alg1,
    "alg2": Alg2,
    "alg3": Alg3,
    "alg4": Alg4,
    "auto": Auto,
    "svc": SVC,
    "linear_svm": LinearSVM,
    "nystroem": Nystroem,
    "cross_entropy": CrossEntropy,
    "logistic": Logistic,
    "trees": Trees,
    "majority": Majority,
}


def build_trainer(settings: Mapping[str, Any]) -> Trainer[Any]:
    """Return the trainer selected in an ``algorithm:`` section. Raise an InputError if a setting is wrong."""
    return build(TRAINERS, "algorithm", settings)


def build_parts(settings: Settings) -> tuple[Trainer[Any], Rule, Differences | None, torch.device]:
    """Return the algorithm, the optimizer, the estimate of the kernel's gradient, and the device.

    Only the settings of the loss and the kernel are checked, because building these requires data. An
    InputError is raised if a name or a setting is wrong, or if the device does not exist.
    """
    algorithm, loss = build_trainer(settings.algorithm), settings.loss
    if settings.calibration == "sigmoid" and settings.task == "regression":
        raise InputError("calibration=sigmoid requires task=classification, got task=regression")
    if settings.class_weight and settings.task == "regression":
        raise InputError("class_weight requires task=classification, got task=regression")
    if loss is not None:
        build(LOSSES, "loss", loss)
    if not algorithm.trains_svm and (loss or settings.full_objective):
        wrong = f"loss={loss['name']}" if loss else "full_objective"
        name = settings.algorithm["name"]
        raise InputError(f"{wrong} requires an SVM, but algorithm={name} trains no SVM; remove {wrong}")
    if algorithm.chooses_steps and settings.sampler["name"] != "uniform":
        reason = f"algorithm={settings.algorithm['name']} uses all training samples"
        raise InputError(f"sampler={settings.sampler['name']}: {reason}; remove sampler")
    kernel_of(settings)
    gradient = build_gradient(settings.kernel)
    optimizer = build(OPTIMIZERS, "optimizer", settings.optimizer)
    return algorithm, optimizer, gradient, select_device(settings.device, settings.threads)
