"""Compiled steps compared with the steps that ``step`` defines, and the choice of the engine."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("numba")

import nsvm_cli.engines
from nsvm_cli.engines import for_engine, select
from nsvm_cli.engines.coverage import COMPILE_FROM, LOAD_FROM
from nsvm_cli.errors import InputError, NotFiniteError
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import RBF, Biased, Normalized
from nsvm_cli.models.losses import Binary, Hinge, Logistic, OneVsRest
from nsvm_cli.models.networks import build_network
from nsvm_cli.models.optimizers import SGD, Adam, Rule
from nsvm_cli.trainers import Trainer, build_trainer
from tests.conftest import MakeSmall, Small, short, train
from tests.engines.test_contract import compare, overlapping, thorough

pytestmark = pytest.mark.usefixtures("compiled")

STEPS = {"pegasos": 600, "alg1": 300, "alg2": 200, "alg3": 60, "alg4": 150}
ALGORITHMS = sorted(STEPS)
NETWORK = {"name": "mlp", "widths": [8, 6], "normalize": True, "dropout": 0.2}


def momentum(lr: float) -> SGD:
    return SGD(lr, momentum=0.9, weight_decay=1e-3, schedule="cosine", warmup=0.3)


def trainer_of(
    algorithm: str, steps: int | None = None, k: int | None = None, **settings: Any
) -> Trainer[Any]:
    return short(algorithm, steps or STEPS[algorithm], k, "literal", lam=1e-2, **settings)


def of(small: Small, rule: Rule | None = None) -> FeatureMap:
    return FeatureMap(deepcopy(small.network), rule or momentum(1e-4), seed=5)


def check(small: Small, trainer: Trainer[Any], rule: Rule) -> None:
    assert compare("numba", trainer, small, rule).violations > 20


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [*((name, {}) for name in STEPS), ("alg4", {"average": 0.3}), ("alg4", {"centred": True})],
    ids=str,
)
def test_two_classes(algorithm: str, settings: dict[str, Any], small: MakeSmall) -> None:
    check(small(3, m=300, network=NETWORK), trainer_of(algorithm, **settings), momentum(1e-3))


def test_features_of_distant_clusters_in_float32(small: MakeSmall) -> None:
    """Matrix products in float32 would have no digits left for the distances within a cluster."""
    s, lam = small(3, m=200, d=40, K=RBF(0.025)), 0.0123456789
    x = (s.problem.x + torch.tensor([300.0, -300.0]).repeat(100)[:, None]).float()
    single = replace(s.problem, x=x, y=s.problem.y.float())
    exact = replace(s.problem, x=x.double())
    F, pegasos = FeatureMap(nn.Identity(), SGD(1e-3), 5), short("pegasos", 600, None, "literal", lam=lam)
    ours, theirs = (train(pegasos, *run)[1] for run in ((exact, F), (single, F, None, "numba")))
    assert torch.equal(ours.i, theirs.i)
    assert torch.equal(ours.alpha, theirs.alpha.double())


def first_of(*algorithms: str) -> list[Any]:
    """Return Algorithms 1 to 4, marked as thorough unless named, since compiling each takes ten seconds."""
    return [name if name in algorithms else thorough(name) for name in ("alg1", "alg2", "alg3", "alg4")]


@pytest.mark.parametrize("algorithm", first_of("alg1"))
@pytest.mark.parametrize("shared", [False, True])
def test_no_momentum_and_dropout(algorithm: str, shared: bool, small: MakeSmall) -> None:
    network = {**NETWORK, "widths": [8, 7, 6], "normalize": False, "shared_dropout": shared}
    check(small(3, m=300, network=network), trainer_of(algorithm, 120), SGD(1e-3))


@pytest.mark.parametrize("algorithm", ["pegasos", *first_of("alg2", "alg3")])
@pytest.mark.parametrize("shared", [False, True])
def test_convolutions(algorithm: str, shared: bool, small: MakeSmall) -> None:
    problem = overlapping(small, 200, (1, 16, 16))
    settings = {"name": "cnn", "channels": (3, 5), "dropout": 0.2, "shared_dropout": shared}
    network = build_network(settings, (1, 16, 16), seed=1).double()
    trainer = trainer_of(algorithm, 2 * STEPS[algorithm] // 5, 60 if algorithm in ("alg3", "alg4") else None)
    check(Small(problem, network), trainer, momentum(1e-2 if algorithm in ("alg3", "alg4") else 3e-4))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_numbers_that_are_not_finite_are_named(algorithm: str, small: MakeSmall) -> None:
    s, trainer = small(3, m=300, network=NETWORK), trainer_of(algorithm, 300)
    s = Small(replace(s.problem, x=s.problem.x.clone()), s.network)
    s.problem.x[7] = float("nan")
    with pytest.raises(NotFiniteError) as expected:
        train(trainer, s.problem, of(s))
    with pytest.raises(NotFiniteError) as raised:
        train(for_engine("numba", trainer), s.problem, of(s))
    assert raised.value.quantity == expected.value.quantity
    assert raised.value.step <= expected.value.step  # compiled code also evaluates samples of later steps


def test_what_is_not_covered_is_said(small: MakeSmall) -> None:
    s, alg1 = small(3, network=NETWORK), trainer_of("alg1")
    other = of(Small(s.problem, nn.Sequential(nn.Linear(5, 2).double())))
    augmented = FeatureMap(s.network, SGD(1e-3), seed=0, augment=lambda x, i, key: x)
    for trainer, changes, F, gap in (
        (build_trainer({"name": "cross_entropy", "steps": 9}), {}, of(s), "algorithm CrossEntropy"),
        (trainer_of("alg4", loss="linear"), {}, of(s), "algorithm.loss=linear"),
        (trainer_of("alg3", objective="derived"), {}, of(s), "algorithm.objective=derived"),
        (alg1, {"K": Normalized(RBF(1.0))}, of(s), "kernel Normalized"),
        (alg1, {"K": Biased(RBF(1.0))}, of(s), "kernel Biased"),
        (alg1, {"loss": Binary(Logistic())}, of(s), "losses other than hinge"),
        (trainer_of("alg4"), {"penalties": {"l1": 1e-3}}, of(s), "penalties"),
        (trainer_of("alg4"), {"loss": OneVsRest(Hinge())}, of(s), "losses other than hinge"),
        (alg1, {}, other, "networks other than mlp and cnn"),
        (alg1, {}, augmented, "augmentation"),
        (alg1, {}, of(s, Adam()), "optimizer Adam"),
        (alg1, {}, of(s, SGD(1e-3, clip=1.0)), "optimizer.clip"),
    ):
        problem = replace(s.problem, **changes)
        assert select("auto", trainer, problem, F) == "torch"
        with pytest.raises(InputError, match=f"engine=numba does not support {gap}"):
            select("numba", trainer, problem, F)
    assert select("numba", trainer_of("pegasos"), s.problem, other) == "numba"


def test_without_numba_there_is_torch(small: MakeSmall, monkeypatch: pytest.MonkeyPatch) -> None:
    s, trainer = small(3, network=NETWORK), trainer_of("alg1", COMPILE_FROM["alg1"])
    monkeypatch.setattr(nsvm_cli.engines, "is_usable", lambda: False)
    assert select("auto", trainer, s.problem, of(s)) == "torch"
    with pytest.raises(InputError, match="engine=numba requires Numba: install it with pip"):
        select("numba", trainer, s.problem, of(s))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_short_runs_and_large_networks_do_not_wait_for_numba(
    algorithm: str, small: MakeSmall, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = small(3, network=NETWORK)

    def engine(steps: int, compiled: bool) -> str:
        monkeypatch.setattr(nsvm_cli.engines, "is_compiled", lambda _: compiled)
        return select("auto", trainer_of(algorithm, steps), s.problem, of(s))

    assert engine(LOAD_FROM[algorithm] // 3, compiled=True) == "torch"
    assert engine(LOAD_FROM[algorithm], compiled=True) == "numba"
    assert engine(LOAD_FROM[algorithm], compiled=False) == "torch"
    assert engine(COMPILE_FROM[algorithm], compiled=False) == "numba"
    s.network = build_network({"name": "mlp", "widths": [1000, 1000]}, (5,), seed=0).double()
    assert engine(COMPILE_FROM[algorithm], compiled=True) == ("numba" if algorithm == "pegasos" else "torch")
