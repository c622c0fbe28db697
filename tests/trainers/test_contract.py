"""The contract that every algorithm must fulfil."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import pytest
import torch

from nsvm_cli.errors import InputError, RunError
from nsvm_cli.models.composed_kernels import build_kernel
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import RBF
from nsvm_cli.runs.loop import OnLog, run
from nsvm_cli.trainers import Trainer, build_trainer
from tests.conftest import LOSSES, STEPPING, MakeSmall, short, train

STEPS = 40

Case = tuple[str, int | None, float]
CASES: list[Case] = [("two classes", None, 1e-4), ("three classes", 4, 1e-2), ("real targets", None, 1e-2)]
"""Kinds of task, batch sizes (None: the algorithm's default), and values of lambda."""


two_classes = pytest.mark.parametrize("case", CASES[:1], ids=itemgetter(0), indirect=True)
"""The mark of tests that need only one kind of task."""


@pytest.fixture(params=CASES, ids=itemgetter(0))
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture
def small(small: MakeSmall, case: Case) -> MakeSmall:
    """Return the maker of small problems with the loss of the case."""
    return partial(small, loss=LOSSES[case[0]])


# cross_entropy has no lambda and no alpha, and linear_pegasos requires a linear kernel
@pytest.fixture(params=sorted({*STEPPING} - {"cross_entropy", "linear_pegasos"}))
def algorithm(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def trainer(algorithm: str, case: Case) -> Trainer[Any]:
    _, k, lam = case
    return short(algorithm, STEPS, k, lam=lam)


def test_terms_are_of_named_samples_and_not_0(trainer: Trainer[Any], small: MakeSmall) -> None:
    s = small(1)
    state, g = train(trainer, s.problem, F := s.theta(0))  # a fixed theta, since Algorithm 1 stores features
    torch.testing.assert_close(F(s.problem.x[g.i]), g.z)
    assert (g.alpha != 0).reshape(len(g.alpha), -1).any(1).all()
    assert state.support_vectors == len(g.alpha) == len(g.z)


def test_finishing_early_is_a_shorter_run(trainer: Trainer[Any], small: MakeSmall) -> None:
    """``finish`` divides g by lambda t, and does not change the state."""
    s = small(1)
    state, g = train(trainer, s.problem, s.theta(), steps=25)
    again = trainer.finish(s.problem, state)
    assert torch.equal(g.z, again.z)
    if g.bias == 0 and state.support_vectors:
        scale = state.t if not hasattr(state, "part_2") else state.part_2.t
        assert g.scale == pytest.approx(trainer.lam * scale)  # type: ignore[attr-defined]


def test_divergence_stops_the_run(trainer: Trainer[Any], small: MakeSmall) -> None:
    s = small(1)
    F = s.theta()

    def spoil(_: object) -> None:
        with torch.no_grad():
            next(F.network.parameters()).fill_(float("nan"))

    with pytest.raises(RunError, match=r"diverged at step \d+: .* is not finite; ") as caught:
        run(trainer, s.problem, F, 1, [OnLog(spoil)])
    assert "lower optimizer.lr" in str(caught.value) or not trainer.moves_theta


def test_features_that_are_not_finite_at_the_start_are_no_divergence(small: MakeSmall) -> None:
    s = small(1)
    with torch.no_grad():
        next((F := s.theta()).network.parameters()).fill_(float("nan"))
    with pytest.raises(
        RunError, match="is not finite at step 1, before theta changes: check the network, or"
    ):
        run(build_trainer({"name": "alg4", "steps": 20}), s.problem, F, 1)


@pytest.mark.parametrize("steps", [0, -3, "many", 2.5, [], True])
def test_impossible_steps_are_refused(algorithm: str, steps: object) -> None:
    with pytest.raises(InputError, match=r"^algorithm\.steps [^\n]*$"):
        build_trainer({"name": algorithm, "steps": steps})


@two_classes
@pytest.mark.parametrize("name", ["alg3", "alg4"])
def test_a_batch_larger_than_the_training_set_is_refused(name: str, small: MakeSmall) -> None:
    s = small(1)
    with pytest.raises(
        InputError, match="batch_size=41: expected at most 40, the number of training samples"
    ):
        build_trainer({"name": name, "steps": 1, "batch_size": 41}).check(s.problem, s.theta())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"name": "alg3", "batch_size": 1}, "batch_size should be greater than or equal to 2"),
        ({"name": "alg3", "mu": 0}, "algorithm.mu should be greater than 0, got 0"),
        ({"name": "alg4", "batch_size": 1}, "batch_size should be greater than or equal to 2"),
        ({"name": "alg4", "loss": "cubed"}, "algorithm.loss: there is no 'cubed'; .*squared"),
        ({"name": "alg4", "solver": "svm"}, "algorithm.solver: there is no 'svm'; did you mean svc"),
        ({"name": "alg4", "lam": 0}, "algorithm.lam should be greater than 0, got 0"),
        ({"name": "alg4", "lamb": 1}, "algorithm.lamb: alg4 has no such setting; did you mean lam"),
        *(
            ({"name": "alg4", "split": s}, r"^algorithm\.split")
            for s in ([0, 5], [5], [1, 2, 3], "half", 0.5)
        ),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=rf"{said}[^\n]*$"):
        build_trainer({"steps": 1, **settings})


