"""Optimizers compared with torch's optimizers of the same names, and learning rate schedules."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nsvm_cli.config.registry import build
from nsvm_cli.errors import InputError
from nsvm_cli.models.optimizers import OPTIMIZERS, Optimizer

pytestmark = pytest.mark.usefixtures("shapes")

RULES = [
    ("sgd", {"lr": 0.1}, torch.optim.SGD, {}),
    ("sgd", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.02}, torch.optim.SGD, {}),
    ("sgd", {"lr": 0.1, "momentum": 0.9, "clip": 0.5}, torch.optim.SGD, {}),
    ("adam", {}, torch.optim.Adam, {}),
    ("adam", {"lr": 0.01, "weight_decay": 0.1}, torch.optim.Adam, {"betas": (0.8, 0.95)}),
]


@pytest.mark.parametrize(("name", "settings", "theirs", "options"), RULES)
def test_steps_equal_those_of_torch(
    name: str, settings: dict[str, Any], theirs: Any, options: dict[str, Any]
) -> None:
    ours = [torch.arange(6.0).double().view(2, 3), torch.ones(4).double()]
    reference = [tensor.clone().requires_grad_() for tensor in ours]
    betas = dict(zip(("beta1", "beta2"), options.get("betas", ()), strict=False))
    rule = build(OPTIMIZERS, "optimizer", {"name": name, **settings, **betas})
    descent = Optimizer(rule, dict(zip("ab", ours, strict=True)))
    clip = settings.get("clip")
    optimizer = theirs(reference, **{k: v for k, v in settings.items() if k != "clip"}, **options)
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        # autograd may return a transposed gradient, or one expanded from a single value
        gradients = [
            torch.randn(3, 2, generator=generator, dtype=torch.float64).T,
            torch.randn(1, generator=generator, dtype=torch.float64).expand(4),
        ]
        for p, gradient in zip(reference, gradients, strict=True):
            p.grad = gradient.clone()
        descent.step(gradients, 0.0)
        if clip:
            torch.nn.utils.clip_grad_norm_(reference, clip)
        optimizer.step()
    torch.testing.assert_close(ours, [p.detach() for p in reference])


@pytest.mark.parametrize(
    ("settings", "rates"),
    [
        ({}, [2.0, 2.0, 2.0, 2.0]),
        ({"schedule": "linear"}, [2.0, 1.5, 1.0, 0.5]),
        ({"schedule": "cosine"}, [2.0, 1 + 2**-0.5, 1.0, 1 - 2**-0.5]),
        ({"warmup": 0.5}, [0.0, 1.0, 2.0, 2.0]),
        ({"warmup": 1.0, "schedule": "linear"}, [0.0, 2 * 3 / 16, 2 / 4, 2 * 3 / 16]),
    ],
)
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_the_rate_follows_its_schedule(name: str, settings: dict[str, Any], rates: list[float]) -> None:
    rule = build(OPTIMIZERS, "optimizer", {"name": name, "lr": 2.0, **settings})
    assert [rule.rate(t / 4) for t in range(4)] == pytest.approx(rates)
    p = [torch.zeros(1)]
    moved = []
    for t in range(4):
        before = p[0].clone()
        Optimizer(rule, {"p": p[0]}).step([torch.ones(1)], t / 4)
        moved.append(float(before - p[0]))
    assert moved == pytest.approx(rates, abs=1e-6), "the first step on a gradient of 1 should be the rate"


def test_a_group_has_no_limit_of_the_gradient() -> None:
    rule = build(OPTIMIZERS, "optimizer", {"name": "sgd", "lr": 0.1, "groups": {"a": {"clip": 1.0}}})
    with pytest.raises(InputError, match=r"optimizer\.groups\.a\.clip: .* set optimizer\.clip"):
        Optimizer(rule, {"a": torch.ones(2)})
