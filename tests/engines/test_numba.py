"""Runs whose steps are compiled, against the steps as they are defined, and what an engine does not take."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("numba")

import pydantic
import pytest
from torch import Tensor

import nsvm_cli.engines
from nsvm_cli.config.registry import STRICT
from nsvm_cli.engines import for_engine, select
from nsvm_cli.engines.coverage import COMPILE_FROM, LOAD_FROM
from nsvm_cli.errors import InputError, NotFiniteError
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import RBF, Biased, Linear, Normalized
from nsvm_cli.models.losses import Binary, Hinge, Logistic, OneVsRest
from nsvm_cli.models.networks import CNN, MLP, build_network
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.models.optimizers import SGD, Adam, Rule
from nsvm_cli.trainers import Problem, State, Trainer, build_trainer
from nsvm_cli.trainers.alg1 import Alg1
from nsvm_cli.trainers.alg3 import Alg3
from nsvm_cli.trainers.direct import LinearSVM
from nsvm_cli.trainers.pegasos import LinearPegasos
from nsvm_cli.trainers.svc import SVC
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
    """Where products of float32 have no digits left for the distances within a cluster."""
    s, lam = small(3, m=200, d=40, K=RBF(0.025)), 0.0123456789
    x = (s.problem.x + torch.tensor([300.0, -300.0]).repeat(100)[:, None]).float()
    single = replace(s.problem, x=x, y=s.problem.y.float())
    exact = replace(s.problem, x=x.double())
    F, pegasos = FeatureMap(nn.Identity(), SGD(1e-3), 5), short("pegasos", 600, None, "literal", lam=lam)
    ours, theirs = (train(pegasos, *run)[1] for run in ((exact, F), (single, F, None, "numba")))
    assert torch.equal(ours.i, theirs.i)
    assert torch.equal(ours.alpha, theirs.alpha.double())


def first_of(*algorithms: str) -> list[Any]:
    """Return all four, those not named as thorough tests: what each needs takes ten seconds to compile."""
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
    assert raised.value.step <= expected.value.step  # as it evaluates samples of later steps, too


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


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Doubling(Alg1):
    """Overrides what no engine replaces, and has a setting more."""

    factor: float = 2.0

    def finish(self, problem: Problem, state: Any) -> Expansion:
        g = super().finish(problem, state)
        return replace(g, alpha=self.factor * g.alpha)


class Stepping(Alg1):
    """Overrides the step."""

    def step(self, problem: Problem, state: Any) -> None:
        super().step(problem, state)
        state.alpha = 0.99 * state.alpha


@pytest.mark.parametrize("engine", ["torch", "numba"])
def test_a_class_that_overrides_nothing_of_the_steps_is_served(engine: Any, small: MakeSmall) -> None:
    s, steps = small(3, m=120), 60
    theirs, g = train(Alg1(steps), s.problem, s.theta(), engine=engine)
    ours, doubled = train(Doubling(steps, factor=3.0), s.problem, s.theta(), engine=engine)
    assert (ours.t, ours.violations) == (theirs.t, theirs.violations)
    assert torch.equal(doubled.z, g.z)
    assert torch.equal(doubled.alpha, 3 * g.alpha)
    assert select(engine, Doubling(steps), s.problem, s.theta()) == engine


@pytest.mark.parametrize("engine", ["torch", "numba", "literal"])
def test_a_step_of_ones_own_is_taken_whatever_the_engine(engine: Any, small: MakeSmall) -> None:
    s = small(3, m=120)
    expected, served = (
        train(Stepping(60), s.problem, s.theta(), engine=how)[1] for how in ("literal", engine)
    )
    assert torch.equal(served.alpha, expected.alpha)
    assert not torch.equal(served.alpha, train(Alg1(60), s.problem, s.theta())[1].alpha)
    if engine == "numba":
        with pytest.raises(InputError, match="does not support algorithm Stepping"):
            select(engine, Stepping(60), s.problem, s.theta())


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Derived(Alg3):
    objective: Any = "derived"


class Solving(SVC):
    def solver(self, *arguments: Any) -> Any:
        return super().solver(*arguments)


class Wide(RBF):
    """Overrides nothing."""


class Slow(SGD):
    """Overrides nothing."""


class Net(MLP):
    """Overrides nothing."""


class Margin(Hinge):
    """Overrides nothing."""


class Power(RBF):
    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        return super().__call__(a, b) ** 3


class Backwards(SGD):
    def update(self, theta: Any, grad_theta: Any, state: Any, lr: float) -> None:
        super().update(theta, grad_theta, state, -lr)


class Shifted(MLP):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 1


class Steep(Hinge):
    @staticmethod
    def slope(u: Any) -> Any:
        return (u < 2) * 2.0


class Doubled(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def test_parts_without_a_body_are_covered(small: MakeSmall) -> None:
    s = small(3)
    problem = replace(s.problem, K=Wide(1.0), loss=Binary(Margin()))
    F = FeatureMap(Net((5,), [8, 6]).double(), Slow(1e-3), seed=0)
    assert select("numba", Alg1(9), problem, F) == "numba"


def test_parts_that_compute_something_else_are_not(small: MakeSmall) -> None:
    s = small(3)
    images = overlapping(small, 40, (1, 16, 16))
    changed = CNN((1, 16, 16), (3, 5)).double()
    changed[0] = Doubled(1, 3, 5).double()
    for trainer, problem, network, rule, said in (
        (Alg1(9), replace(s.problem, K=Power(1.0)), s.network, SGD(0.1), "kernel Power"),
        (Alg1(9), replace(s.problem, loss=Binary(Steep())), s.network, SGD(0.1), "losses other than hinge"),
        (Alg1(9), s.problem, s.network, Backwards(0.1), "optimizer Backwards"),
        (Alg1(9), s.problem, Shifted((5,), [8]).double(), SGD(0.1), "networks other than mlp and cnn"),
        (Alg1(9), images, changed, SGD(0.1), "networks other than mlp and cnn"),
        (Derived(9), s.problem, s.network, SGD(0.1), "algorithm.objective=derived"),
        (Solving(), s.problem, s.network, SGD(0.1), "algorithm Solving"),
    ):
        F = FeatureMap(deepcopy(network), rule, seed=0)
        with pytest.raises(InputError, match=f"engine=numba does not support {said}"):
            select("numba", trainer, problem, F)


class Plain(Linear):
    """Overrides nothing."""


class Square(Linear):
    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        return super().__call__(a, b) ** 2


@pytest.mark.parametrize("trainer", [LinearSVM(), LinearPegasos(9)], ids=lambda t: type(t).__name__)
def test_a_linear_kernel_is_known_by_its_formula(trainer: Trainer[State], small: MakeSmall) -> None:
    s = small(3)
    trainer.check(replace(s.problem, K=Plain()), s.theta())
    with pytest.raises(InputError, match="requires kernel=linear"):
        trainer.check(replace(s.problem, K=Square()), s.theta())


@pytest.mark.parametrize("name", ["svc", "linear_svm"])
def test_a_solver_of_hinge_losses_refuses_another_slope(name: str, small: MakeSmall) -> None:
    s, trainer = small(3, K=Linear()), {"svc": SVC(), "linear_svm": LinearSVM()}[name]
    trainer.check(replace(s.problem, loss=Binary(Margin())), s.theta())
    with pytest.raises(InputError, match=f"{name} does not support loss=Steep"):
        trainer.check(replace(s.problem, loss=Binary(Steep())), s.theta())
