"""Look-ahead over hundreds of steps, in float64, against the steps as they are defined.

The window lengths and the block sizes of kernel matrices and forward passes are drawn at random, as they only
affect rounding. Training may amplify rounding errors: with some seeds, changing the last bit of the initial
theta changes the final one by 1e-9. The seed is one with which this does not happen.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest
import torch

from nsvm_cli.engines.look_ahead import base as look_ahead
from nsvm_cli.models import feature_map as features
from nsvm_cli.models import kernels
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.networks import build_network
from nsvm_cli.models.optimizers import SGD
from nsvm_cli.trainers import Trainer
from nsvm_cli.trainers.alg1 import Alg1
from nsvm_cli.trainers.alg2 import Alg2
from nsvm_cli.trainers.pegasos import Pegasos
from tests.conftest import MakeSmall, Small, parameters, train
from tests.engines.test_contract import compare

pytestmark = pytest.mark.usefixtures("unchecked")
LAM, RULE = 1e-2, SGD(2e-4, 0.9, 1e-3)
NETWORK: Mapping[str, Any] = {"name": "mlp", "widths": [8, 6], "normalize": True}
CNN: Mapping[str, Any] = {"name": "cnn", "channels": [2, 3], "normalize": True, "dropout": 0.3}


@pytest.fixture(params=[0, pytest.param(1, marks=pytest.mark.thorough)], ids=lambda seed: f"cut{seed}")
def cut(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Randomise window lengths and block sizes, except for parameter 0."""
    if request.param == 0:
        return
    rng = random.Random(request.param)
    monkeypatch.setattr(look_ahead, "window_length", lambda gap, k: rng.randint(1, 100))
    monkeypatch.setattr(look_ahead, "FIXED_WINDOW", rng.randint(1, 100))
    monkeypatch.setattr(features, "CHUNK", rng.randint(10, 500))
    monkeypatch.setattr(kernels, "block_shape", lambda *_: (rng.randint(3, 100), rng.randint(10, 200)))


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize(
    "trainer", [Pegasos(1000, LAM), Alg1(600, LAM), Alg2(400, LAM)], ids=["pegasos", "alg1", "alg2"]
)
def test_many_steps(trainer: Trainer[Any], small: MakeSmall) -> None:
    """With few samples, scores are kept until the next theta step."""
    for m in (300, 10):
        state = compare("torch", trainer, small(3, m=m, network=NETWORK), RULE, moved=1e-2)
        assert 5 < state.violations < trainer.total - 100


@pytest.mark.parametrize("trainer", [Alg1(120, LAM), Alg2(150, LAM)], ids=["alg1", "alg2"])
def test_images_and_dropout(trainer: Trainer[Any]) -> None:
    generator = torch.Generator().manual_seed(3)
    y = torch.where(torch.arange(100) % 2 == 0, -1.0, 1.0).double()
    x = torch.randn(100, 1, 16, 16, generator=generator, dtype=torch.float64) + 0.1 * y[:, None, None, None]
    built = build_network(CNN, (1, 16, 16), seed=4).double()
    state = compare("torch", trainer, Small(look_ahead.Problem(x, y, kernels.RBF(1.0), 0), built), RULE)
    if isinstance(trainer, Alg2):
        assert state.violations > state.support_vectors, "some support vector is met again"


@pytest.mark.parametrize("trainer", [Alg1(300, LAM), Alg2(200, LAM)], ids=["alg1", "alg2"])
def test_augmentation(trainer: Trainer[Any], small: MakeSmall) -> None:
    s, thetas = small(3, m=100, network=NETWORK), []

    def shift(x: torch.Tensor, i: Any, key: int) -> torch.Tensor:
        return x + 0.1 * torch.from_numpy((i * 7 + key) % 11)[:, None]

    for engine in ("torch", "literal"):
        F = FeatureMap(deepcopy(s.network), SGD(1e-3, 0.9), 0, shift)
        train(trainer, s.problem, F, engine=engine)  # type: ignore[arg-type]
        thetas.append(parameters(F.network))
    torch.testing.assert_close(*thetas, rtol=0, atol=1e-10)
