"""What runs with given settings need to have compiled, without their data."""

from __future__ import annotations

import torch

from nsvm_cli.config.settings import Settings
from nsvm_cli.engines import NUMBA, select
from nsvm_cli.engines.numba.coverage import uncovered, units
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernel_gradients import build_gradient, with_gradient
from nsvm_cli.models.kernels import build_kernel
from nsvm_cli.models.losses import build_loss
from nsvm_cli.models.networks import build_network
from nsvm_cli.models.optimizers import build_optimizer
from nsvm_cli.tasks import BINARY, TASKS, Regression
from nsvm_cli.trainers import Problem, build_trainer


def units_of(settings: Settings, if_used: bool = False) -> list[str]:
    """Return the units of compiled code for these runs; none for what is not covered.

    With ``if_used``, they are those of a run that takes them: its engine may be another, or it may be short.
    """
    shape = (1, 28, 28) if settings.network["name"] == "cnn" else (8,)
    x = torch.zeros(3, *shape, dtype=getattr(torch, settings.dtype))
    task = BINARY if settings.task != Regression.kind else TASKS[settings.task]()
    loss = build_loss(settings.loss, settings.multiclass, task)
    trainer = build_trainer(settings.algorithm)
    gradient = build_gradient(settings.kernel) if trainer.moves_theta else None
    K = with_gradient(build_kernel(settings.kernel), gradient)
    problem = Problem(x, x.new_ones(3), K, settings.seed, task=task, loss=loss)
    network = build_network(settings.network, shape, settings.seed).to(x)
    F = FeatureMap(network, build_optimizer(settings.optimizer), dropout_seed=0)
    if if_used:
        is_covered = select(settings.engine, trainer, problem, F) == NUMBA
    else:
        is_covered = not uncovered(trainer, problem, F)
    return units(trainer, problem, F) if is_covered else []
