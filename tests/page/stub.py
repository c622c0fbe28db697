"""A trained model whose decision values, features and support vectors a test writes down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import Mock

import torch
from torch import Tensor

from nsvm_cli.datasets import Split
from nsvm_cli.datasets.encoding import TableEncoder
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.page.trained import Trained
from nsvm_cli.tasks import Regression, task_for

Values = Sequence[Any]


def split(x: Values | Tensor, y: Values | Tensor) -> Split:
    """Return samples and their labels."""
    return Split(torch.as_tensor(x, dtype=torch.float64), torch.as_tensor(y, dtype=torch.float64))


def stub(
    x: Values | Tensor,
    y: Values | Tensor,
    classes: Sequence[str] = (),
    g: Callable[[Tensor], Tensor] = lambda x: x[:, 0],
    features: Callable[[Tensor], Tensor] = lambda x: x,
    expansion: Expansion | None = None,
    train: Split | None = None,
) -> Trained:
    """Return a model of real targets, unless there are classes, and its held-out samples."""
    held_out = split(x, y)
    task: Any = task_for(list(classes)) if classes else Regression(0.0, 1.0)
    model = Mock(task=task, decision_function=g, features=features, parameters=[])
    model.expansion = expansion or Expansion(held_out.x, held_out.y, 1.0)
    model.predict = lambda x: task.decide(g(x))
    model.kernel = lambda z, other: z @ other.mT
    shape = (*held_out.x.shape[1:],)
    encoder = TableEncoder({"one": 0.0, "two": 0.0}) if shape == (2,) else None
    facts = Mock(shape=shape, known=Mock(encoder=encoder))
    splits = {"train": train or Split(held_out.x + 100, held_out.y), "test": held_out}
    return Trained(Mock(model=model, facts=facts, settings=Mock(seed=0)), Mock(splits=splits), "test")
