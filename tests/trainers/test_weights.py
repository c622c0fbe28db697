"""Sample weights: a sample with weight w counts as w samples, for every algorithm, loss and engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC
from torch import Tensor

from nsvm_cli.engines import LITERAL, NUMBA, TORCH, Engine, for_engine
from nsvm_cli.engines.coverage import uncovered_by_numba
from nsvm_cli.engines.numba.code import is_usable
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import RBF, Kernel, Linear
from nsvm_cli.models.losses import LOSSES, Binary, CrammerSinger, Loss, OneVsRest, Residual
from nsvm_cli.models.networks import build_network
from nsvm_cli.models.objectives import full_objective
from nsvm_cli.models.optimizers import SGD
from nsvm_cli.trainers import Problem, Trainer, build_trainer
from nsvm_cli.trainers.direct import ScikitLearn
from nsvm_cli.trainers.pegasos import Pegasos
from tests.conftest import LOSSES as SMALL_LOSSES
from tests.conftest import compile_units, parameters, samples, short, train

pytestmark = pytest.mark.usefixtures("shapes")

COUNTS = np.array([1, 2, 3, 1, 1, 2, 4, 2, 1, 3])
"""Number of copies of each of ten samples."""


def weighted_and_repeated(loss: Loss, K: Kernel) -> tuple[Problem, Problem]:
    """Return a problem of ten weighted samples, and an equivalent problem of repeated samples."""
    noise = torch.randn(len(COUNTS), 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    task, x, y = samples(loss, noise)
    alike = Problem(x, y, K, 0, task=task, loss=loss)
    rows = np.repeat(np.arange(len(x)), COUNTS)
    return replace(alike, weights=COUNTS / COUNTS.mean()), replace(alike, x=x[rows], y=y[rows])


def theta_for(trainer: Trainer[Any], problem: Problem) -> FeatureMap:
    svm = trainer.trains_svm
    network = {"name": "mlp", "widths": [8, 6], "normalize": svm, "head": not svm}
    built = build_network(network, (5,), seed=2, outputs=problem.task.outputs).double()
    return FeatureMap(built, SGD(0.05, momentum=0.9, weight_decay=0.01), seed=5)


def engines_of(trainer: Trainer[Any], problem: Problem) -> list[Trainer[Any]]:
    """Return the trainer, and its conversions to the faster engines that support it."""
    fast: list[Engine] = [TORCH]
    if is_usable() and not uncovered_by_numba(trainer, problem, theta_for(trainer, problem)):
        compile_units()
        fast.append(NUMBA)
    others = [for_engine(engine, trainer) for engine in fast]
    return [trainer, *(other for other in others if other is not trainer)]


def after(trainer: Trainer[Any], problem: Problem, at: Tensor) -> list[Any]:
    """Train, and return the decision values of the samples ``at``, theta, and the mean objective."""
    F = theta_for(trainer, problem)
    state, g = train(trainer, problem, F)
    return [g(problem.K, F(at)), parameters(F.network), state.tally.means()["objective"]]


def assert_close(ours: Any, theirs: Any, error: float = 1e-9) -> None:
    torch.testing.assert_close(ours, theirs, rtol=error, atol=error)


def kernel_for(name: str) -> Kernel:
    return Linear() if name in ("linear_pegasos", "cross_entropy") else RBF(1.0)


ALL_LOSSES = [
    to(LOSSES[name]())
    for name in LOSSES
    for to in ((Binary, CrammerSinger, OneVsRest) if LOSSES[name].kind == "classification" else (Residual,))
]
FEW_LOSSES = [
    *(Binary(LOSSES["hinge"]()), CrammerSinger(LOSSES["hinge"]())),  # supported by compiled steps
    *(OneVsRest(LOSSES["squared_hinge"]()), Residual(LOSSES["squared"]())),
]
"""Losses with and without curvature, with one output and with several outputs."""

STEPS: list[tuple[str, dict[str, Any], list[Loss]]] = [
    ("pegasos", {"lam": 1e-2}, ALL_LOSSES),
    ("linear_pegasos", {"lam": 1e-2}, FEW_LOSSES[1::2]),
    ("alg1", {"lam": 1e-2}, FEW_LOSSES),
    ("alg2", {"lam": 1e-2}, FEW_LOSSES),
    ("alg3", {"lam": 1e-2}, FEW_LOSSES),
    ("alg3", {"lam": 1e-2, "objective": "derived"}, [*FEW_LOSSES[1:], Binary(LOSSES["logistic"]())]),
    ("alg4", {"lam": 1e-2, "centred": True}, FEW_LOSSES),  # by default, not for two classes
]


@pytest.mark.parametrize(
    ("name", "settings", "loss"),
    [
        *((name, settings, loss) for name, settings, losses in STEPS for loss in losses),
        *(("cross_entropy", {}, loss) for loss in SMALL_LOSSES.values()),
    ],
    ids=str,
)
def test_weights_are_repeated_samples(name: str, settings: dict[str, Any], loss: Loss) -> None:
    """Each step uses all samples, without dropout: random batches and masks of the problems would differ."""
    weighted, repeated = weighted_and_repeated(loss, kernel_for(name))

    def all_at_once(problem: Problem) -> Trainer[Any]:
        return short(name, 4, len(problem.y), "literal", **settings)

    expected = after(all_at_once(repeated), repeated, weighted.x)
    for trainer in engines_of(all_at_once(weighted), weighted):
        assert_close(after(trainer, weighted, weighted.x), expected)


EXACT: dict[str, dict[str, float]] = {
    "linear_svm": {"tol": 1e-9, "max_iter": 10**6},
    "nystroem": {"tol": 1e-9, "max_iter": 10**6},
    "logistic": {"tol": 1e-9},
    "trees": {"min_samples_leaf": 1, "max_iter": 20},  # before hessians fall below scikit-learn's minimum
}


METHODS: list[tuple[str, Kernel, Engine]] = [
    *(("svc", RBF(1.0), engine) for engine in (LITERAL, TORCH)),
    *((name, RBF(1.0) if name == "nystroem" else Linear(), LITERAL) for name in EXACT),
]


@pytest.mark.parametrize("loss", SMALL_LOSSES.values(), ids=SMALL_LOSSES)
@pytest.mark.parametrize(("name", "K", "engine"), METHODS, ids=str)
def test_methods_without_steps_take_weights(
    name: str, K: Kernel, engine: Engine, loss: Loss, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights equal repetitions up to scikit-learn's tolerance, which ``EXACT`` lowers. In trees, a leaf may
    have a single sample, since ``min_samples_leaf`` ignores weights.
    """
    weighted, repeated = weighted_and_repeated(loss, K)
    options: dict[str, Any] = {"svc": {"lam": 0.1, "tol": 1e-10}, "trees": {}}.get(name, {"lam": 0.1})
    trainer: Trainer[Any] = for_engine(engine, build_trainer({"name": name, **options}))
    with monkeypatch.context() as patched:
        if isinstance(trainer, ScikitLearn):
            machine = type(trainer).machine
            exactly = lambda self, problem, n: machine(self, problem, n).set_params(**EXACT[name])  # noqa: E731
            patched.setattr(type(trainer), "machine", exactly)
        ours, theirs = (after(trainer, p, weighted.x)[0] for p in (weighted, repeated))
    assert_close(ours, theirs, 1e-7 if name == "svc" else 1e-5)
    alike = after(trainer, replace(weighted, weights=None), weighted.x)[0]
    assert (alike - ours).abs().max() > 1e-3


