"""Runs with probabilities: calibration on the validation set, and sigmoids in model files."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from nsvm_cli.artifacts.model_file import load_model
from nsvm_cli.errors import InputError
from nsvm_cli.models.nsvm import fit_sigmoids
from nsvm_cli.output import saying
from nsvm_cli.runs.experiment import prepare
from tests.artifacts.test_model_file import Mutation, change, contents
from tests.small_runs import small_run, small_settings
from tests.small_tables import small_table

pytestmark = pytest.mark.usefixtures("shapes")


CALIBRATED: dict[str, Any] = {
    "network": {"name": "mlp", "widths": [8], "normalize": True},
    "algorithm": {"name": "alg2", "steps": 60},
    "validation": {"every": 60},
    "calibration": "sigmoid",
    "engine": "torch",
}
DIGITS = {"dataset": {"name": "digits", "validation": 30}}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calibrated") / "run"
    small_run(path, **CALIBRATED | DIGITS)
    return path


@pytest.mark.parametrize("classes", ["two", "three"])
def test_the_sigmoids_are_those_of_the_validation_set(classes: str, trained: Path, tmp_path: Path) -> None:
    settings = DIGITS if classes == "two" else small_table("three classes", tmp_path)
    run = trained if classes == "two" else tmp_path / "run"
    if classes == "three":
        result = small_run(run, **CALIBRATED | settings)
        assert result["validation_log_loss"] > 0
        assert result["test_log_loss"] > 0
    split = prepare(small_settings(**CALIBRATED | settings)).data.splits["validation"]
    for file in ("final", "best"):
        model = load_model(run / f"{file}.safetensors")
        positive = split.y > 0 if classes == "two" else split.y[:, None] == torch.arange(3)
        torch.testing.assert_close(model.sigmoids, fit_sigmoids(model.decision_function(split.x), positive))
    p = model.probabilities(model.decision_function(split.x))
    torch.testing.assert_close(p.sum(1), torch.ones(len(split), dtype=torch.float64))
    assert model.score(split.x, split.y)["log_loss"] < 0.8 * math.log(p.shape[1]), "no better than a guess"


def test_a_slope_above_0_is_said(trained: Path) -> None:
    model, said = load_model(trained / "final.safetensors"), list[str]()
    experiment = prepare(small_settings(**CALIBRATED | DIGITS))
    with saying(said.append):
        experiment.with_threshold(model)
        assert said == []
        assert model.sigmoids is not None
        experiment.with_threshold(replace(model, sigmoids=-model.sigmoids))
    assert said == ["calibration: larger decision values make 1 less probable on the validation set"]


def test_training_is_the_same_without(trained: Path, tmp_path: Path) -> None:
    small_run(tmp_path / "run", **CALIBRATED | {**DIGITS, "calibration": None})
    with_, _ = contents(trained / "final.safetensors")
    without, _ = contents(tmp_path / "run" / "final.safetensors")
    assert with_.keys() - without.keys() == {"sigmoids"}
    assert all(torch.equal(with_[name], tensor) for name, tensor in without.items())
    assert load_model(tmp_path / "run" / "final.safetensors").sigmoids is None


AUTO = {key: value for key, value in CALIBRATED.items() if key != "calibration"}


def test_by_default_it_is_that_of_samples_with_the_classes_in_proportion(
    trained: Path, tmp_path: Path
) -> None:
    small_run(tmp_path / "run", **AUTO | DIGITS)
    automatic, asked = (contents(path / "final.safetensors")[0] for path in (tmp_path / "run", trained))
    assert automatic.keys() == asked.keys()
    assert all(torch.equal(tensor, asked[name]) for name, tensor in automatic.items())
    few: dict[str, Any] = AUTO | {"algorithm": {"name": "alg2", "steps": 5}, "validation": {}}
    for dataset in ({"name": "digits"}, {"name": "digits", "validation": "15 each"}):
        settings = few | {"dataset": dataset}
        assert "test_log_loss" not in small_run(tmp_path / "without", **settings)
        assert load_model(tmp_path / "without" / "final.safetensors").sigmoids is None
        shutil.rmtree(tmp_path / "without")
        with pytest.raises(InputError, match="log_loss requires probabilities"):
            prepare(small_settings(**settings | {"metric": "log_loss"}))
    targets = small_table("regression", tmp_path, 0.2)
    assert "validation_r2" in small_run(tmp_path / "targets", **few | targets)
    chosen = DIGITS | {"metric": "log_loss", "validation": {"every": 5}}
    best = small_run(tmp_path / "metric", **few | chosen)
    assert best["best_validation_log_loss"] > 0


@pytest.mark.parametrize(
    ("mutate", "said"),
    [
        (lambda t, m: t.pop("sigmoids"), "tensor 'sigmoids': expected F64 of shape .2., got none"),
        (
            lambda t, m: t.update(sigmoids=torch.zeros(3).double()),
            r"expected F64 of shape \[2\], got F64 of shape \[3\]",
        ),
    ],
)
def test_a_damaged_file_is_refused(mutate: Mutation, said: str, trained: Path, tmp_path: Path) -> None:
    file = shutil.copy(trained / "final.safetensors", tmp_path / "damaged.safetensors")
    change(file, mutate)
    with pytest.raises(InputError, match=said):
        load_model(file)
