"""Models for pages: small trained models, and a stub whose decisions and features a test defines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import torch
from torch import Tensor

from nsvm_cli.datasets import Data, Split, Splits
from nsvm_cli.datasets.encoding import TableEncoder
from nsvm_cli.models.nsvm import NSVM, Expansion
from nsvm_cli.runs.open_model import load_trained
from nsvm_cli.tasks import Regression, task_for
from tests.small_runs import small_run

Values = Sequence[Any] | Tensor


def trained(folder: Path, **changes: Any) -> Path:
    """Train a small run with these settings, and return its directory."""
    parts = {
        "dataset": {"name": "ringnorm", "samples": 200},
        "network": {"name": "mlp", "widths": [8, 6], "normalize": True},
        "algorithm": {"name": "alg2", "steps": 60, "lam": 0.01},
        "kernel": {"name": "rbf", "gamma": 1.0},
        "engine": "torch",
    }
    small_run(folder / "run", **{**parts, **changes})
    return folder / "run"


def load(folder: Path, **changes: Any) -> tuple[NSVM, Data]:
    """Train a small run with these settings, and return its model and data."""
    return load_trained(trained(folder, **changes), {"device": "cpu"})


def split(x: Values, y: Values) -> Split:
    return Split(torch.as_tensor(x, dtype=torch.float64), torch.as_tensor(y, dtype=torch.float64))


def stub(
    x: Values,
    y: Values,
    classes: Sequence[str] = (),
    g: Callable[[Tensor], Tensor] = lambda x: x[:, 0],
    features: Callable[[Tensor], Tensor] = lambda x: x,
    expansion: Expansion | None = None,
    train: Split | None = None,
) -> tuple[Any, Any]:
    """Return a mock of a model, for regression unless ``classes`` are given, and a mock of its data.

    The held-out samples are x and y.
    """
    held_out = split(x, y)
    task: Any = task_for(list(classes)) if classes else Regression(0.0, 1.0)
    model = Mock(task=task, decision_function=g, features=features, parameters=0)
    model.expansion = expansion or Expansion(held_out.x, held_out.y, 1.0)
    model.predict = lambda x: task.decide(g(x))
    model.kernel = lambda z, other: z @ other.mT
    shape = (*held_out.x.shape[1:],)
    encoder = TableEncoder({"kind": ("b", "c"), "size": 0.0}) if shape == (3,) else None
    model.metadata = Mock(shape=shape, encoder=encoder)
    train = train or Split(held_out.x + 100, held_out.y)
    x, y = torch.cat([train.x, held_out.x]), torch.cat([train.y, held_out.y])
    samples = Mock(x=x.numpy(), y=y.numpy(), weight=None, numbers=None)
    m, rows = len(train), np.arange(len(train) + len(held_out))
    splits = Splits(samples, {"train": rows[:m], "validation": rows[:0], "test": rows[m:]})
    model.settings = Mock(seed=0, algorithm={"name": "alg1", "steps": 1})
    return model, Mock(splits=splits, samples=samples, held_out=held_out)
