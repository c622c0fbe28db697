"""The choice between Algorithm 4 and an SVM on the inputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import load_file
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import SVC

from nsvm_cli import NSVMClassifier, NSVMRegressor
from nsvm_cli.compose.composition import compose_settings
from nsvm_cli.errors import InputError
from nsvm_cli.models.composed_kernels import build_kernel, with_initial_parameters
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.networks import Identity
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.words import training_rows
from tests.small_runs import small_run, small_settings

AUTO: dict[str, Any] = {
    "algorithm": {"name": "auto", "lengths": [5, 10], "solver": None},
    "network": {"name": "mlp", "widths": [10, 6], "normalize": True},
    "kernel": {"name": "rbf", "gamma": 4.0},
    "engine": "torch",
}


def bits(run: Path) -> dict[str, bytes]:
    return {name: t.numpy().tobytes() for name, t in load_file(run / "final.safetensors").items()}


@pytest.fixture(autouse=True)
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn off repetitions of cross-validation on small problems, to save time."""
    monkeypatch.setattr("nsvm_cli.trainers.auto.SMALL", 0)


def found(**changes: Any) -> dict[str, Any]:
    """Return the result of a search with changed settings of the algorithm."""
    e = prepare(small_settings(**{**AUTO, "algorithm": {**AUTO["algorithm"], **changes}}))
    return e.trainer.search(e.problem, e.F)[1]