@two_classes
def test_pegasos_reaches_the_primal_optimum(small: MakeSmall) -> None:
    """Pegasos comes within 2 % of the optimum, which coordinate ascent on the dual problem computes."""
    s, lam, m = small(4, m=60, K=RBF(0.5), network={"name": "identity"}), 0.02, 60
    K, y = s.problem.K(s.problem.x, s.problem.x).numpy(), s.problem.host_y
    Q, a = np.outer(y, y) * K, np.zeros(m)

    def primal(beta: np.ndarray) -> float:
        return float(lam / 2 * beta @ K @ beta + np.maximum(1 - y * (K @ beta), 0).mean())

    for _ in range(200):  # coordinate ascent with 0 <= a_i <= 1/(lambda m)
        for i in range(m):
            a[i] = min(max(a[i] + (1 - Q[i] @ a) / Q[i, i], 0), 1 / (lam * m))
    trainer = build_trainer({"name": "pegasos", "steps": 10_000, "lam": lam})
    state, g = train(trainer, s.problem, s.theta(), engine="torch")
    optimum, reached = primal(a * y), primal(state.coefficients.alpha / g.scale)  # type: ignore[attr-defined]
    assert optimum <= reached <= 1.02 * optimum


@two_classes
@pytest.mark.parametrize("name", ["alg1", "alg2", "alg3", "alg4"])
def test_the_optimizer_gets_the_progress_of_the_run(
    name: str, small: MakeSmall, monkeypatch: pytest.MonkeyPatch
) -> None:
    s, moves = small(1), []
    monkeypatch.setattr(FeatureMap, "move", lambda F, value, term, t, T: moves.append((t, T)) or value)
    train(short(name, STEPS), s.problem, s.theta())
    assert len(moves) > 5
    assert moves == [(t, STEPS) for t in range(1, STEPS + 1) if (t, STEPS) in moves]


@two_classes
def test_smo_by_the_book_keeps_to_the_memory_budget(small: MakeSmall) -> None:
    s = small(1, m=400, K=build_kernel({"name": "laplacian"}))
    problem = replace(s.problem, memory_budget=1)
    trainer = build_trainer({"name": "svc"})
    with pytest.raises(
        InputError, match=r"1\.2 MiB for the 400 x 400 kernel matrix, more than memory_budget=1; run pip"
    ):
        train(trainer, problem, s.theta())
    train(trainer, problem, s.theta(), engine="torch")
    train(trainer, replace(problem, memory_budget=2), s.theta())
