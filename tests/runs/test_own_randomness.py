"""A user's own parts may draw from the global random generators; the seed determines their draws."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from nsvm_cli.datasets import DATASETS, load_data
from nsvm_cli.datasets.base import Samples, Source
from nsvm_cli.errors import InputError
from nsvm_cli.models.dropout import Dropout
from nsvm_cli.models.kernels import KERNELS, Kernel
from nsvm_cli.models.losses import LOSSES, Hinge
from nsvm_cli.models.networks import NETWORKS
from nsvm_cli.runs.experiment import Experiment, prepare
from tests.runs.test_train import resumed, settings_with
from tests.small_runs import small_settings


class Drawing(nn.Module):
    """A network with random noise between its two layers in training."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(shape[0], 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.last(self.drawn(self.first(x).relu()))
        return z

    def drawn(self, z: Tensor) -> Tensor:
        return z + 0.5 * torch.randn_like(z) if self.training else z


class Functional(Drawing):
    def drawn(self, z: Tensor) -> Tensor:
        return functional.dropout(z, 0.3, self.training)


class Attention(Drawing):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape)
        self.attention = nn.MultiheadAttention(2, 1, dropout=0.3, batch_first=True)

    def drawn(self, z: Tensor) -> Tensor:
        pairs = z.unflatten(1, (4, 2))
        return self.attention(pairs, pairs, pairs, need_weights=False)[0].flatten(1)


class OfNumpy(Drawing):
    def drawn(self, z: Tensor) -> Tensor:
        return z * float(np.random.rand()) if self.training else z


class BatchSecond(Drawing):
    """A network whose dropout layer has samples as columns instead of rows."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape)
        self.dropout = nn.Dropout(0.3)

    def drawn(self, z: Tensor) -> Tensor:
        dropped: Tensor = self.dropout(z.T)
        return dropped.T


class Always(Drawing):
    def drawn(self, z: Tensor) -> Tensor:
        return z + torch.randn_like(z)


@pytest.fixture
def network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Register the network class ``request.param``, and return its section."""
    monkeypatch.setitem(NETWORKS, "own", request.param)
    return {"name": "own"}


def theta(e: Experiment) -> Tensor:
    """Train, and return theta as one vector."""
    e.run()
    return torch.cat([p.detach().flatten() for p in e.F.network.parameters()])


@pytest.mark.parametrize(
    ("network", "algorithm"),
    [(Drawing, "alg1"), (Functional, "alg3"), (Attention, "alg3"), (OfNumpy, "alg1"), (BatchSecond, "alg3")],
    indirect=["network"],
)
def test_what_ran_before_changes_nothing(network: dict[str, str], algorithm: str) -> None:
    settings = small_settings(network=network, algorithm={"name": algorithm, "steps": 30})
    torch.manual_seed(1)
    alone = theta(prepare(settings))
    torch.manual_seed(2)
    np.random.seed(2)
    states = torch.get_rng_state(), np.random.get_state()[1]
    assert theta(prepare(settings)).equal(alone)
    assert states[0].equal(torch.get_rng_state())
    np.testing.assert_array_equal(states[1], np.random.get_state()[1])
    other = small_settings(network=network, algorithm={"name": algorithm, "steps": 30}, seed=1)
    assert not theta(prepare(other)).equal(alone)


@pytest.mark.parametrize("network", [Drawing], indirect=True)
def test_the_draws_of_two_steps_differ(network: dict[str, str]) -> None:
    e = prepare(small_settings(network=network))
    x, _ = e.problem[np.arange(4)]
    passes = [e.F.training_pass(x, t) for t in (1, 1, 2)]
    assert passes[0].equal(passes[1])
    assert not passes[0].equal(passes[2])
    fixed = prepare(small_settings(network=network, algorithm={"name": "pegasos", "steps": 20}))
    assert fixed.engine != "literal", "a network that is not trained draws nothing"


@pytest.mark.parametrize("network", [Functional], indirect=True)
def test_resuming_is_exact(network: dict[str, str], tmp_path: Path) -> None:
    resumed(tmp_path, settings := settings_with(network=network))
    why = "faster engines do not support networks that draw random numbers in training"
    assert f"engine=literal is used, because {why}" in prepare(settings).remarks()


@pytest.mark.parametrize("network", [Functional], indirect=True)
def test_runs_in_parallel_threads_are_as_alone(network: dict[str, str]) -> None:
    settings = [
        small_settings(network=network, algorithm={"name": "alg1", "steps": 30}, seed=seed)
        for seed in range(4)
    ]
    alone = [theta(prepare(each)) for each in settings]
    with ThreadPoolExecutor(4) as threads:
        together = [*threads.map(lambda each: theta(prepare(each)), settings)]
    assert all(map(torch.equal, alone, together))


