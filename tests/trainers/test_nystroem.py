"""Nystroem's method compared with scikit-learn's for the same landmarks, and with the exact SVM."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.kernel_approximation import Nystroem as Features
from sklearn.svm import LinearSVC, LinearSVR

from nsvm_cli.models.kernels import RBF, Biased, Kernel, Laplacian, Linear, Normalized, Polynomial
from nsvm_cli.models.losses import Binary, Hinge, Loss, OneVsRest, SquaredHinge
from nsvm_cli.trainers import build_trainer
from nsvm_cli.trainers.alg4 import Alg4
from nsvm_cli.trainers.direct import LinearSVM
from nsvm_cli.trainers.nystroem import Nystroem, inverse_root
from nsvm_cli.trainers.svc import SVC
from tests.conftest import LOSSES, MakeSmall, train

pytestmark = pytest.mark.usefixtures("shapes")


LAM, M = 0.01, 90
EXACT = {"tol": 1e-8, "max_iter": 10**6}


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train LIBLINEAR to a lower tolerance."""
    machine = LinearSVM.machine
    exactly = lambda self, problem, n: machine(self, problem, n).set_params(**EXACT)  # noqa: E731
    monkeypatch.setattr(LinearSVM, "machine", exactly)


@pytest.mark.parametrize("kind", sorted(LOSSES))
def test_it_is_a_linear_svm_on_scikit_learns_features(kind: str, small: MakeSmall, exact: None) -> None:
    s = small(1, m=M, K=RBF(0.5), loss=LOSSES[kind])
    trainer = build_trainer({"name": "nystroem", "lam": LAM, "landmarks": 20})
    trainer.check(s.problem, F := s.theta(0))
    state, g = train(trainer, s.problem, F)
    z, y = F(s.problem.x), s.problem.y
    assert torch.equal(g.z, z[g.i])
    assert (state.t, len(g.i), len(g.i.unique())) == (0, 20, 20)
    features = Features(gamma=0.5, n_components=20).fit(g.z)
    phi = features.transform(z)
    np.testing.assert_allclose(
        phi @ phi.T, (root := RBF(0.5)(z, g.z) @ inverse_root(RBF(0.5)(g.z, g.z))) @ root.T
    )
    options: dict[str, Any] = {"C": 1 / (LAM * M), "random_state": 0, **EXACT}
    if kind == "real targets":
        theirs = LinearSVR(epsilon=0.1, **options).fit(phi, y).predict(phi)
    else:
        several = {"multi_class": "crammer_singer"} if kind == "three classes" else {"loss": "hinge"}
        theirs = LinearSVC(**several, **options).fit(phi, y).decision_function(phi)
    np.testing.assert_allclose(g(RBF(0.5), z), theirs, atol=1e-4)


KERNELS = [RBF(0.5), Laplacian(0.3), Linear(), Polynomial(2), Normalized(Polynomial(2))]


@pytest.mark.parametrize("K", KERNELS, ids=str)
@pytest.mark.parametrize("kind", ["two classes", "real targets"])
def test_with_all_samples_as_landmarks_it_is_exact(
    kind: str, K: Kernel, small: MakeSmall, exact: None
) -> None:
    """LIBLINEAR regularises the bias, which is equivalent to the kernel K + 1 without a bias."""
    s = small(1, m=M, K=K, loss=LOSSES[kind])
    _, g = train(Nystroem(LAM, landmarks=10**6), s.problem, F := s.theta(0))
    biased = replace(s.problem, K=Biased(K))
    _, exactly = train(SVC(LAM, 1e-8, bias=False), biased, F, engine="torch")
    z = F(s.problem.x)
    np.testing.assert_allclose(g(K, z), exactly(Biased(K), z), atol=1e-4)


