"""Engines support a derived class, unless the class overrides an attribute that the engine replaces."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pydantic
import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("numba")

from nsvm_cli.config.registry import STRICT
from nsvm_cli.engines import select
from nsvm_cli.errors import InputError
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import RBF, Linear
from nsvm_cli.models.losses import Binary, Hinge
from nsvm_cli.models.networks import CNN, MLP
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.models.optimizers import SGD
from nsvm_cli.trainers import Problem, State, Trainer
from nsvm_cli.trainers.alg1 import Alg1
from nsvm_cli.trainers.alg3 import Alg3
from nsvm_cli.trainers.direct import LinearSVM
from nsvm_cli.trainers.pegasos import LinearPegasos
from nsvm_cli.trainers.svc import SVC
from tests.conftest import MakeSmall, train
from tests.engines.test_contract import overlapping

pytestmark = pytest.mark.usefixtures("compiled")


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Doubling(Alg1):
    """Overrides a method that no engine replaces, and adds a setting."""

    factor: float = 2.0

    def finish(self, problem: Problem, state: Any) -> Expansion:
        g = super().finish(problem, state)
        return replace(g, alpha=self.factor * g.alpha)


class Stepping(Alg1):
    """Overrides ``step``, which all faster engines replace."""

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