@pytest.mark.parametrize("network", [Always], indirect=True)
def test_draws_in_evaluation_are_refused(network: dict[str, str]) -> None:
    with pytest.raises(InputError, match=r"draws random numbers in evaluation mode.*'if self\.training:'"):
        prepare(small_settings(network=network))


def layers(dropout: Callable[[float], nn.Module]) -> Callable[..., nn.Module]:
    """Return a function that builds a network with dropout between its layers."""
    return lambda shape: nn.Sequential(
        nn.Sequential(nn.Linear(*shape, 8), nn.ReLU(), dropout(0.3)), nn.Linear(8, 5)
    )


@pytest.mark.parametrize("engine", ["literal", "torch"])
def test_dropout_of_torch_has_the_masks_of_ours(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, found = {"name": "alg2", "steps": 60}, []
    for dropout in (nn.Dropout, Dropout):
        monkeypatch.setitem(NETWORKS, "own", layers(dropout))
        e = prepare(small_settings(network={"name": "own"}, algorithm=algorithm, engine=engine))
        assert e.engine == engine
        found.append(theta(e))
    assert found[0].equal(found[1])


def test_dropout_of_torch_is_off_where_its_module_evaluates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NETWORKS, "own", layers(nn.Dropout))
    frozen, free = (prepare(small_settings(network={"name": "own"}, freeze=freeze)) for freeze in (["0"], []))
    x, _ = free.problem[np.arange(9)]
    torch.testing.assert_close(frozen.F.training_pass(x, 1), frozen.F(x), check_device=False)
    assert not free.F.training_pass(x, 1).equal(free.F(x))


@pytest.mark.parametrize(("layer", "whole_channels"), [(nn.Dropout(0.5), False), (nn.Dropout2d(0.5), True)])
def test_single_values_or_channels_are_dropped(
    layer: nn.Module, whole_channels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = nn.Unflatten(1, (4, 3, 3)), nn.Flatten()
    own = lambda shape: nn.Sequential(nn.Linear(*shape, 36), before, layer, after)  # noqa: E731
    monkeypatch.setitem(NETWORKS, "own", own)
    e = prepare(small_settings(network={"name": "own"}))
    x, _ = e.problem[np.arange(20)]
    dropped = (e.F.training_pass(x, 1) == 0).unflatten(1, (4, 9))
    assert 0.3 < float(dropped.double().mean()) < 0.7
    assert bool((dropped.all(-1) == dropped.any(-1)).all()) == whole_channels
    torch.testing.assert_close(e.F.training_pass(x[np.arange(3, 5)], 1), e.F.training_pass(x, 1)[3:5])


class RandomFeatures(Kernel):
    """A kernel of cosines of random projections, which the constructor draws."""

    def __init__(self) -> None:
        self.w = torch.randn(20, 50)

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        p, q = ((x @ self.w.to(x)[: x.shape[-1]]).cos() for x in (a, b))
        return p @ q.mT / 50


class Noisy(Kernel):
    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        K = a @ b.mT
        return K + torch.randn_like(K)


def test_the_seed_decides_what_the_constructor_of_a_kernel_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KERNELS, "own", RandomFeatures)
    a = torch.linspace(0, 1, 12).view(2, 6)
    values = [prepare(small_settings(kernel={"name": "own"}, seed=s)).problem.K(a, a) for s in (0, 0, 1)]
    assert values[0].equal(values[1])
    assert not values[0].equal(values[2])
    model = prepare(small_settings(kernel={"name": "own"})).train()
    assert model.kernel(a, a).equal(model.before_training().kernel(a, a))


def test_a_kernel_that_draws_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KERNELS, "own", Noisy)
    with pytest.raises(InputError, match="kernel own draws random numbers"):
        prepare(small_settings(kernel={"name": "own"}))


class Generated(Source):
    def load(self, rng: np.random.Generator) -> Samples:
        y = np.resize([-1.0, 1.0], 40)
        return Samples(np.random.randn(40, 2), y, ("a", "b"), "generated")


def test_data_may_come_from_numpys_global_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATASETS, "own", Generated)
    first, again, other = (load_data({"name": "own"}, seed).splits["train"].x for seed in (0, 0, 1))
    assert first.equal(again)
    assert not first.equal(other)


class Dithered(Hinge):
    def slope(self, u: Any) -> Any:
        torch.rand(1)
        return super().slope(u)


def test_other_draws_in_training_are_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(LOSSES, "own", Dithered)
    prepare(small_settings(algorithm={"name": "alg1", "steps": 5}, loss={"name": "own"})).run()
    assert "training used torch's global random generator" in capsys.readouterr().err