@pytest.mark.parametrize(
    ("loss", "weighted"),
    [
        *((loss, kind != "three classes") for kind, loss in LOSSES.items()),
        *((OneVsRest(Hinge()), False), (Binary(SquaredHinge()), False)),
    ],
    ids=repr,
)
def test_a_part_of_the_samples_suffices(loss: Loss, weighted: bool, small: MakeSmall, exact: None) -> None:
    s = small(1, m=300, K=RBF(0.5), loss=loss)
    w = np.linspace(0.5, 1.5, 300) if weighted else None
    problem, trainer = replace(s.problem, weights=w), Nystroem(LAM, landmarks=20)
    _, whole = train(trainer, problem, F := s.theta(0))
    _, part = train(replace(trainer, first=30), problem, F)
    z = F(problem.x)
    torch.testing.assert_close(part(problem.K, z), whole(problem.K, z), atol=2e-3, rtol=0)


@pytest.mark.parametrize("kind", sorted(LOSSES))
def test_it_keeps_to_the_memory_budget(
    kind: str, small: MakeSmall, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If only a random subset of the samples is used, lambda stays the same."""
    monkeypatch.setattr("nsvm_cli.trainers.nystroem.BYTES", 2**20 // 1000)
    s = small(1, m=M, K=RBF(0.5), loss=LOSSES[kind])
    trainer, F = Nystroem(1e-1, landmarks=20, first=20), s.theta(0)
    _, g = train(trainer, replace(s.problem, memory_budget=1), F)
    says = r"nystroem uses (\d+) of 90 samples, because of memory_budget; raise memory_budget to use more\n"
    stopped = r"(?:nystroem stopped after 10000 iterations, .*\n)*"  # printed with scikit-learn 1.8
    found = re.fullmatch(stopped + says, capsys.readouterr().err)
    assert found
    assert 50 <= int(found[1]) < 90, "expected 50, or more if landmarks are equal"
    score = s.problem.loss.of(s.problem.y, g(RBF(0.5), F(s.problem.x))).mean()
    _, whole = train(trainer, s.problem, F)
    best = s.problem.loss.of(s.problem.y, whole(RBF(0.5), F(s.problem.x))).mean()
    assert score < 1.5 * best


def test_equal_landmarks_and_a_kernel_of_zeros_do_no_harm(small: MakeSmall) -> None:
    s = small(1, m=M, K=Linear())
    for x in (s.problem.x.repeat(2, 1)[:M], torch.zeros_like(s.problem.x)):
        _, g = train(Nystroem(LAM, landmarks=60), replace(s.problem, x=x), s.theta(0))
        assert g(Linear(), s.theta(0)(x)).isfinite().all()
        assert g.alpha.abs().max() < 1e3


def test_the_seed_chooses_the_landmarks(small: MakeSmall) -> None:
    s = small(1, m=M)
    chosen = [
        train(Nystroem(LAM, landmarks=5), replace(s.problem, seed=seed), s.theta(0))[1].i
        for seed in (1, 1, 2)
    ]
    assert torch.equal(chosen[0], chosen[1])
    assert not torch.equal(chosen[0], chosen[2])


def test_part_2_of_algorithm_4(small: MakeSmall) -> None:
    s = small(1, m=M)
    state, g = train(Alg4(steps=5, solver="nystroem", lam=LAM), s.problem, s.theta())
    z = state.F(s.problem.x)
    torch.testing.assert_close(g(s.problem.K, z), Nystroem(LAM).solve(s.problem, z)(s.problem.K, z))
    assert (state.t, state.F.theta_steps) == (5, 5)


def test_a_search_maps_the_features(small: MakeSmall) -> None:
    """A linear SVM on the inputs could not separate the inner samples from the outer samples."""
    s = small(1, m=M, K=RBF(1.0), network={"name": "identity"})
    inner = s.problem.x.norm(dim=1) < s.problem.x.norm(dim=1).median()
    problem = replace(s.problem, y=torch.where(inner, 1.0, -1.0).double())
    trainer = Nystroem(LAM, {"C": [1e-6, 10]})
    trainer.check(problem, F := s.theta(0))
    settings, figures = trainer.search(problem, F)  # type: ignore[misc]  # there is a grid
    assert figures["chosen"] == {"C": 10}
    assert settings["algorithm.lam"] == pytest.approx(1 / (10 * M))
    assert trainer._score({"C": 10}, problem, problem) > 0.9