def test_scores_are_scikit_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores on the inputs and on the features after Part 1 are compared. The test set is never used."""
    monkeypatch.undo()
    seed, metric = 1, "roc_auc"
    dataset = {"name": "ringnorm", "samples": 100}
    e = prepare(small_settings(**AUTO, dataset=dataset, loss={"name": "hinge"}, seed=seed, metric=metric))
    e.data.splits["test"].x.fill_(float("nan"))
    _, found = e.trainer.search(e.problem, e.F)
    x, y = e.problem.x.numpy(), e.problem.host_y
    splitters = [StratifiedKFold(4, shuffle=True, random_state=seed + r) for r in range(3)]
    folds = [fold for splitter in splitters for fold in splitter.split(x, y)]
    gamma = 1 / (x.shape[1] * float(e.problem.x.double().var(correction=0)))
    grid = {"C": [0.2, 2, 20], "gamma": [gamma * scale for scale in (1 / 16, 1 / 4, 1, 4)]}
    theirs = GridSearchCV(SVC(), grid, cv=folds, scoring=metric).fit(x, y).cv_results_
    expected = {
        (p["gamma"], p["C"]): s for p, s in zip(theirs["params"], theirs["mean_test_score"], strict=True)
    }
    ours = {(c["gamma"], c["C"]): c["score"] for c in found["tried"] if c["algorithm"] == "svc"}
    np.testing.assert_allclose(sorted(ours), sorted(expected))
    np.testing.assert_allclose(
        [ours[k] for k in sorted(ours)], [expected[k] for k in sorted(expected)], atol=0.01
    )
    K = with_initial_parameters(build_kernel({"name": "laplacian", "ard": True}), e.problem.x[:1])
    factors = FeatureMap(Identity(()), e.F.optimizer.settings, seed, K=K)
    for network, F, kernel in (("identity", factors, K), (None, e.F, e.problem.K)):
        features = [
            (*replace(e.trainer, steps=5).features_of((replace(train, K=kernel), test), F), train, test)
            for train, test in ((e.problem.of(rows, e.problem.x[rows]) for rows in fold) for fold in folds)
        ]
        candidates = [c for c in found["tried"] if (c.get("steps"), c.get("network")) == (5, network)]
        assert [c["C"] for c in candidates] == [0.2, 2, 20]
        for candidate in candidates:
            machine, scorer = SVC(C=candidate["C"], kernel="precomputed"), get_scorer(metric)
            scores = [
                scorer(machine.fit(K(z, z).numpy(), train.host_y), K(z_test, z).numpy(), test.host_y)
                for z, z_test, K, train, test in features
            ]
            assert candidate["score"] == pytest.approx(np.mean(scores), abs=0.01)
    assert found["candidates"] == len(found["tried"]) in (18, 21, 24)
    assert found["chosen"] == max(found["tried"], key=lambda candidate: candidate["score"])


@pytest.mark.parametrize("name", ["svc", "alg4", "alg4 with factors of the inputs"])
def test_a_run_is_that_of_its_choice(name: str, tmp_path: Path) -> None:
    """A run with the chosen settings gives the same model."""
    scales = [1.0] if name == "svc" else [1e-9]  # with a far too small gamma, svc is not chosen
    lengths = [1] if name == "svc" else [5, 10]
    settings: dict[str, Any] = {
        **AUTO,
        "algorithm": {**AUTO["algorithm"], "scales": scales, "lengths": lengths},
    }
    if name == "alg4":
        settings["kernel"] = {"name": "polynomial", "gamma": 1.0}
    elif name != "svc":
        settings["network"] = {"name": "identity"}
    result = small_run(tmp_path / "auto", **settings)
    chosen = result["chosen"]
    assert chosen["algorithm"] == result["algorithm"] == name.split()[0]
    (shown,) = (words for words, _, meaning in training_rows(result) if meaning.endswith(", chosen"))
    steps = f", {chosen.get('steps')} steps"
    expected = {"svc": "svc", "alg4": f"alg4{steps}"}.get(name, f"alg4, laplacian{steps}")
    assert shown == expected
    m = result["data"]["samples"]["train"]
    byhand = {**settings, "algorithm": {"name": chosen["algorithm"], "lam": 1 / (chosen["C"] * m)}}
    byhand["loss"] = {"name": "squared_hinge"}
    if name == "svc":
        byhand |= {"network": {"name": "identity"}, "kernel": {"name": "rbf", "gamma": chosen["gamma"]}}
    else:
        byhand["algorithm"] |= {"steps": chosen["steps"], "solver": "svc", "loss": "leave_one_out"}
    if "kernel" in chosen:
        assert (chosen["network"], chosen["kernel"]) == ("identity", "laplacian")
        byhand["kernel"] = {"name": "laplacian", "ard": True}
    small_run(tmp_path / "hand", **byhand)
    assert bits(tmp_path / "auto") == bits(tmp_path / "hand")


def test_more_steps_are_tried_while_they_help() -> None:
    lengths = [1, 2, 3, 4, 5]
    tried = found(lengths=lengths)["tried"]
    for network in ("identity", None):
        of_network = [c for c in tried if "steps" in c and c.get("network") == network]
        scores = {n: [c["score"] for c in of_network if c["steps"] == n] for n in lengths}
        best = [max(of_length) for of_length in scores.values() if of_length]
        assert 2 <= len(best) <= len(lengths)
        assert all(np.diff(best[:-1]) > 0)
        assert len(best) == len(lengths) or best[-1] <= best[-2]


def test_values_that_are_set_are_the_only_ones_to_try() -> None:
    algorithm = {**AUTO["algorithm"], "steps": 7, "lam": 0.01}
    e = prepare(small_settings(**{**AUTO, "algorithm": algorithm}))
    settings, found = e.trainer.search(e.problem, e.F)
    C = pytest.approx(1 / (0.01 * len(e.problem.y)))
    assert [(c["algorithm"], c.get("steps"), c["C"]) for c in found["tried"]] == [
        *[("svc", None, C)] * 4,
        *[("alg4", 7, C)] * 2,
    ]
    assert settings["algorithm"]["lam"] == pytest.approx(0.01)


def test_limited_searches_try_the_first_candidates() -> None:
    everything = found()["tried"]
    three, thirteen = (found(candidates=number) for number in (3, 13))
    for number, limited in ((3, three), (13, thirteen)):
        assert (limited["candidates"], limited["tried"]) == (number, everything[:number])
    assert found(time_limit=1e-9) == three


def test_a_network_without_theta_leaves_the_inputs_and_their_factors() -> None:
    fixed = {**AUTO, "network": {"name": "identity"}, "algorithm": {**AUTO["algorithm"], "lam": 0.01}}
    e = prepare(small_settings(**fixed))
    tried = [c for c in e.trainer.search(e.problem, e.F)[1]["tried"] if c["algorithm"] == "alg4"]
    assert {c["network"] for c in tried} == {"identity"}
    e = prepare(small_settings(**{**fixed, "kernel": {"name": "linear"}}))
    assert {c["algorithm"] for c in e.trainer.search(e.problem, e.F)[1]["tried"]} == {"svc"}
    with pytest.raises(InputError, match="auto does not support kernels that learn; use alg4"):
        prepare(small_settings(**{**AUTO, "kernel": {"name": "rbf", "gamma": 4.0, "learn": ["gamma"]}}))


@pytest.mark.parametrize("epochs", [2, 0.01])
def test_lengths_of_too_many_epochs_are_not_tried(epochs: float) -> None:
    """The shortest length is always tried."""
    assert 5 * 32 <= 2 * len(prepare(small_settings()).problem.y) < 20 * 32
    tried = found(lengths=[20, 5], batch_size=32, epochs=epochs, lam=0.01)["tried"]
    assert {c["steps"] for c in tried if "steps" in c} == {5}


@pytest.mark.parametrize(
    ("words", "algorithm"),
    [
        ("dataset=csv dataset.path=t.csv", "auto"),
        ("dataset.table=letter dataset=pmlb", "auto"),
        ("dataset=openml dataset.id=61 algorithm=alg1", "alg1"),
        ("dataset=csv dataset.path=t.csv experiment=ringnorm_alg4_wide", "alg4"),
        ("dataset=digits", "alg4"),
        ("seed=1", "alg4"),
    ],
)
def test_the_default_for_tables(words: str, algorithm: str) -> None:
    assert compose_settings(words.split())["algorithm"]["name"] == algorithm
    assert NSVMClassifier().algorithm == NSVMRegressor().algorithm == "auto"


def test_a_table_has_the_tuned_values_of_algorithm_4() -> None:
    words = ["dataset=csv", "dataset.path=table.csv", "algorithm="]
    auto, alg4 = (compose_settings([*words[:2], words[2] + name]) for name in ("auto", "alg4"))
    assert auto["algorithm"].pop("epochs") == 200
    assert alg4["algorithm"].pop("epochs")
    own = {"name": "auto", "solver": None, "lam": None, "loss": "leave_one_out", "batch_size": 256}
    shared = {key: auto["algorithm"][key] for key in alg4["algorithm"]}
    assert shared == alg4["algorithm"] | own
    assert [auto[part] for part in ("network", "kernel", "optimizer")] == [
        alg4[part] for part in ("network", "kernel", "optimizer")
    ]
    assert (auto["dataset"]["max_codes"], alg4["dataset"]["max_codes"]) == (12, 0)


def test_real_targets_in_python() -> None:
    x = np.random.default_rng(0).normal(size=(160, 3))
    y = x[:, 0] - 2 * np.abs(x[:, 1])
    fitted = NSVMRegressor("auto", settings={"algorithm.lengths": [20]}).fit(x[:120], y[:120])
    assert fitted.score(x[120:], y[120:]) > 0.8


@pytest.mark.parametrize("settings", [{}, {"dataset.max_codes": 0}])
def test_codes_in_a_data_frame(settings: dict[str, int]) -> None:
    table = pd.DataFrame({"size": np.linspace(0, 1, 60) ** 2, "colour": np.arange(60) % 4})
    fitted = NSVMClassifier("auto", settings={"algorithm.candidates": 1, **settings}).fit(
        table, table.colour % 2
    )
    codes = [] if settings else [f"colour={code}" for code in range(4)]
    assert fitted.model_.metadata.encoder.features == ["size", "colour", *codes]
