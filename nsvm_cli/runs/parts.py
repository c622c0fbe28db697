"""A check of the classes that the settings of a run name."""

from __future__ import annotations

from nsvm_cli.config.registry import build
from nsvm_cli.config.settings import Settings
from nsvm_cli.datasets import build_source
from nsvm_cli.errors import InputError
from nsvm_cli.models.kernels import build_kernel
from nsvm_cli.models.losses import LOSSES
from nsvm_cli.models.optimizers import build_optimizer
from nsvm_cli.trainers import build_trainer


def check_parts(settings: Settings) -> None:
    """Check the parts that need no data: that each is registered and accepts its settings.

    Raises:
        InputError: a name or a setting is wrong.
    """
    trainer = build_trainer(settings.algorithm)
    build_kernel(settings.kernel)
    build_optimizer(settings.optimizer)
    build_source(settings.dataset)
    if settings.calibration and settings.task == "regression":
        raise InputError("calibration=sigmoid gives probabilities of classes, and task=regression has none")
    if settings.loss is not None:
        build(LOSSES, "loss", settings.loss)
        if not trainer.trains_svm:
            loss, algorithm = settings.loss["name"], settings.algorithm["name"]
            raise InputError(f"loss={loss} is one of an SVM, and algorithm={algorithm} trains none")
