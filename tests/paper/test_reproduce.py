"""Where runs fail or meet; the whole command is in tests/cli/test_reproduce.py."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from nsvm_cli.artifacts.model_file import load_model
from nsvm_cli.config.settings import Settings, parse_settings
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.paper.reproduce import Entry, Row, frozen, has_trained, read_rows, reproduce
from nsvm_cli.runs.experiment import prepare, train_in_memory
from tests.inline_workers import InlineWorkers
from tests.small_tables import small_table

pytestmark = pytest.mark.usefixtures("unchecked", "inline_workers")


def settings(lr: float, **changes: Any) -> Settings:
    return parse_settings(
        {
            "dataset": {"name": "ringnorm", "samples": 200},
            "network": {"name": "mlp", "widths": [4], **changes.pop("network", {})},
            "kernel": {"name": "rbf"},
            "optimizer": {"name": "sgd", "lr": lr},
            "algorithm": {"name": "alg4", "steps": 20, "solver_steps": 20},
            **changes,
        }
    )


NETWORK = settings(
    0.01,
    network={"head": True},
    kernel={"name": "linear"},
    algorithm={"name": "cross_entropy", "steps": 5, "batch_size": 4},
)


def cell_of(name: str, nsvm: Settings, network: Settings | None = NETWORK) -> Entry:
    return Entry(name, "ringnorm", nsvm, network, ("svc", "bayes"))


def test_a_failure_names_its_run_and_keeps_no_other_from_finishing(tmp_path: Path) -> None:
    cells = [cell_of("bad", settings(1e30)), cell_of("good", settings(0.01))]
    rows: list[Row] = []
    with pytest.raises(RunError, match=r"bad, seed 0: training diverged at step \d+"):
        reproduce(cells, 1, tmp_path, 2, lambda found, done, total: rows.extend(found))
    assert {(row.cell, row.method) for row in rows} == {
        *(("good", method) for method in ("nsvm", "svc_on_features", "frozen", "network")),
        *(("ringnorm", method) for method in ("svc", "bayes")),
    }
    assert not (tmp_path / "runs.csv").exists()
    steps = {row.method: row.theta_steps for row in rows}
    assert (steps["nsvm"], steps["network"]) == (20, 5), "the steps that the network was tuned for"


@pytest.fixture(scope="module")
def reproduction(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("reproduction")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("nsvm_cli.paper.reproduce.Workers", InlineWorkers)
        assert len(again(directory)) == 6
    return directory


@pytest.fixture
def finished(reproduction: Path, tmp_path: Path) -> Path:
    """Return the directory of a reproduction that has finished; each test has a copy."""
    return Path(shutil.copytree(reproduction, tmp_path / "finished"))


def again(directory: Path, lr: float = 0.01) -> list[Row]:
    return reproduced([cell_of("cell", settings(lr))], 1, directory)


def reproduced(cells: list[Entry], seeds: int, directory: Path) -> list[Row]:
    return reproduce(cells, seeds, directory, 1, lambda rows, done, total: None)


DAMAGE = {
    "cut off": lambda text: text[:30],
    "not an object": lambda text: "[3]",
    "deep": lambda text: "[" * 100_000,
    "text": lambda text: re.sub(r'errors": \d+', r'errors": "\\u001b[31m"', text),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["ringnorm/svc_0.json", "cell/seed_0/nsvm/result.json"])
def test_a_damaged_result_is_one_line_that_says_what_to_do(name: str, damage: str, finished: Path) -> None:
    file = finished / name
    file.write_text(DAMAGE[damage](file.read_text()))
    with pytest.raises(InputError, match=r"(svc_0|result).json is damaged, .*: remove it, and the same"):
        again(finished)
    file.unlink()
    with pytest.raises(InputError, match=r"nsvm was made with other settings: expected a new folder in dir"):
        again(finished, 0.02)
    assert len(again(finished)) == 6


def test_frozen_features_are_those_of_the_initial_theta_under_the_same_svm(finished: Path) -> None:
    """It is not meant to train, whatever its training accuracy."""
    run = finished / "cell" / "seed_0" / "frozen"
    facts = load_model(run / "final.safetensors").facts
    assert (facts.theta_change, facts.feature_change) == (0, 0)
    row = next(row for row in again(finished) if row.method == "frozen")
    assert row.trained
    assert row.accuracy == json.loads((run / "result.json").read_text())["test_accuracy"]


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "alg1", "steps": 300, "lam": 1e-2},
        {"name": "alg3", "steps": 100, "lam": 1e-2, "batch_size": 4},
        {"name": "alg4", "steps": 20, "solver_steps": 300, "lam": 1e-2},
        {"name": "alg4", "steps": 20, "solver": "svc", "lam": 1e-2},
    ],
    ids=str,
)
def test_frozen_features_have_the_svm_of_a_run_that_never_moves_theta(algorithm: dict[str, Any]) -> None:
    never = replace(settings(0.0), algorithm=algorithm, dtype="float64")
    x = prepare(never).data.splits["test"].x
    slow, quick = (train_in_memory(prepare(which)) for which in (never, frozen(never)))
    torch.testing.assert_close(quick.decision_function(x), slow.decision_function(x), rtol=0, atol=1e-9)


def table_cell(kind: str, folder: Path, network: bool) -> Entry:
    """Return a cell of a small table."""
    about = {**small_table(kind, folder, validation=0), "network": {"name": "mlp", "widths": [8]}}
    svm = {"kernel": {"name": "rbf"}, "algorithm": {"name": "alg4", "steps": 30, "solver": "svc"}}
    nsvm = settings(0.1, **about, **svm)
    head = {**NETWORK.algorithm, "steps": 300}
    of_network = {**about, "network": {**about["network"], "head": True}, "kernel": {"name": "linear"}}
    return Entry(
        "cell_alg4",
        "table",
        nsvm,
        settings(0.05, **of_network, algorithm=head) if network else None,
        ("svc_tuned",),
    )


@pytest.fixture
def small_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("C", "GAMMA", "EPSILON"):
        monkeypatch.setattr(f"nsvm_cli.paper.baselines.{name}", (1.0, 0.1))


@pytest.mark.usefixtures("small_grid")
@pytest.mark.thorough
def test_real_targets_have_their_own_scores(tmp_path: Path) -> None:
    cell = table_cell("regression", tmp_path, network=True)
    rows = reproduced([cell], 1, tmp_path / "out")
    methods = ["nsvm", "frozen", "network", "svc_tuned"]
    assert [row.method for row in rows] == methods, "the neural SVM is itself SVR on its features"
    result = json.loads((tmp_path / "out" / "cell_alg4" / "seed_0" / "nsvm" / "result.json").read_text())
    assert (rows[0].r2, rows[0].rmse) == (result["test_r2"], result["test_rmse"])
    assert {row.accuracy for row in rows} == {None}
    assert {row.trained for row in rows} == {True}
    assert read_rows(tmp_path / "out" / "runs.csv") == rows
    kept = json.loads((tmp_path / "out" / "table" / "svc_tuned_0.json").read_text())
    assert kept["figures"]["chosen"].keys() == {"C", "gamma", "epsilon"}


@pytest.mark.usefixtures("small_grid")
def test_what_no_seed_changes_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = table_cell("three classes", tmp_path, network=False)
    lines = Path(cell.nsvm.dataset["path"]).read_text().splitlines()
    (tmp_path / "test.csv").write_text("\n".join([lines[0], *lines[-40:]]))
    dataset = {**cell.nsvm.dataset, "test_path": str(tmp_path / "test.csv")}
    cell = replace(cell, nsvm=replace(cell.nsvm, dataset=dataset))
    rows = reproduced([cell], 2, tmp_path / "out")
    tuned = [row for row in rows if row.method == "svc_tuned"]
    assert [replace(row, seed=0) for row in tuned] == [tuned[0]] * 2
    assert [row.seed for row in tuned] == [0, 1]
    assert [file.name for file in (tmp_path / "out" / "table").glob("*.json")] == ["svc_tuned_0.json"]
    assert "network" not in {row.method for row in rows}


@pytest.mark.parametrize(
    ("result", "trained"),
    [
        ({"train_accuracy": 0.74, "data": {"classes": ["a", "b"]}}, False),
        ({"train_accuracy": 0.74, "data": {"classes": list("abcdefghij")}}, True),
        ({"train_accuracy": 0.54, "data": {"classes": list("abcdefghij")}}, False),
        ({"train_r2": 0.49, "data": {"classes": []}}, False),
        ({"train_r2": 0.5, "data": {"classes": []}}, True),
    ],
)
def test_trained_is_halfway_from_chance_to_perfect(result: dict[str, Any], trained: bool) -> None:
    assert has_trained(result) is trained
