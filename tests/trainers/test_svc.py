"""The exact solvers of SVMs compared with scikit-learn, for every kind of task."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from scipy import ndimage
from sklearn import svm
from sklearn.datasets import load_digits
from torch import Tensor

from nsvm_cli.engines import TORCH, Engine, for_engine
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.estimators import NSVMClassifier
from nsvm_cli.models.kernels import RBF, Kernel, Laplacian, Linear, Normalized, Polynomial
from nsvm_cli.models.losses import (
    Binary,
    CrammerSinger,
    EpsilonInsensitive,
    Hinge,
    Loss,
    OneVsRest,
    Residual,
    SquaredHinge,
)
from nsvm_cli.tasks import MulticlassClassification
from nsvm_cli.trainers.alg4 import LAM as LAM_4
from nsvm_cli.trainers.alg4 import Alg4
from nsvm_cli.trainers.base import Problem
from nsvm_cli.trainers.direct import LinearSVM
from nsvm_cli.trainers.svc import SVC
from tests.conftest import LOSSES, MakeSmall, train

LAM, M = 0.01, 90
C = 1 / (LAM * M)


KERNELS = [RBF(0.5), RBF(), Linear(), Laplacian(0.3), Polynomial(2), Normalized(Polynomial(2))]


def decision_function(machine: svm.SVC, z: Tensor) -> np.ndarray:
    """Return the decision values or, for C > 2 classes, each class's smallest margin over another class."""
    pairs, C = machine.decision_function(z), len(machine.classes_)
    if C == 2:
        return pairs
    margins = np.full((len(z), C, C), np.inf)
    for (i, j), g in zip(combinations(range(C), 2), pairs.T, strict=True):
        margins[:, i, j], margins[:, j, i] = g, -g
    return margins.min(2)


@pytest.mark.parametrize("K", KERNELS, ids=str)
@pytest.mark.parametrize("kind", sorted(LOSSES))
def test_svc_and_svr(kind: str, K: Kernel, small: MakeSmall) -> None:
    s = small(1, m=M, K=K, loss=LOSSES[kind])
    state, g = train(SVC(LAM, 1e-6), s.problem, F := s.theta(0))
    z, y = F(s.problem.x), s.problem.y
    assert torch.equal(g.z, z[g.i])
    ours = g(K, z)
    if kind == "real targets":
        theirs = svm.SVR(C=C, epsilon=0.1, kernel="precomputed", tol=1e-6).fit(K(z, z), y)
        np.testing.assert_allclose(ours, theirs.predict(K(z, z)), atol=1e-4)
        return
    machine = svm.SVC(C=C, kernel="precomputed", tol=1e-6, decision_function_shape="ovo").fit(K(z, z), y)
    np.testing.assert_array_equal(s.problem.task.decide(ours), machine.predict(K(z, z)))
    np.testing.assert_allclose(ours, decision_function(machine, K(z, z)), atol=1e-4)
    assert state.t == state.solved * 100 // len(state.parts) == 100


def test_svc_tells_many_classes_apart(small: MakeSmall) -> None:
    s, K = small(1, m=150, K=RBF(0.5)), RBF(0.5)
    task = MulticlassClassification(tuple("abcdefg"))
    y = (7 * torch.rand(150, generator=torch.Generator().manual_seed(3))).floor().double()
    problem = replace(s.problem, y=y, task=task, loss=CrammerSinger(Hinge()))
    _, g = train(SVC(LAM, tol=1e-10), problem, F := s.theta(0))
    z = F(s.problem.x)
    theirs = svm.SVC(C=1 / (LAM * 150), gamma=0.5, tol=1e-10, decision_function_shape="ovo").fit(z, y)
    assert g.alpha.shape == (len(theirs.support_), 21)
    ours = g(K, z).numpy()
    np.testing.assert_allclose(ours, decision_function(theirs, z), atol=1e-6)  # LIBSVM uses float32
    np.testing.assert_array_equal(task.decide(ours), decision_function(theirs, z).argmax(1))
    clear = ours.max(1) > 0
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(task.decide(ours)[clear], theirs.predict(z)[clear])


