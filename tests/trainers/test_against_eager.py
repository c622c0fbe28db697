"""The trainers over thousands of steps, in float64, against the same algorithms written step by step.

The window lengths and the block sizes of kernel matrices and forward passes are drawn at random, as they only
affect rounding. Training may amplify rounding errors: with some seeds, changing the last bit of the initial
theta changes the final one by 1e-9. The seed is one with which this does not happen.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

from nsvm_cli.models import feature_map as features
from nsvm_cli.models import kernels
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.networks import build_network, dropout_masks_from
from nsvm_cli.models.optimizers import SGD
from nsvm_cli.randomness import Sampler
from nsvm_cli.trainers import State, Trainer, look_ahead
from nsvm_cli.trainers.alg1 import Alg1
from nsvm_cli.trainers.alg2 import Alg2
from nsvm_cli.trainers.alg3 import Alg3
from nsvm_cli.trainers.alg4 import Alg4
from nsvm_cli.trainers.pegasos import Pegasos
from tests.conftest import MakeSmall, Small, parameters, train
from tests.eager import Eager, rbf

pytestmark = pytest.mark.usefixtures("unchecked")
LAM, MOMENTUM, WEIGHT_DECAY = 1e-2, 0.9, 1e-3


def eager(small: Small, lr: float, k: int = 1) -> Eager:
    network = deepcopy(small.network)
    optimizer = torch.optim.SGD(network.parameters(), lr, MOMENTUM, weight_decay=WEIGHT_DECAY)
    problem = small.problem
    sampler = Sampler(problem.seed, len(problem.y), k)
    draw = lambda t: torch.from_numpy(sampler(t))  # noqa: E731
    return Eager(problem.x, problem.y, network, optimizer, draw, rbf(1.0), LAM)


def theta(small: Small, lr: float) -> FeatureMap:
    return FeatureMap(deepcopy(small.network), SGD(lr, MOMENTUM, WEIGHT_DECAY), dropout_seed=5)


def finish(steps: Iterator[int]) -> None:
    for _ in steps:
        pass


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


def assert_same(state: State, theirs: Eager, before: torch.Tensor, moved: float = 1e-2) -> None:
    ours = parameters(state.F.network)
    torch.testing.assert_close(ours, parameters(theirs.net), rtol=0, atol=1e-10)
    assert (ours - before).abs().max() > moved
    torch.testing.assert_close(state.objective, theirs.objective, rtol=1e-7, atol=1e-8)


def alpha(state: Any, small: Small) -> torch.Tensor:
    """Return the paper's alpha_j of every sample."""
    return torch.from_numpy(state.coefficients.alpha) * small.problem.y


WIDE = {"name": "mlp", "widths": [8, 6], "normalize": True}


@pytest.mark.usefixtures("cut")
def test_algorithm_0(small: MakeSmall) -> None:
    s, T = small(3, m=300, network=WIDE), 4000
    theirs = eager(s, lr=0)
    finish(theirs.algorithm_0(theirs.F(s.problem.x), T))
    state, _ = train(Pegasos(T, LAM), s.problem, theta(s, 0))
    assert torch.equal(alpha(state, s), theirs.alpha)
    assert 300 < state.violations < 3500


@pytest.mark.usefixtures("cut")
def test_algorithm_1(small: MakeSmall) -> None:
    s, T, lr = small(3, m=300, network=WIDE), 2500, 2e-4
    theirs = eager(s, lr)
    finish(theirs.algorithm_1(T))
    state, g = train(Alg1(T, LAM), s.problem, theta(s, lr))
    assert_same(state, theirs, parameters(s.network))
    torch.testing.assert_close(g.z, theirs.z, rtol=0, atol=1e-10)
    assert torch.equal(g.alpha, theirs.labels)
    assert 100 < state.violations < T - 500


@pytest.mark.usefixtures("cut")
def test_algorithm_2(small: MakeSmall) -> None:
    s, T, lr = small(3, m=300, network=WIDE), 1500, 1e-4
    theirs = eager(s, lr)
    finish(theirs.algorithm_2(T))
    state, _ = train(Alg2(T, LAM), s.problem, theta(s, lr))
    assert_same(state, theirs, parameters(s.network))
    assert torch.equal(alpha(state, s), theirs.alpha)
    assert 100 < state.violations < T - 500


def test_algorithm_3(small: MakeSmall) -> None:
    s, T, k, lr = small(3, m=150, network=WIDE), 400, 8, 1e-3
    theirs = eager(s, lr, k)
    finish(theirs.algorithm_3(T, k))
    state, _ = train(Alg3(T, LAM, 1.0, k), s.problem, theta(s, lr))
    assert_same(state, theirs, parameters(s.network))
    assert torch.equal(alpha(state, s), theirs.alpha)


