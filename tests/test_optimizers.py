"""Each rule against torch's optimizer of the same name."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nsvm_cli.optimizers import build_optimizer

RULES = [
    ({"name": "sgd", "lr": 0.1}, torch.optim.SGD, {"lr": 0.1}),
    (
        {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.02},
        torch.optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.02},
    ),
    ({"name": "adam"}, torch.optim.Adam, {}),
    (
        {"name": "adam", "lr": 0.01, "beta1": 0.8, "beta2": 0.95, "weight_decay": 0.1},
        torch.optim.Adam,
        {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.1},
    ),
]


@pytest.mark.parametrize(("settings", "theirs", "options"), RULES)
def test_is_torchs(settings: dict[str, Any], theirs: Any, options: dict[str, Any]) -> None:
    ours = [torch.arange(6.0).double().view(2, 3), torch.ones(4).double()]
    reference = [tensor.clone().requires_grad_() for tensor in ours]
    descent, optimizer = build_optimizer(settings)(ours), theirs(reference, **options)
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        # autograd may return a gradient in any layout: transposed, or one value for all
        gradients = [
            torch.randn(3, 2, generator=generator, dtype=torch.float64).T,
            torch.randn(1, generator=generator, dtype=torch.float64).expand(4),
        ]
        for p, gradient in zip(reference, gradients, strict=True):
            p.grad = gradient.clone()
        descent.step(gradients, 0.0)
        optimizer.step()
    torch.testing.assert_close(ours, [p.detach() for p in reference])