OPTIONS = {"C": C, "random_state": 0, "max_iter": 10_000}


@pytest.mark.parametrize(
    ("loss", "machine"),
    [
        (Binary(Hinge()), svm.LinearSVC(loss="hinge", **OPTIONS)),
        (Binary(SquaredHinge()), svm.LinearSVC(dual="auto", tol=1e-7, **OPTIONS)),
        (OneVsRest(SquaredHinge()), svm.LinearSVC(dual="auto", tol=1e-7, **OPTIONS)),
        (CrammerSinger(Hinge()), svm.LinearSVC(multi_class="crammer_singer", tol=1e-7, **OPTIONS)),
        (Residual(EpsilonInsensitive(0.2)), svm.LinearSVR(epsilon=0.2, **OPTIONS)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_linear(loss: Loss, machine: svm.LinearSVC | svm.LinearSVR, small: MakeSmall) -> None:
    s = small(1, m=M, K=Linear(), loss=loss)
    _, g = train(LinearSVM(LAM), s.problem, F := s.theta(0))
    z = F(s.problem.x)
    assert g.i is None
    theirs = machine.fit(z, s.problem.y)
    values = theirs.predict(z) if isinstance(loss, Residual) else theirs.decision_function(z)
    np.testing.assert_allclose(g(Linear(), z), values, atol=1e-9)
    if not isinstance(loss, Residual):
        np.testing.assert_array_equal(s.problem.task.decide(g(Linear(), z)), theirs.predict(z))


def test_the_objective_of_separable_classes_is_within_a_thousandth_of_the_least() -> None:
    X, y = load_digits(return_X_y=True)
    X, y, lam = X[:300], y[:300], 1e-5
    rows = np.arange(300)

    def objective(w: np.ndarray, b: np.ndarray, x: np.ndarray) -> float:
        f = x @ w.T + b
        rivals = f + 1
        rivals[rows, y] -= 1
        loss = (rivals.max(1) - f[rows, y]).mean()
        return float(lam / 2 * ((w**2).sum() + (b**2).sum()) + loss)

    model = NSVMClassifier("linear_svm", lam=lam, dtype="float64").fit(X, y).model_
    x = model.features(torch.from_numpy(X)).numpy()
    ours = objective(model.expansion.z.numpy(), np.asarray(model.expansion.bias), x)
    options = {"C": 1 / (lam * 300), "tol": 1e-9, "max_iter": 10_000, "random_state": 0}
    exact = svm.LinearSVC(multi_class="crammer_singer", **options)
    exact.fit(x, y)
    assert ours < 1.001 * objective(exact.coef_, exact.intercept_, x)


@pytest.mark.parametrize("kind", sorted(LOSSES))
def test_linear_says_that_it_has_not_converged(
    kind: str, small: MakeSmall, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("nsvm_cli.trainers.direct.MAX_ITERATIONS", 1)
    s = small(1, m=M, K=Linear(), loss=LOSSES[kind])
    train(LinearSVM(1e-100), s.problem, s.theta(0))
    says = "linear_svm stopped after 1 iterations, before it converged; set algorithm.lam above 1e-100, or"
    assert capsys.readouterr().err == f"{says} use pegasos\n"


@pytest.mark.parametrize("kind", sorted(LOSSES))
def test_svc_ends_where_no_step_closes_the_gap(
    kind: str, small: MakeSmall, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """LIBSVM would not terminate."""
    for module in ("trainers.dual", "engines.numba.working_sets"):
        monkeypatch.setattr(f"nsvm_cli.{module}.MOST", 10**4)
    s = small(1, m=M, K=Linear(), loss=LOSSES[kind])
    state, g = train(SVC(1e-100), s.problem, s.theta(0), engine=TORCH)
    assert state.t == 100
    assert g.alpha.isfinite().all()
    *_, last = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"svc stopped at a gap of \S+, above tol=0\.001; set algorithm\.lam above 1e-100, or .*", last
    )


class Coarse(RBF):
    """An RBF kernel whose float32 values are rounded to bfloat16, with two to three digits."""

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        K = super().__call__(a, b)
        return K.bfloat16().to(K) if K.dtype == torch.float32 else K


@pytest.mark.parametrize("engine", ["literal", "torch"])
@pytest.mark.parametrize("K", [Coarse(0.02), RBF(0.02)])
def test_the_gap_is_that_of_the_result(
    K: Kernel, engine: Engine, small: MakeSmall, capsys: pytest.CaptureFixture[str]
) -> None:
    """The gap belongs to exact kernel values and rounded coefficients, even if the solver's K is coarse."""
    s, m, lam = small(1, m=40, K=K), 40, 1e-6
    z, y = s.problem.x.float(), np.sign(np.random.default_rng(1).standard_normal(m))
    svc: Any = for_engine(engine, SVC(lam))
    state = svc.solved(replace(s.problem, x=z, y=torch.from_numpy(y).float()))
    g, G = svc.finish(s.problem, state), RBF(0.02)(z.double(), z.double()).numpy()
    beta, C = np.zeros(m), 1 / lam / m
    beta[g.i] = g.alpha.double()
    f, a = G @ beta - y, y * beta
    a[np.isclose(a, C, rtol=1e-6)] = C
    up, low = np.where(y > 0, a < C, a > 0), np.where(y > 0, a > 0, a < C)
    gap = f[low].max() - f[up].min()
    reported = float((re.findall(r"stopped at a gap of (\S+),", capsys.readouterr().err) or [0])[0])
    assert reported == pytest.approx(gap, rel=0.05) if gap > 2e-3 else reported < 2e-3
    loss = np.maximum(0, 1 - y * (G @ beta + g.bias)).mean()
    excess = lam * beta @ G @ beta + loss - lam * a.sum()
    assert state.figures["duality_gap"] == pytest.approx(excess, rel=0.05)


@pytest.mark.parametrize("engine", ["literal", "torch"])
def test_kernel_values_beyond_float32_are_an_error(engine: Engine, small: MakeSmall) -> None:
    s = small(1, m=M, K=Polynomial(200))
    problem = replace(s.problem, x=s.problem.x.float(), y=s.problem.y.float())
    svc: Any = for_engine(engine, SVC(LAM))
    with pytest.raises(RunError, match="a kernel value is not finite at step 1"):
        svc.solved(problem)


@pytest.mark.parametrize("engine", ["literal", "torch"])
def test_svc_without_bias(engine: Engine, small: MakeSmall) -> None:
    s = small(1, m=M, K=Linear(), loss=LOSSES["two classes"])
    _, g = train(SVC(LAM, 1e-6, bias=False), s.problem, F := s.theta(0), engine=engine)
    z, y = F(s.problem.x), s.problem.y
    theirs = svm.LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=1e-9, max_iter=10**6).fit(z, y)
    assert g.bias == 0
    np.testing.assert_allclose(g(Linear(), z), theirs.decision_function(z), atol=1e-4)


@pytest.mark.parametrize(("engine", "bias"), [("literal", False), ("torch", True), ("torch", False)])
@pytest.mark.parametrize("kind", [*sorted(LOSSES), "each against the rest"])
def test_a_path_of_lambda_reaches_the_same_optima(
    kind: str, bias: bool, engine: Engine, small: MakeSmall
) -> None:
    """The second SVM with lambda = 0.02 starts at its optimum, and takes no step."""
    s, state = small(1, m=45, K=RBF(0.5), loss=LOSSES.get(kind, OneVsRest(Hinge()))), None
    for lam in (0.1, 0.02, 0.02):
        svc: Any = for_engine(engine, SVC(lam, 1e-6, bias))
        cold, state = svc.solved(s.problem), svc.solved(s.problem, state)
        np.testing.assert_allclose(state.figures["dual_value"], cold.figures["dual_value"], rtol=1e-6)
        at_optimum = [svc.finish(s.problem, each)(s.problem.K, s.problem.x) for each in (state, cold)]
        np.testing.assert_allclose(*at_optimum, atol=1e-4)
    assert not any(part.state.steps for part in state.parts)


def test_each_class_against_the_rest(small: MakeSmall) -> None:
    s = small(1, m=M, K=RBF(0.5), loss=OneVsRest(Hinge()))
    _, g = train(SVC(LAM, 1e-6), s.problem, F := s.theta(0), engine=TORCH)
    z, y = F(s.problem.x), s.problem.y
    for r in range(3):
        theirs = svm.SVC(C=C, gamma=0.5, tol=1e-6).fit(z, y == r)
        np.testing.assert_allclose(g(s.problem.K, z)[:, r], theirs.decision_function(z), atol=2e-3)


@pytest.mark.parametrize("weights", [None, np.linspace(0.5, 1.5, 120)], ids=["plain", "weighted"])
@pytest.mark.parametrize("engine", ["literal", "torch"])
def test_virtual_support_vectors(engine: Engine, weights: np.ndarray | None, small: MakeSmall) -> None:
    """The second SVM is scikit-learn's on the support vectors and their copies, also after a pause."""
    X, y = load_digits(n_class=3, return_X_y=True)
    x = torch.from_numpy(X[:120] / 16).reshape(-1, 1, 8, 8)
    network: Any = {"name": "identity"}
    s, K, task = small(network=network), RBF(0.1), MulticlassClassification(("a", "b", "c"))
    loss = CrammerSinger(Hinge())
    problem = Problem(x, torch.from_numpy(y[:120]).double(), K, 0, task=task, loss=loss, weights=weights)
    _, first = train(SVC(LAM, 1e-8), problem, F := s.theta(0))
    trainer = for_engine(engine, SVC(LAM, 1e-8, virtual=True))
    trainer.check(problem, F)
    _, g = train(trainer, problem, F)
    assert first.i is not None
    assert g.i is not None
    j = first.i.numpy()
    directions = ((0, 0, 1, 0), (0, 0, -1, 0), (0, 0, 0, 1), (0, 0, 0, -1))
    copies = [x[j], *(ndimage.shift(x[j].numpy(), by, order=0, mode="nearest") for by in directions)]
    z, w = F(torch.from_numpy(np.concatenate(copies))), np.ones(120) if weights is None else weights
    machine = svm.SVC(C=1 / (LAM * 120), gamma=0.1, tol=1e-8, decision_function_shape="ovo")
    machine.fit(z, np.tile(y[j], 5), sample_weight=np.tile(w[j], 5) / 5)
    np.testing.assert_allclose(g(K, F(x)), decision_function(machine, F(x)), atol=1e-5)
    assert len(g.i) == len(machine.support_) > len(j)
    assert {*g.i.tolist()} <= {*j.tolist()}

    state = trainer.start(problem, F)
    trainer.advance(problem, state, 60)
    resumed = trainer.complete(problem, trainer.restore(problem, F, state.state_dict()))
    assert torch.equal(trainer.finish(problem, resumed).alpha, g.alpha)


def test_virtual_support_vectors_require_images_and_an_exact_solver(small: MakeSmall) -> None:
    s = small()
    with pytest.raises(InputError, match=r"algorithm\.virtual requires images, got samples of shape \[5\]"):
        SVC(LAM, virtual=True).check(s.problem, s.theta(0))
    with pytest.raises(InputError, match=r"algorithm\.virtual requires algorithm\.solver=svc"):
        Alg4(virtual=True).check(s.problem, s.theta(0))
    assert Alg4(solver="svc", virtual=True).svm == SVC(LAM_4, virtual=True)
