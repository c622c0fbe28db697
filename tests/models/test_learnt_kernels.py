"""Kernels with parameters in theta: gradients, engines, model files, and what users are told."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nsvm_cli.artifacts.diagnosis import diagnose
from nsvm_cli.artifacts.model_file import load_model
from nsvm_cli.errors import InputError
from nsvm_cli.models.composed_kernels import build_kernel, learnt, with_initial_parameters
from nsvm_cli.models.feature_map import FeatureMap, Objective, Training, features
from nsvm_cli.models.kernels import KERNELS, Kernel
from nsvm_cli.models.optimizers import SGD
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.runs.open_model import evaluate_model
from nsvm_cli.words import diagnosis_rows, training_rows
from tests.conftest import MakeSmall, Small, short, train
from tests.small_runs import small_run, small_settings

RBF_AND_LINEAR = [{"name": "rbf", "gamma": 0.5, "learn": ["gamma"], "ard": True}, {"name": "linear"}]


class Mine(Kernel):
    """A user-defined kernel, whose parameter may have any sign."""

    def __init__(self, slope: float = 0.5) -> None:
        self.slope = nn.Parameter(torch.tensor(slope))

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        return (a @ b.mT + self.slope).cos()


SETTINGS: dict[str, dict[str, Any]] = {
    "gamma": {"name": "rbf", "gamma": None, "learn": ["gamma"]},
    "ard": {"name": "laplacian", "gamma": 0.5, "ard": True, "bias": True},
    "polynomial": {"name": "polynomial", "learn": ["gamma", "c"], "normalize": True},
    "sum": {"name": "sum", "of": RBF_AND_LINEAR, "weights": [1.0, 0.3], "learn": ["weights"]},
    "mine": {"name": "mine", "slope": 0.5},
}


@pytest.fixture(autouse=True)
def mine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KERNELS, "mine", Mine)


class Checked(FeatureMap):
    """A feature map that checks derivatives with respect to the kernel's parameters by finite differences."""

    checked = 0

    def descend(self, objective: Objective, K: Kernel, t: int, T: int) -> Tensor:
        with self.differentiable(K, t):
            value = objective(Training(self, t), K)
            by_kernel = torch.autograd.grad(value, self.learnt)
        h = 1e-5
        for p, derivative in zip(self.learnt, by_kernel, strict=True):
            for at in range(p.numel()):
                values = []
                for step in (h, -h):
                    p.data.view(-1)[at] += step
                    values.append(float(objective(Training(self, t), K).detach()))
                    p.data.view(-1)[at] -= step
                found = (values[0] - values[1]) / (2 * h)
                assert float(derivative.reshape(-1)[at]) == pytest.approx(found, rel=1e-5, abs=1e-7)
                self.checked += 1
        return super().descend(objective, K, t, T)


def started(s: Small, settings: dict[str, Any], kind: type[FeatureMap] = FeatureMap, **more: Any) -> Any:
    """Return the problem with a kernel in its initial state, and a feature map that trains this kernel."""
    network = deepcopy(s.network)
    K = with_initial_parameters(build_kernel(settings), features(network, s.problem.x[:1]))
    return replace(s.problem, K=K), kind(network, SGD(1e-3, momentum=0.9), seed=5, K=K, **more)


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        *product(["alg1"], SETTINGS),
        ("alg2", "sum"),
        ("alg3", "ard"),
        ("alg3", "polynomial"),
        ("alg4", "mine"),
    ],
)
def test_gradients_are_those_of_finite_differences(name: str, kernel: str, small: MakeSmall) -> None:
    problem, F = started(small(), SETTINGS[kernel], Checked)
    before = {key: p.clone() for key, p in learnt(problem.K).items()}
    train(short(name, 12 if name in ("alg1", "alg2") else 4, engine="literal", lam=0.1), problem, F)
    assert F.checked > 0
    assert all(not p.equal(before[key]) for key, p in learnt(problem.K).items())
    assert not any(p.requires_grad for p in learnt(problem.K).values()), "requires_grad outside an objective"


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        *product(["alg1"], SETTINGS),
        ("alg2", "polynomial"),
        ("alg2", "sum"),
        ("alg3", "ard"),
        ("alg4", "gamma"),
    ],
)
def test_look_ahead_takes_the_same_steps(name: str, kernel: str, small: MakeSmall) -> None:
    """Both engines take single steps in Algorithm 3 and in Part 1 of Algorithm 4."""
    ends = []
    for engine in ("literal", "torch"):
        problem, F = started(small(), SETTINGS[kernel])
        state, f = train(short(name, 30, engine=engine, lam=0.1), problem, F)  # type: ignore[arg-type]
        ends.append([*learnt(problem.K).values(), *F.parameters, f.z, f.alpha])
        assert state.violations > 2
    torch.testing.assert_close(*ends, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kernel", ["sum", "mine"])
def test_a_model_file_holds_them(kernel: str, tmp_path: Path) -> None:
    algorithm = {"name": "alg1", "steps": 20, "lam": 0.1}
    changes: dict[str, Any] = {"kernel": SETTINGS[kernel], "algorithm": algorithm, "engine": "torch"}
    result = small_run(tmp_path / "run", **changes)
    model, settings = load_model(tmp_path / "run" / "final.safetensors"), small_settings(**changes)
    assert model.parameters == result["parameters"] > sum(p.numel() for p in model.network.parameters())
    trained = (experiment := prepare(settings)).train()
    x = experiment.data.splits["test"].x
    assert model.decision_function(x).equal(trained.decision_function(x))
    for p, q in zip(learnt(model.kernel).values(), learnt(trained.kernel).values(), strict=True):
        assert p.equal(q)
    start = model.before_training()
    assert all(p.eq(0.5 if kernel == "mine" else 0).all() for p in learnt(start.kernel).values())


@pytest.mark.parametrize("names", [["degree"], ["nothing"], ["c"]])
def test_what_cannot_be_learnt_is_refused(names: list[str]) -> None:
    with pytest.raises(InputError, match=f"positive settings of the kernel, got {names[0]}"):
        build_kernel({"name": "polynomial", "c": 0.0, "learn": names})


def test_a_kernel_that_cannot_learn_says_so() -> None:
    still = prepare(small_settings(kernel=SETTINGS["gamma"], algorithm={"name": "pegasos", "steps": 5}))
    said = "kernel parameters keep their initial values: algorithm=pegasos does not change theta"
    assert said in still.remarks()


def test_what_is_learnt_is_told(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"kernel": {"name": "rbf", "gamma": 0.05, "ard": True}}
    changes |= {"network": {"name": "identity"}, "optimizer": {"name": "sgd", "lr": 0.1}}
    small_run(tmp_path / "run", **changes)
    model, data = load_model(tmp_path / "run/final.safetensors"), prepare(small_settings(**changes)).data
    figures = diagnose(model, data)
    factors = figures["kernel_parameters"]["ard"]
    row, ends = ("kernel ard", "20 values"), f"{min(factors):.4g} to {max(factors):.4g}"
    evaluated = evaluate_model(tmp_path, model, None, None, {})
    assert (*row, f"{ends}, initially 1") in diagnosis_rows(figures)
    assert (*row, f"{ends}, learnt") in training_rows(evaluated)
    fixed = diagnose(replace(model, kernel=model.before_training().kernel), data)
    assert figures["frozen_accuracy"] == fixed["refit_accuracy"], "expected an SVM with the initial kernel"
