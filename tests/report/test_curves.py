"""Validation accuracy in the course of training, and the picture of it all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nsvm_cli.config.settings import parse_settings, plain
from nsvm_cli.errors import InputError
from nsvm_cli.report.curves import draw_curves
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.runs.train import train_run
from nsvm_cli.storage.run_directory import RunDirectory

pytestmark = pytest.mark.usefixtures("unchecked")

SETTINGS: dict[str, Any] = {
    "dataset": {"name": "ringnorm", "samples": 600, "validation": 60},
    "network": {"name": "mlp", "widths": [8, 6]},
    "kernel": {"name": "rbf", "gamma": 1.0},
    "optimizer": {"name": "sgd", "lr": 0.01},
    "algorithm": {"name": "alg4", "steps": 100, "solver_steps": 300},
}


def run(folder: Path, **changes: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    settings = parse_settings({**SETTINGS, **changes})
    with RunDirectory(folder, plain(settings)) as directory:
        result = train_run(prepare(settings), directory)
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()], result


def test_validation_accuracy_is_recorded_and_ends_with_the_results(tmp_path: Path) -> None:
    records, result = run(tmp_path / "run", validation={"every": 70})
    seen = {r["step"]: r["validation_accuracy"] for r in records if "validation_accuracy" in r}
    assert [*seen] == [140, 210, 280, 350, 400], "from Part 2 on: before there is no classifier"
    assert seen[400] == result["validation_accuracy"]


@pytest.mark.parametrize("algorithm", ["pegasos", "alg1", "alg2", "alg3", "alg4"])
def test_looking_changes_nothing(algorithm: str, tmp_path: Path) -> None:
    chosen = {"name": algorithm, "steps": 150}
    if algorithm == "alg4":
        chosen["solver_steps"] = 150
    results = []
    for name, every in (("blind", None), ("watched", 7)):
        _, result = run(tmp_path / name, algorithm=chosen, validation={"every": every})
        model = (tmp_path / name / "final.safetensors").read_bytes()
        results.append((result["validation_accuracy"], result["violations"], model[-1000:]))
    assert results[0] == results[1]


def test_it_needs_a_validation_set() -> None:
    dataset = {"name": "ringnorm", "samples": 600}
    settings = parse_settings({**SETTINGS, "dataset": dataset, "validation": {"every": 5}})
    with pytest.raises(InputError, match=r"validation\.every needs a validation set: expected dataset\.val"):
        prepare(settings)


def test_any_run_can_be_drawn(tmp_path: Path) -> None:
    run(tmp_path / "run", validation={"every": 50})
    picture = draw_curves(tmp_path / "run")
    assert picture == tmp_path / "run" / "curves.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError, match=r"no metrics\.jsonl: expected the directory of a run"):
        draw_curves(tmp_path)
    (tmp_path / "metrics.jsonl").touch()
    with pytest.raises(InputError, match="expected a run with at least one record"):
        draw_curves(tmp_path)
