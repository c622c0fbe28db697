"""What runs with given settings need to have compiled, without their data."""

from __future__ import annotations

import torch

from nsvm_cli.config.settings import Settings
from nsvm_cli.engines import NUMBA, select
from nsvm_cli.engines.numba.coverage import uncovered, units
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.losses import build_loss
from nsvm_cli.parts import build_parts
from nsvm_cli.runs.experiment import initial_network
from nsvm_cli.tasks import BINARY, TASKS, Regression
from nsvm_cli.trainers import Problem


def units_of(settings: Settings, if_used: bool = False) -> list[str]:
    """Return the units of compiled code for these runs; none for what is not covered.

    With ``if_used``, they are those of a run that takes them: its engine may be another, or it may be short.
    """
    shape = (1, 28, 28) if settings.network["name"] == "cnn" else (8,)
    x = torch.zeros(3, *shape, dtype=getattr(torch, settings.dtype))
    task = BINARY if settings.task != Regression.kind else TASKS[settings.task]()
    loss = build_loss(settings.loss, settings.multiclass, task)
    parts = build_parts(settings)
    problem = Problem(x, x.new_ones(3), parts.kernel, settings.seed, task=task, loss=loss)
    F = FeatureMap(initial_network(settings, shape, task.outputs).to(x), parts.optimizer, dropout_seed=0)
    if if_used:
        is_covered = select(settings.engine, parts.algorithm, problem, F) == NUMBA
    else:
        is_covered = not uncovered(parts.algorithm, problem, F)
    return units(parts.algorithm, problem, F) if is_covered else []
