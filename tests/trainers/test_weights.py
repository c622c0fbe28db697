"""Weights of samples: a sample of weight w counts as w samples, for every algorithm, loss and engine."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC
from torch import Tensor

from nsvm_cli.config.settings import flat
from nsvm_cli.engines import NUMBA, TORCH, Engine, taken_by
from nsvm_cli.engines.numba.code import is_usable
from nsvm_cli.engines.numba.coverage import uncovered
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import RBF, Kernel, Laplacian, Linear
from nsvm_cli.models.losses import (
    LOSSES,
    Binary,
    CrammerSinger,
    Loss,
    OneVsRest,
    Residual,
    SquaredHinge,
)
from nsvm_cli.models.networks import build_network
from nsvm_cli.models.objectives import full_objective
from nsvm_cli.models.optimizers import SGD
from nsvm_cli.trainers import Problem, Trainer, build_trainer
from nsvm_cli.trainers.direct import ScikitLearn
from nsvm_cli.trainers.pegasos import Pegasos
from tests.conftest import LOSSES as SMALL_LOSSES
from tests.conftest import STEPPING, compile_units, parameters, samples, short, train

pytestmark = pytest.mark.usefixtures("unchecked")

COUNTS = np.array([1, 2, 3, 1, 1, 2, 4, 2, 1, 3])
"""How often each of ten samples is there."""


def weighted_and_repeated(loss: Loss, K: Kernel) -> tuple[Problem, Problem]:
    """Return ten samples with weights, and as many of each."""
    noise = torch.randn(len(COUNTS), 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    task, x, y = samples(loss, noise)
    alike = Problem(x, y, K, 0, task=task, loss=loss)
    rows = np.repeat(np.arange(len(x)), COUNTS)
    return replace(alike, weights=COUNTS / COUNTS.mean()), replace(alike, x=x[rows], y=y[rows])


def theta_for(trainer: Trainer[Any], problem: Problem, dropout: float = 0.0) -> FeatureMap:
    svm = trainer.trains_svm
    network = {"name": "mlp", "widths": [8, 6], "normalize": svm, "head": not svm, "dropout": dropout}
    built = build_network(network, (5,), seed=2, outputs=problem.task.outputs).double()
    return FeatureMap(built, SGD(0.05, momentum=0.9, weight_decay=0.01), seed=5)


def engines_of(trainer: Trainer[Any], problem: Problem) -> list[Trainer[Any]]:
    """Return the trainer itself, and as each engine takes its steps that covers them."""
    fast: list[Engine] = [TORCH]
    if is_usable() and not uncovered(trainer, problem, theta_for(trainer, problem)):
        compile_units()
        fast.append(NUMBA)
    others = [taken_by(engine, trainer) for engine in fast]
    return [trainer, *(other for other in others if other is not trainer)]


def after(trainer: Trainer[Any], problem: Problem, at: Tensor, dropout: float = 0.0) -> list[Any]:
    """Train, and return f at these samples, theta, and the mean objective of the steps."""
    F = theta_for(trainer, problem, dropout)
    state, g = train(trainer, problem, F)
    return [g(problem.K, F(at)), parameters(F.network), state.tally.means()["objective"]]


def assert_close(ours: Any, theirs: Any, error: float = 1e-9) -> None:
    torch.testing.assert_close(ours, theirs, rtol=error, atol=error)


def kernel_for(name: str) -> Kernel:
    return Linear() if name in ("linear_pegasos", "cross_entropy") else RBF(1.0)


ALL_LOSSES = [
    pytest.param(to(LOSSES[name]()), id=f"{name}-{to.__name__}")
    for name in LOSSES
    for to in ((Binary, CrammerSinger, OneVsRest) if LOSSES[name].kind == "classification" else (Residual,))
]
STEPS: list[tuple[str, dict[str, Any]]] = [
    ("pegasos", {}),
    ("linear_pegasos", {}),
    ("alg1", {}),
    ("alg2", {}),
    ("alg3", {}),
    ("alg3", {"objective": "derived"}),
    ("alg4", {"centred": True}),  # with two classes, Algorithm 3 is not centred
]


def check_repeats(name: str, loss: Loss, **settings: Any) -> None:
    weighted, repeated = weighted_and_repeated(loss, kernel_for(name))

    def all_at_once(problem: Problem) -> Trainer[Any]:
        return short(name, 4, len(problem.y), "literal", **settings)

    expected = after(all_at_once(repeated), repeated, weighted.x)
    for trainer in engines_of(all_at_once(weighted), weighted):
        assert_close(after(trainer, weighted, weighted.x), expected)


@pytest.mark.parametrize("loss", ALL_LOSSES)
@pytest.mark.parametrize(("name", "settings"), STEPS, ids=str)
def test_weights_are_repeated_samples(name: str, settings: dict[str, Any], loss: Loss) -> None:
    """Both draw all samples in every step: ``batch_size`` (and ``solver_batch_size`` of Algorithm 4) is their
    number, since single draws differ. Dropout is off, which is random for each sample.
    """
    check_repeats(name, loss, lam=1e-2, **settings)


@pytest.mark.parametrize("loss", SMALL_LOSSES.values(), ids=SMALL_LOSSES)
def test_weights_are_repeated_samples_for_cross_entropy(loss: Loss) -> None:
    """Again with all samples in every step, and without dropout."""
    check_repeats("cross_entropy", loss)


@pytest.mark.parametrize("loss", [*SMALL_LOSSES.values(), Binary(SquaredHinge())], ids=repr)
@pytest.mark.parametrize(
    ("name", "k"),
    [(name, k) for name in ("pegasos", "alg1", "alg2") for k in (1, 4)] + [("alg3", 4), ("alg4", 4)],
)
def test_every_engine_takes_the_weighted_steps(name: str, k: int, loss: Loss) -> None:
    """Of single samples and of small batches, with dropout."""
    weighted, _ = weighted_and_repeated(loss, RBF(1.0))
    literal = short(name, 25, k, "literal", lam=1e-2)
    expected = after(literal, weighted, weighted.x, dropout=0.2)
    for trainer in engines_of(literal, weighted)[1:]:
        assert_close(after(trainer, weighted, weighted.x, dropout=0.2), expected, 1e-8)


EXACT: dict[str, dict[str, float]] = {
    "linear_svm": {"tol": 1e-9, "max_iter": 10**6},
    "nystroem": {"tol": 1e-9, "max_iter": 10**6},
    "logistic": {"tol": 1e-9},
    "trees": {"min_samples_leaf": 1, "max_iter": 20},  # before hessians reach scikit-learn's least one
}


@pytest.mark.parametrize("loss", SMALL_LOSSES.values(), ids=SMALL_LOSSES)
@pytest.mark.parametrize("name", EXACT)
def test_scikit_learns_methods_take_weights(name: str, loss: Loss, monkeypatch: pytest.MonkeyPatch) -> None:
    """These are repeated samples where scikit-learn is to go on beyond its own tolerance; in trees, where a
    leaf may have a single sample, since its own 20 are counted without weights.
    """
    weighted, repeated = weighted_and_repeated(loss, RBF(1.0) if name == "nystroem" else Linear())
    trainer: ScikitLearn = build_trainer({"name": name, **({} if name == "trees" else {"lam": 0.1})})
    machine = type(trainer).machine
    exactly = lambda self, problem, n: machine(self, problem, n).set_params(**EXACT[name])  # noqa: E731
    with monkeypatch.context() as patched:
        patched.setattr(type(trainer), "machine", exactly)
        ours, theirs = (after(trainer, p, weighted.x)[0] for p in (weighted, repeated))
    assert_close(ours, theirs, 1e-5)
    alike = after(trainer, replace(weighted, weights=None), weighted.x)[0]
    assert (alike - ours).abs().max() > 1e-3


@pytest.mark.parametrize("engine", ["literal", "torch"])
@pytest.mark.parametrize("loss", SMALL_LOSSES.values(), ids=SMALL_LOSSES)
@pytest.mark.parametrize("K", [RBF(1.0), Laplacian(0.5), Linear()], ids=str)
def test_svc_takes_weights(K: Kernel, loss: Loss, engine: Engine) -> None:
    weighted, repeated = weighted_and_repeated(loss, K)
    trainer = taken_by(engine, build_trainer({"name": "svc", "lam": 0.1, "tol": 1e-10}))
    ours, theirs = (after(trainer, p, weighted.x)[0] for p in (weighted, repeated))
    assert_close(ours, theirs, 1e-7)
    alike = after(trainer, replace(weighted, weights=None), weighted.x)[0]
    assert (alike - ours).abs().max() > 1e-3


def test_a_search_weighs_its_samples() -> None:
    """A grid is searched as scikit-learn does it with these weights."""
    noise = torch.randn(60, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    task, x, y = samples(loss := SMALL_LOSSES["two classes"], noise)
    weights = np.where(y > 0, 1.98, 0.02)
    grid = {"C": [1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0]}
    p = Problem(x, y, RBF(1.0), 0, task=task, loss=loss, weights=weights)
    F = theta_for(trainer := build_trainer({"name": "svc", "grid": grid}), p)
    theirs = GridSearchCV(SVC(gamma=1.0), grid, cv=3).fit(F(x), y, sample_weight=weights)
    assert trainer.search(p, F)[1]["chosen"] == theirs.best_params_


@pytest.mark.parametrize("name", STEPPING)
def test_checkpoints_resume_weighted_runs_to_the_bit(name: str) -> None:
    """Weights are settings or data: there is nothing of them in a state."""
    loss = SMALL_LOSSES["two classes"]
    weighted, _ = weighted_and_repeated(loss, kernel_for(name))
    settings = {} if name == "cross_entropy" else {"lam": 1e-2}
    for trainer in engines_of(short(name, 20, 4, "literal", **settings), weighted):
        state = trainer.start(weighted, theta_for(trainer, weighted))
        trainer.advance(weighted, state, 13)
        unweighted = trainer.start(replace(weighted, weights=None), theta_for(trainer, weighted))
        assert state.state_dict().keys() == unweighted.state_dict().keys()
        F = theta_for(trainer, weighted)
        F.load_state_dict(deepcopy(state.F.state_dict()))
        resumed = trainer.restore(weighted, F, deepcopy(state.state_dict()))
        results = []
        for one in (state, resumed):
            trainer.advance(weighted, one, trainer.total)
            values = flat({"F": one.F.state_dict(), "state": one.state_dict()}, "/")
            results.append({k: v.tolist() if isinstance(v, Tensor) else v for k, v in values.items()})
        assert results[0] == results[1]


@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_the_objective_is_that_of_repeated_samples(loss: Loss) -> None:
    weighted, repeated = weighted_and_repeated(loss, RBF(1.0))
    _, g = train(short("pegasos", 6, len(COUNTS), lam=0.1), weighted, theta_for(Pegasos(6), weighted))
    values = [
        full_objective(g, p.K, F(p.x), p.y, loss, 0.1, p.w(np.arange(len(p.y))))
        for p in (weighted, repeated)
        for F in [theta_for(Pegasos(6), p)]
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-12)
