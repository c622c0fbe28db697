"""The search space, and what a search may and may not do; real searches are in tests/cli/test_tune.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nsvm_cli.config.settings import parse_settings
from nsvm_cli.errors import InputError
from nsvm_cli.studies.search_space import Choice, Range, parse_search, placed
from nsvm_cli.studies.tune import Candidate, _write, validation_score
from tests.small_tables import KINDS, small_table

SETTINGS: dict[str, Any] = {
    "dataset": {"name": "ringnorm", "samples": 400, "validation": 40},
    "network": {"name": "mlp", "widths": [8]},
    "kernel": {"name": "rbf", "gamma": 1.0},
    "optimizer": {"name": "sgd", "lr": 0.01},
    "algorithm": {"name": "alg4", "steps": 30, "solver_steps": 200},
}


def search(**values: Any) -> dict[str, Any]:
    return {"directory": "here", "space": {"optimizer": {"lr": [0.1]}}, **values}


def test_a_space_has_the_form_of_the_settings() -> None:
    space = {
        "optimizer": {"lr": {"low": 1e-4, "high": 0.1, "log": True}, "momentum": [0.0, 0.9]},
        "algorithm": {"batch_size": {"low": 2, "high": 64}},
    }
    assert parse_search(search(space=space)).ranges() == {
        "optimizer.lr": Range(1e-4, 0.1, log=True),
        "optimizer.momentum": Choice([0.0, 0.9]),
        "algorithm.batch_size": Range(2, 64),
    }


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"trials": 0},
            "tune.trials should be greater than or equal to 1, got 0|tune.trials should be greater",
        ),
        ({"trails": 3}, "trails"),
        ({"space": {}}, r"tune.space is empty"),
        ({"space": {"optimizer": {"lr": 0.1}}}, r"tune.space.optimizer.lr: expected a list or \{low, high"),
        ({"space": {"optimizer": {"lr": []}}}, r"tune.space.optimizer.lr.* a list of 1 or more"),
        ({"space": {"optimizer": {"lr": {"low": 2, "high": 1}}}}, "expected low < high"),
        ({"space": {"optimizer": {"lr": {"low": 0, "high": 1, "log": True}}}}, "0 < low with log"),
        ({"space": {"optimizer": {"lr": {"low": 0.1}}}}, "tune.space.optimizer.lr"),
    ],
)
def test_a_wrong_search_is_refused_in_a_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        parse_search(search(**values)).ranges()


def test_a_point_takes_its_place_and_leaves_the_settings_alone() -> None:
    changed = placed(SETTINGS, {"optimizer.lr": 0.5, "network.dropout": 0.1})
    assert changed["optimizer"] == {"name": "sgd", "lr": 0.5}
    assert changed["network"] == {"name": "mlp", "widths": [8], "dropout": 0.1}
    assert SETTINGS["optimizer"]["lr"] == 0.01
    with pytest.raises(InputError, match="no section 'optimiser'"):
        placed(SETTINGS, {"optimiser.lr": 0.5})


def test_the_score_is_what_a_run_on_validation_data_records() -> None:
    from nsvm_cli.runs.experiment import prepare, train_in_memory

    experiment = prepare(parse_settings({**SETTINGS, "seed": 3}))
    model, part = train_in_memory(experiment), experiment.data.splits["validation"]
    assert validation_score(SETTINGS, 3) == model.score(part.x, part.y)["accuracy"]
    assert validation_score(placed(SETTINGS, {"optimizer.lr": 1e30}), 3) == 0, "it diverges"
    assert validation_score(SETTINGS, 3, seconds=1e-9) == 0, "it takes longer"


def test_finalists_are_ranked_by_their_further_seeds() -> None:
    lucky = Candidate(0, {"optimizer.lr": 0.1, "kernel.gamma": None}, [0.99, 0.99], [0.90, 0.94])
    assert lucky.mean == pytest.approx(0.92)
    assert lucky.error == pytest.approx(0.02)
    assert lucky.overrides == "optimizer.lr=0.1 kernel.gamma=null"
    assert replace(lucky, overlap=1 / 2).error == pytest.approx(0.02 * 2**0.5), "1/2 + 1/2 for 1/2"


@pytest.mark.parametrize("kind", KINDS)
def test_the_score_is_the_metric_of_the_task(kind: str, tmp_path: Path) -> None:
    values = {
        **SETTINGS,
        **small_table(kind, tmp_path),
        "algorithm": {"name": "alg4", "steps": 5, "solver": "svc"},
    }
    assert 0.5 < validation_score(values, 3) < 1
    if kind == "regression":  # R^2 of nearly the same prediction for all
        assert validation_score({**values, "algorithm": {"name": "pegasos", "steps": 1, "lam": 1e6}}, 3) == 0


def test_finalists_are_written_under_the_name_of_the_metric(tmp_path: Path) -> None:
    _write([Candidate(0, {"optimizer.lr": 0.1}, [0.9], [0.8, 0.6])], "r2", tmp_path / "finalists.csv")
    lines = (tmp_path / "finalists.csv").read_text().splitlines()
    assert lines[0] == "candidate,r2,standard_error,search_r2,overrides"
    assert lines[1].startswith("0,0.7,0.1")
