"""Methods without steps, compared with scikit-learn on the same samples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC, SVR

from nsvm_cli.errors import InputError
from nsvm_cli.models.kernels import RBF, Laplacian, Linear
from nsvm_cli.models.losses import Binary, CrammerSinger, Logistic, Loss, Residual, Squared, SquaredHinge
from nsvm_cli.trainers import build_trainer
from nsvm_cli.trainers.direct import decisions, fold_score
from tests.conftest import LOSSES, MakeSmall, Small, train

pytestmark = pytest.mark.usefixtures("shapes")

M = 90
LAM = 0.01
C = 1 / (LAM * M)

FOREST: dict[str, Any] = {"learning_rate": 0.2, "max_leaf_nodes": 5, "max_iter": 20}
THEIRS: dict[str, dict[str, Any]] = {
    "two classes": {
        "logistic": LogisticRegression(C=C, max_iter=10_000),
        "trees": HistGradientBoostingClassifier(random_state=1, **FOREST),
        "majority": DummyClassifier(),
    },
    "real targets": {
        "logistic": Ridge(alpha=LAM * M),
        "trees": HistGradientBoostingRegressor(random_state=1, **FOREST),
        "majority": DummyRegressor(),
    },
}
THEIRS["three classes"] = THEIRS["two classes"]
OURS: dict[str, dict[str, Any]] = {"logistic": {"lam": LAM}, "trees": FOREST, "majority": {}}


def unbalanced(small: MakeSmall, kind: str, **changes: Any) -> Small:
    """Return a problem whose most frequent class is not the first."""
    s = small(1, m=M + 20, loss=LOSSES[kind], **changes)
    rows = s.problem.y.argsort()[20:]
    return replace(s, problem=replace(s.problem, x=s.problem.x[rows], y=s.problem.y[rows]))


@pytest.mark.parametrize("name", sorted(OURS))
@pytest.mark.parametrize("kind", sorted(LOSSES))
def test_predictions_are_scikit_learns(kind: str, name: str, small: MakeSmall) -> None:
    s = unbalanced(small, kind, K=Linear())
    trainer = build_trainer({"name": name, **OURS[name]})
    trainer.check(s.problem, F := s.theta(0))
    state, g = train(trainer, s.problem, F)
    z, task = F(s.problem.x), s.problem.task
    machine = THEIRS[kind][name].fit(z.numpy(), s.problem.y.numpy())
    np.testing.assert_allclose(task.decide(g(Linear(), z)), machine.predict(z.numpy()), atol=1e-6)
    if hasattr(machine, "decision_function"):
        np.testing.assert_allclose(g(Linear(), z), machine.decision_function(z.numpy()), atol=1e-6)
    assert (state.t, state.F.theta_steps, len(g.alpha)) == (0, 0, len(g.z))


@pytest.mark.parametrize(
    ("kind", "K"), [*((kind, RBF()) for kind in sorted(LOSSES)), ("three classes", Laplacian(0.5))]
)
def test_a_search_chooses_what_scikit_learn_does(kind: str, K: RBF | Laplacian, small: MakeSmall) -> None:
    s = unbalanced(small, kind, K=K)
    z, y = s.theta(0)(s.problem.x), s.problem.y.numpy()
    grid = {"C": [0.01, 1, 10]}
    grid |= {"epsilon": [0.01, 0.5]} if kind == "real targets" else {}
    grid |= {"gamma": [0.01, 1.0]} if isinstance(K, RBF) else {}
    machine = SVR if kind == "real targets" else SVC
    x, how = (z, {}) if isinstance(K, RBF) else (K(z, z), {"kernel": "precomputed"})
    theirs = GridSearchCV(machine(**how), grid, cv=3).fit(x.numpy(), y)
    trainer = build_trainer({"name": "svc", "grid": grid})
    trainer.check(s.problem, s.theta(0))
    found = trainer.search(s.problem, s.theta(0))
    settings, figures = found
    assert figures == {"candidates": len(theirs.cv_results_["params"]), "chosen": theirs.best_params_}
    assert settings["algorithm.lam"] == pytest.approx(1 / (theirs.best_params_["C"] * M))
    assert settings.get("kernel.gamma") == theirs.best_params_.get("gamma")
    epsilon = {"name": "epsilon_insensitive", "epsilon": theirs.best_params_.get("epsilon")}
    assert settings.get("loss") == (epsilon if kind == "real targets" else None)


@pytest.mark.parametrize(
    ("kind", "metric", "scorer"),
    [
        ("two classes", "f1", "f1"),
        ("two classes", "average_precision", "average_precision"),
        ("three classes", "balanced_accuracy", "balanced_accuracy"),
        ("real targets", "mae", "neg_mean_absolute_error"),
    ],
)
def test_a_search_compares_by_the_metric(kind: str, metric: str, scorer: str, small: MakeSmall) -> None:
    s = unbalanced(small, kind, K=Linear())
    z, y = s.theta(0)(s.problem.x), s.problem.y.numpy()
    machine = THEIRS[kind]["logistic"].fit(z.numpy(), y)
    ours = fold_score(replace(s.problem, metric=metric), decisions(machine, z))
    assert ours == pytest.approx(get_scorer(scorer)(machine, z.numpy(), y))


def test_a_search_takes_no_more_samples_than_it_needs(
    small: MakeSmall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nsvm_cli.trainers.direct.MOST_SAMPLES", 30)
    s = small(1, m=M, K=Linear())
    found = build_trainer({"name": "logistic", "grid": {"C": [2]}}).search(s.problem, s.theta(0))
    assert found[0]["algorithm.lam"] == pytest.approx(1 / (2 * M)), "lambda must refer to all samples"


TWO, THREE, REAL = LOSSES["two classes"], LOSSES["three classes"], LOSSES["real targets"]


@pytest.mark.parametrize(
    ("name", "grid", "loss", "K", "said"),
    [
        ("svc", {"c": [1]}, TWO, RBF(), r"grid\.c: svc .*did you mean C"),
        ("svc", {"epsilon": [1]}, TWO, RBF(), r"grid\.epsilon: svc cannot search"),
        ("svc", {"gamma": [1]}, TWO, Linear(), r"grid\.gamma: svc cannot search"),
        ("svc", {"C": [-1]}, TWO, RBF(), "algorithm.grid: lam should be greater than 0"),
        ("logistic", {"C": [-1]}, TWO, Linear(), "algorithm.grid: The 'C' parameter"),
        ("logistic", {"C": [1]}, REAL, Linear(), "grid.C.*expected one of: alpha"),
        ("logistic", None, TWO, RBF(), "logistic requires kernel=linear, got kernel=rbf"),
        ("svc", None, Binary(Logistic()), RBF(), "svc does not support loss=logistic; set algorithm=pegasos"),
        ("linear_svm", None, Residual(Squared()), Linear(), "linear_svm does not support loss=squared;"),
        ("linear_svm", None, CrammerSinger(SquaredHinge()), Linear(), "does not support loss=squared_hinge"),
        ("nystroem", None, Residual(Squared()), RBF(), "nystroem does not support loss=squared; set alg"),
        ("nystroem", {"gamma": [1]}, TWO, RBF(), r"grid\.gamma: nystroem cannot search this"),
        ("linear_svm", None, TWO, RBF(), "linear_svm requires kernel=linear, got kernel=rbf"),
    ],
)
def test_what_cannot_be_done_is_refused(
    name: str, grid: dict[str, Any] | None, loss: Loss, K: RBF | Linear, said: str, small: MakeSmall
) -> None:
    s, trainer = small(1, K=K, loss=loss), build_trainer({"name": name, "grid": grid})
    with pytest.raises(InputError, match=said):
        trainer.check(s.problem, s.theta(0)), trainer.search(s.problem, s.theta(0))


@pytest.mark.parametrize("grid", [{}, {"C": []}, {"C": 1}, {"C": ["many"]}])
def test_an_impossible_grid_is_refused(grid: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"^algorithm\.grid"):
        build_trainer({"name": "svc", "grid": grid})
