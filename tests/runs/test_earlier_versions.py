"""Files that version 0.1.0 wrote before its checkpoints were renamed: model files and run directories."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nsvm_cli.cli.job import _check_same_run
from nsvm_cli.config.settings import parse_settings, plain
from nsvm_cli.errors import InputError
from nsvm_cli.runs.checkpoint import identity, load_checkpoint, mismatches, restore_state
from nsvm_cli.runs.evaluation import evaluate_model
from nsvm_cli.runs.experiment import prepare, train_in_memory
from nsvm_cli.runs.model_file import load_model
from nsvm_cli.runs.train import train_run
from nsvm_cli.storage.run_directory import RunDirectory, read_config
from nsvm_cli.trainers import build_trainer
from tests.conftest import parameters

WRITTEN = Path(__file__).parents[1] / "data" / "v0.1.0"
ALGORITHMS = ["pegasos", "alg1", "alg2", "alg3", "alg4"]


def test_a_model_file_is_read_and_evaluated() -> None:
    figures = evaluate_model(WRITTEN / "model.safetensors", None, {}, None, {})
    assert (figures["errors"], figures["samples"], figures["same_data"]) == (20, 40, True)


@pytest.mark.parametrize(
    "algorithm",
    [pytest.param(name, marks=[] if name == "alg4" else [pytest.mark.thorough]) for name in ALGORITHMS],
)
def test_a_resumed_run_gives_the_uninterrupted_result(algorithm: str, tmp_path: Path) -> None:
    run = shutil.copytree(WRITTEN / algorithm, tmp_path / "run")
    settings = parse_settings(read_config(run))
    # which processor wrote the file makes a difference of rounding
    with RunDirectory(run, plain(settings), "resume") as directory:
        result = train_run(prepare(settings), directory, allow_mismatch=True)
    assert (result["steps"], result["resumed"]) == (150, 1)
    resumed, whole = load_model(run / "final.safetensors").model, train_in_memory(prepare(settings))
    if algorithm != "pegasos":
        torch.testing.assert_close(parameters(resumed.network), parameters(whole.network))
    for ours, theirs in [(resumed.expansion, whole.expansion)]:
        torch.testing.assert_close(ours.z, theirs.z)
        assert torch.equal(ours.alpha, theirs.alpha)
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [30, 50, 60, 90, 100, 120, 150]
    assert all(0 <= record["violation_rate"] <= 1 for record in records[5:]), "without the steps before"


def test_both_numbers_of_steps_still_mean_the_two_parts_of_algorithm_4() -> None:
    settings = parse_settings(read_config(WRITTEN / "alg4"))
    trainer = build_trainer(settings.algorithm)
    assert (trainer.last_theta_step, trainer.total) == (60, 60 + 90)
    recorded = load_checkpoint(WRITTEN / "alg4" / "last.safetensors").settings
    assert "task" not in recorded, "a setting that has been added since has its default"
    assert mismatches(identity(recorded, {}), plain(settings)) == []


def test_a_sweep_takes_up_a_run_that_an_earlier_version_recorded() -> None:
    """Settings that have been added since have their defaults."""
    settings = parse_settings(read_config(WRITTEN / "alg1"))
    assert "task" not in read_config(WRITTEN / "alg1")
    _check_same_run(WRITTEN / "alg1", settings)
    with pytest.raises(InputError, match="holds a run with other settings"):
        _check_same_run(WRITTEN / "alg1", replace(settings, multiclass="one_vs_rest"))


def test_a_checkpoint_of_the_first_kind_keeps_its_facts() -> None:
    checkpoint = load_checkpoint(WRITTEN / "alg2" / "last.safetensors")
    assert (checkpoint.step, checkpoint.bitwise, checkpoint.resumed) == (100, True, 0)
    assert checkpoint.environment["nsvm"] == "0.1.0"
    assert {"window", "last_violation", "mean_gap"} <= checkpoint.values["state"].keys()
    experiment = prepare(parse_settings(read_config(WRITTEN / "alg2")))
    assert restore_state(experiment, checkpoint).t == 100
    with pytest.raises(ValueError, match="does not fit this run"):
        restore_state(experiment, replace(checkpoint, step=99))
