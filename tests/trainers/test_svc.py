"""The solvers of Part 2 against scikit-learn's own predictions, for every kind of task."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn import svm

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
from nsvm_cli.trainers.linear_models import LinearSVM
from nsvm_cli.trainers.svc import SVC
from tests.conftest import LOSSES, MakeSmall, train

LAM, M = 0.01, 90
C = 1 / (LAM * M)


KERNELS = [RBF(0.5), RBF(), Linear(), Laplacian(0.3), Polynomial(2), Normalized(Polynomial(2))]
"""Those whose values scikit-learn computes, and those that it is given."""


@pytest.mark.parametrize("K", KERNELS, ids=str)
@pytest.mark.parametrize("kind", sorted(LOSSES))
def test_svc_and_svr(kind: str, K: Kernel, small: MakeSmall) -> None:
    s = small(1, m=M, K=K, loss=LOSSES[kind])
    state, g = train(SVC(LAM), s.problem, F := s.theta(0))
    z, y = F(s.problem.x), s.problem.y
    assert torch.equal(g.z, z[g.i])
    ours = g(K, z)
    if kind == "real targets":
        theirs = svm.SVR(C=C, epsilon=0.1, kernel="precomputed").fit(K(z, z), y)
        np.testing.assert_allclose(ours, theirs.predict(K(z, z)), atol=2e-3)
        return
    machine = svm.SVC(C=C, kernel="precomputed", break_ties=True).fit(K(z, z), y)
    np.testing.assert_array_equal(s.problem.task.decide(ours), machine.predict(K(z, z)))
    np.testing.assert_allclose(ours, machine.decision_function(K(z, z)), atol=2e-3)
    assert state.t == 0


def test_svc_tells_many_classes_apart(small: MakeSmall) -> None:
    """Rows of dual_coef_ stand for other classes, columns of alpha for pairs."""
    s, K = small(1, m=150, K=RBF(0.5)), RBF(0.5)
    task = MulticlassClassification(tuple("abcdefg"))
    y = (7 * torch.rand(150, generator=torch.Generator().manual_seed(3))).floor().double()
    problem = replace(s.problem, y=y, task=task, loss=CrammerSinger(Hinge()))
    _, g = train(SVC(LAM), problem, F := s.theta(0))
    z = F(s.problem.x)
    theirs = svm.SVC(C=1 / (LAM * 150), gamma=0.5, break_ties=True).fit(z, y)
    assert g.alpha.shape == (len(theirs.support_), 21)
    np.testing.assert_allclose(votes := g(K, z), theirs.decision_function(z), atol=1e-9)
    np.testing.assert_array_equal(task.decide(votes), theirs.predict(z))


OPTIONS = {"C": C, "random_state": 0, "max_iter": 10_000}


@pytest.mark.parametrize(
    ("loss", "machine"),
    [
        (Binary(Hinge()), svm.LinearSVC(loss="hinge", **OPTIONS)),
        (Binary(SquaredHinge()), svm.LinearSVC(dual="auto", **OPTIONS)),
        (OneVsRest(SquaredHinge()), svm.LinearSVC(dual="auto", **OPTIONS)),
        (CrammerSinger(Hinge()), svm.LinearSVC(multi_class="crammer_singer", **OPTIONS)),
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


@pytest.mark.parametrize(
    ("solver", "iterations"), [(SVC(1e-100), 10 * M), (LinearSVM(1e-100), 1)], ids=["svc", "linear"]
)
@pytest.mark.parametrize("kind", sorted(LOSSES))
def test_a_solver_that_has_not_converged_says_what_to_do(
    kind: str,
    solver: SVC | LinearSVM,
    iterations: int,
    small: MakeSmall,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """LIBSVM would never converge."""
    monkeypatch.setattr("nsvm_cli.trainers.svc.MAX_ITERATIONS", 1)
    monkeypatch.setattr("nsvm_cli.trainers.linear_models.MAX_ITERATIONS", 1)
    s = small(1, m=M, K=Linear(), loss=LOSSES[kind])
    train(solver, s.problem, s.theta(0))
    assert capsys.readouterr().err == (
        f"{solver.name} stopped after {iterations} iterations, before it converged: "
        "raise algorithm.lam=1e-100, or use pegasos\n"
    )
