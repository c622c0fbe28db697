"""Values that a run chooses before its first step, by a search or in place of null."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import SVC

from nsvm_cli.artifacts.model_file import load_model
from nsvm_cli.models.composed_kernels import with_gamma_of_scale
from nsvm_cli.runs.checkpoint import load_checkpoint
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.runs.open_model import open_model
from nsvm_cli.storage.run_directory import checkpoints_in, read_config
from tests.runs.test_train import bits, go, interrupt
from tests.small_runs import small_settings

GRID = {"C": [0.01, 10], "gamma": [0.05, 20]}
SEARCH: dict[str, Any] = {
    "algorithm": {"name": "svc", "grid": GRID},
    "network": {"name": "identity"},
    "kernel": {"name": "rbf", "gamma": 20.0},  # far from the value that is chosen
    "engine": "literal",
    "curves": False,
}


def test_a_choice_of_the_algorithm_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # gamma is far too small for an SVM on the inputs, so that alg4 is chosen
    auto = {"name": "auto", "lengths": [20], "scales": [1e-9], "solver": None}
    network, kernel = {"name": "mlp", "widths": [8], "normalize": True}, {"name": "rbf", "gamma": 4.0}
    settings = small_settings(algorithm=auto, network=network, kernel=kernel, curves=False)
    interrupt(tmp_path / "resumed", settings, 10)
    go(tmp_path / "whole", settings)
    with monkeypatch.context() as m:
        m.setattr(StratifiedKFold, "split", None)  # a second search would raise an error
        result = go(tmp_path / "resumed", settings)
    assert bits(tmp_path / "resumed") == bits(tmp_path / "whole")
    assert result["chosen"]["algorithm"] == result["algorithm"] == "alg4"
    assert read_config(tmp_path / "resumed")["algorithm"] == auto


def test_a_search_comes_once_and_its_choice_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = small_settings(**SEARCH)
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    interrupt(resumed, settings, 40)
    (halfway,) = checkpoints_in(resumed)
    unfinished = open_model(halfway)[1]
    go(whole, settings)
    with monkeypatch.context() as m:
        m.setattr(StratifiedKFold, "split", None)  # a second search would raise an error
        result = go(resumed, settings)
    assert bits(resumed) == bits(whole)
    assert (result["candidates"], result["chosen"]) == (4, {"C": 10, "gamma": 0.05})

    e = prepare(settings)
    x, y, test = e.problem.x, e.problem.y, e.data.splits["test"]
    theirs = GridSearchCV(SVC(), GRID, cv=StratifiedKFold(3)).fit(x, y)
    assert result["test_accuracy"] == theirs.score(e.scaling(test.x), test.y)
    final = load_model(resumed / "final.safetensors")
    finished = open_model(checkpoints_in(resumed)[0])[1]
    assert final.settings.kernel == finished.settings.kernel == unfinished.settings.kernel
    assert final.settings.kernel["gamma"] == 0.05
    assert torch.equal(final.decision_function(test.x), finished.decision_function(test.x))
    assert read_config(resumed)["algorithm"]["grid"] == GRID


def test_a_gamma_of_null_suits_features_that_do_not_move(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"algorithm": {"name": "pegasos", "steps": 200}, "kernel": {"name": "rbf"}}
    settings = small_settings(**changes)
    interrupt(tmp_path / "run", settings, 100)
    z = (e := prepare(settings)).F(e.problem.x).double()
    gamma = pytest.approx(1 / (z.shape[1] * float(z.var(correction=0))))
    (file,) = checkpoints_in(tmp_path / "run")
    assert load_checkpoint(file).chosen["kernel.gamma"] == gamma
    assert open_model(file)[1].settings.kernel["gamma"] == gamma
    go(tmp_path / "run", settings)
    assert load_model(tmp_path / "run/final.safetensors").settings.kernel["gamma"] == gamma
    assert read_config(tmp_path / "run")["kernel"] == {"name": "rbf"}
    moving = small_settings(**changes | {"algorithm": {"name": "alg1", "steps": 200}})
    assert prepare(moving).settings == moving


def test_gamma_is_that_of_each_kernel_and_counts_weights() -> None:
    z, w = torch.tensor([[0.0, 1], [3, 4], [5, 5]]), torch.tensor([1.0, 3, 0])
    gamma = 1 / (2 * float(z[[0, 1, 1, 1]].var(correction=0)))
    inner = [{"name": "rbf"}, {"name": "laplacian"}, {"name": "polynomial", "gamma": 2.0}]
    scaled = with_gamma_of_scale({"name": "sum", "of": inner}, lambda: z, w)
    assert scaled["of"] == [{"name": "rbf", "gamma": pytest.approx(gamma)}, *inner[1:]]
    assert with_gamma_of_scale({"name": "rbf"}, lambda: torch.ones(3, 4))["gamma"] == 1 / 4


def test_svc_alone_comes_with_a_C_of_1(tmp_path: Path) -> None:
    parts: dict[str, Any] = {"network": {"name": "identity"}, "kernel": {"name": "rbf", "gamma": 0.3}}
    settings = small_settings(algorithm={"name": "svc"}, **parts)
    interrupt(tmp_path / "run", settings, 40)
    m = len((e := prepare(settings)).problem.y)
    (file,) = checkpoints_in(tmp_path / "run")
    of_model = open_model(file)[1].settings.algorithm["lam"]
    assert load_checkpoint(file).chosen["algorithm.lam"] == of_model == 1 / m
    assert read_config(tmp_path / "run")["algorithm"].get("lam") is None, "a choice replaced null"
    go(tmp_path / "run", settings)
    x, test = e.problem.x, e.data.splits["test"]
    theirs = SVC(C=1, gamma=0.3).fit(x, e.problem.y).decision_function(e.scaling(test.x))
    ours = load_model(tmp_path / "run" / "final.safetensors").decision_function(test.x)
    assert ours.tolist() == pytest.approx(theirs.tolist(), abs=0.01)


def test_a_solver_of_null_is_said_and_kept_in_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nsvm_cli.trainers.alg4.MAX_SVC_SAMPLES", 10)
    settings = small_settings(algorithm={"name": "alg4", "steps": 200, "solver": None})
    interrupt(tmp_path / "run", settings, 100)
    m = len((e := prepare(settings)).problem.y)
    said = f"algorithm.solver=nystroem is used, since svc would be slow for {m} training samples"
    assert said in e.remarks()
    (file,) = checkpoints_in(tmp_path / "run")
    assert load_checkpoint(file).chosen["algorithm.solver"] == "nystroem"
    assert read_config(tmp_path / "run")["algorithm"]["solver"] is None, "a choice replaced null"
    monkeypatch.undo()
    go(tmp_path / "run", settings)
    assert load_model(tmp_path / "run/final.safetensors").settings.algorithm["solver"] == "nystroem"