def test_a_search_weighs_its_samples() -> None:
    """A search chooses the same parameters as scikit-learn's GridSearchCV with these weights."""
    noise = torch.randn(60, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    task, x, y = samples(loss := SMALL_LOSSES["two classes"], noise)
    weights = np.where(y > 0, 1.98, 0.02)
    grid = {"C": [1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0]}
    p = Problem(x, y, RBF(1.0), 0, task=task, loss=loss, weights=weights)
    F = theta_for(trainer := build_trainer({"name": "svc", "grid": grid}), p)
    theirs = GridSearchCV(SVC(gamma=1.0), grid, cv=3).fit(F(x), y, sample_weight=weights)
    assert trainer.search(p, F)[1]["chosen"] == theirs.best_params_


@pytest.mark.parametrize("loss", ALL_LOSSES, ids=repr)
def test_the_objective_is_that_of_repeated_samples(loss: Loss) -> None:
    weighted, repeated = weighted_and_repeated(loss, RBF(1.0))
    _, g = train(short("pegasos", 6, len(COUNTS), lam=0.1), weighted, theta_for(Pegasos(6), weighted))
    values = [
        full_objective(g, p.K, F(p.x), p.y, loss, 0.1, p.w(np.arange(len(p.y))))
        for p in (weighted, repeated)
        for F in [theta_for(Pegasos(6), p)]
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-12)