def test_algorithm_4(small: MakeSmall) -> None:
    s, T, k, lr = small(3, m=300, network=WIDE), 400, 8, 1e-3
    theirs = eager(s, lr, k)
    finish(theirs.algorithm_4_part_1(T, k))
    trainer = Alg4(T, k, solver_steps=1500, lam=LAM)
    state, _ = train(trainer, s.problem, theta(s, lr), T)
    assert_same(state, theirs, parameters(s.network))
    trainer.advance(s.problem, state, trainer.total)
    theirs.draw = eager(s, lr).draw
    finish(theirs.algorithm_0(theirs.F(s.problem.x), 1500))
    assert torch.equal(alpha(state.part_2, s), theirs.alpha)  # type: ignore[attr-defined]


CNN: Mapping[str, Any] = {"name": "cnn", "channels": [2, 3], "normalize": True}
DROPPING: Mapping[str, Any] = {"name": "mlp", "widths": [8, 6], "dropout": 0.3, "normalize": True}


@pytest.mark.parametrize("network", [CNN, DROPPING], ids=lambda n: n["name"])
@pytest.mark.parametrize(
    ("trainer", "k", "lr"),
    [
        (Alg1(800, LAM), 1, 2e-4),
        pytest.param(Alg2(800, LAM), 1, 2e-4, marks=pytest.mark.thorough),
        (Alg3(300, LAM, 0.7, 6), 6, 1e-3),
    ],
    ids=lambda value: type(value).__name__,
)
def test_images_and_dropout(trainer: Trainer[Any], k: int, lr: float, network: Mapping[str, Any]) -> None:
    """Dropout draws the same masks, because the same samples pass through F in the same order."""
    generator = torch.Generator().manual_seed(3)
    y = torch.where(torch.arange(100) % 2 == 0, -1.0, 1.0).double()
    x = torch.randn(100, 1, 16, 16, generator=generator, dtype=torch.float64) + 0.1 * y[:, None, None, None]
    built = build_network(network, (1, 16, 16), seed=4).double()
    s = Small(look_ahead.Problem(x, y, kernels.RBF(1.0), 0), built)
    ours, theirs = theta(s, lr), eager(s, lr, k)
    third = lambda T: theirs.algorithm_3(T, k, mu=0.7)  # noqa: E731
    run = {Alg1: theirs.algorithm_1, Alg2: theirs.algorithm_2, Alg3: third}
    with dropout_masks_from(torch.Generator().manual_seed(5)):
        finish(run[type(trainer)](trainer.total))
    state, g = train(trainer, s.problem, ours)
    assert_same(state, theirs, parameters(s.network), moved=1e-3)
    if isinstance(trainer, Alg1):
        torch.testing.assert_close(g.z, theirs.z, rtol=0, atol=1e-10)
    else:
        assert torch.equal(alpha(state, s), theirs.alpha)
        assert state.violations > state.support_vectors, "some support vector is met again"


@pytest.mark.parametrize("trainer", [Alg1(2500, LAM), Alg2(2500, LAM)], ids=["alg1", "alg2"])
def test_scores_are_looked_up_after_many_steps_without_a_violation(
    trainer: Trainer[Any], small: MakeSmall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few samples and many steps, every s_i is computed once and kept until the next theta step."""
    looked_up: list[int] = []
    look_up = look_ahead.LookAheadTrainer._window_from_scores

    def spy(self: Any, problem: Any, state: Any, first: int, i: Any) -> Any:
        looked_up.append(first)
        return look_up(self, problem, state, first, i)

    monkeypatch.setattr(look_ahead.LookAheadTrainer, "_window_from_scores", spy)
    s, lr = small(2, m=10, network=WIDE), 2e-4
    theirs = eager(s, lr)
    finish({Alg1: theirs.algorithm_1, Alg2: theirs.algorithm_2}[type(trainer)](trainer.total))
    state, _ = train(trainer, s.problem, theta(s, lr))
    assert_same(state, theirs, parameters(s.network))
    assert len(looked_up) > 10


class Half(Pegasos):
    """A violation adds 1/2."""

    def increments(self, problem: Any, y: np.ndarray, g: np.ndarray) -> np.ndarray:
        return super().increments(problem, y, g) / 2


def test_a_violation_may_add_another_amount(small: MakeSmall) -> None:
    s = small(3, m=100, network=WIDE)
    theirs = eager(s, lr=0)
    add = theirs.add
    theirs.add = lambda i, amount: add(i, amount if theirs.alpha.sum() == 0 else 0.5)  # type: ignore[method-assign]
    finish(theirs.algorithm_0(theirs.F(s.problem.x), 2000))
    state, _ = train(Half(2000, LAM), s.problem, theta(s, 0))
    assert torch.equal(alpha(state, s), theirs.alpha)


def test_a_step_that_would_never_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match="Stepping defines step"):

        class Stepping(Pegasos):
            def step(self, problem: Any, state: Any) -> None:
                pass


def test_what_decided_on_violations_in_an_earlier_version_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Stricter defines violates, .*: define increments"):

        class Stricter(Pegasos):
            def violates(self, problem: Any, y: Any, g: Any) -> Any:
                return y * g < 2
