"""The search space and the rules for candidates; ``tests/cli/test_tune.py`` tests whole searches."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from nsvm_cli.cli.tune import USUAL
from nsvm_cli.comparison.intervals import standard_error
from nsvm_cli.compose.composition import compose_settings
from nsvm_cli.config.registry import construct
from nsvm_cli.config.settings import parse_settings, with_values
from nsvm_cli.datasets import Splits
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.tuning.search import (
    Candidate,
    Search,
    Space,
    effective,
    ends,
    holds,
    ranges,
    suited_validation,
    tune,
    validation_score,
)
from tests.small_tables import small_table

SETTINGS: dict[str, Any] = {
    "dataset": {"name": "ringnorm", "samples": 400, "validation": "40 each"},
    "network": {"name": "mlp", "widths": [8]},
    "kernel": {"name": "rbf", "gamma": 1.0},
    "optimizer": {"name": "sgd", "lr": 0.01},
    "algorithm": {"name": "alg4", "steps": 30, "solver_steps": 200},
}


def search(**values: Any) -> Search:
    defaults = {"directory": "here", "space": {"optimizer": {"lr": [0.1]}}}
    return construct(Search, "tune", {**defaults, **values})


def ends_of(space: Space) -> dict[str, tuple[Any, Any]]:
    return {key: ends(distribution) for key, distribution in space.items()}


def test_a_space_has_the_form_of_the_settings() -> None:
    space = {
        "optimizer": {"lr": {"low": 1e-4, "high": 0.1, "log": True}, "momentum": [0.0, 0.9]},
        "algorithm": {"batch_size": {"low": 2, "high": 64}},
    }
    found = ranges(space)
    assert ends_of(found) == {
        "optimizer.lr": (1e-4, 0.1),
        "optimizer.momentum": (0.0, 0.9),
        "algorithm.batch_size": (2, 64),
    }
    assert [holds(found["algorithm.batch_size"], value) for value in (2, 65, None)] == [True, False, False]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"trails": 3}, "trails"),
        ({"trials": True}, r"^tune\.trials should be a valid integer, got True"),
        ({"space": {"optimizer": {"lr": 0.1}}}, r"tune.space.optimizer.lr: expected a list or \{low, high"),
        ({"space": {"optimizer": {"lr": {"low": 2, "high": 1}}}}, "`low <= high` must hold"),
        ({"space": {"optimizer": {"lr": {"low": 0.1}}}}, "tune.space.optimizer.lr: expected a list or"),
    ],
)
def test_a_wrong_search_is_refused_in_a_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        search(**values).suited({}, {})


SUGGESTED: dict[str, Any] = {
    "algorithm": {"lam": {"low": 1e-6, "high": 1e-2, "log": True}, "max_leaf_nodes": [15, 31]},
    "kernel": {"gamma": {"low": 1e-2, "high": 10.0, "log": True}},
    "optimizer": {"lr": {"low": 1e-6, "high": 0.1, "log": True}, "momentum": [0.0, 0.9]},
    "network": {"dropout": {"low": 0.0, "high": 0.6}},
}


def test_a_suggested_space_follows_the_settings_and_what_the_user_adds_stays() -> None:
    asked = {**SUGGESTED, "kernel": {"gamma": {"low": 0.1, "high": 0.2}, "c": [0.0, 1.0]}}
    settings = {"algorithm.lam": 1e-4, "optimizer.lr": 1.0, "kernel.gamma": 1.0}
    assert ends_of(search(space=asked).suited(SUGGESTED, settings)) == {
        "algorithm.lam": (1e-6, 1e-2),
        "kernel.gamma": (0.1, 0.2),
        "kernel.c": (0.0, 1.0),
        "optimizer.lr": (1e-6, 0.1),
    }, "expected no momentum and no dropout, because the settings lack them"
    for space in (SUGGESTED, {}):
        with pytest.raises(InputError, match="no setting that has an effect"):
            search(space=space).suited(SUGGESTED, {})


@pytest.mark.parametrize(
    ("algorithm", "network", "kernel", "keys"),
    [
        ("alg3", "mlp", "rbf", ["algorithm.lam", "kernel.gamma", "optimizer.lr", "optimizer.momentum"]),
        ("pegasos", "identity", "polynomial", ["algorithm.lam", "kernel.gamma"]),
        ("alg3", "identity", "linear", ["algorithm.lam"]),
        ("cross_entropy", "mlp", "linear", ["optimizer.lr", "optimizer.momentum"]),
        ("trees", "identity", "rbf", ["algorithm.max_leaf_nodes"]),
    ],
)
def test_what_no_step_uses_is_left_out(algorithm: str, network: str, kernel: str, keys: list[str]) -> None:
    words = [f"algorithm={algorithm}", f"network={network}", f"kernel={kernel}", "dataset.samples=100"]
    values = compose_settings([*words, "optimizer.lr=1", "engine=torch"])
    if kernel == "polynomial":
        assert values["kernel"]["gamma"] is None, "expected null, which stands for 1/n"
    experiment = prepare(parse_settings(values))
    settings = effective(values, experiment)
    found = search(space=SUGGESTED).suited(SUGGESTED, settings)
    assert [*found] == [*keys, *(["network.dropout"] if "optimizer.lr" in keys else [])]
    assert settings.get("kernel.gamma", 1) == (1 / 20 if kernel == "polynomial" else 1)


@pytest.mark.parametrize(
    ("kind", "usual", "expected"),
    [
        # the rarest class has 67 samples
        *(("three classes", "16 each", "16 each"), ("three classes", "17 each", 0.25)),
        # there are 216 samples
        *(("regression", "54 each", "54 each"), ("regression", "55 each", 0.25)),
    ],
)
def test_the_usual_number_of_validation_samples_is_at_most_a_quarter_of_those_there_are(
    kind: str, usual: str, expected: str | float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: set[str] = set()
    take = Splits.__getitem__
    monkeypatch.setattr(Splits, "__getitem__", lambda self, name: asked.add(name) or take(self, name))
    # the table's own number of validation samples has no effect; validation.every requires validation data
    values = {**SETTINGS, **small_table(kind, tmp_path), "validation": {"every": 5}}
    assert suited_validation(values, usual) == expected
    assert asked == {"train"}


@pytest.mark.parametrize(
    ("dataset", "usual"),
    [("ringnorm", "200 each"), ("digits", "40 each"), ("digits10", "20 each"), ("mnist", "500 each")],
)
def test_the_usual_numbers_stay(dataset: str, usual: str) -> None:
    settings = compose_settings([f"dataset={dataset}", "+tune=default", USUAL])
    assert settings.pop("tune")["usual_validation"] == usual
    if dataset != "mnist":  # its images may be missing
        assert suited_validation(settings, usual) == usual


@pytest.mark.usefixtures("inline_workers")
def test_the_first_candidate_is_the_settings_as_far_as_the_space_holds_them(tmp_path: Path) -> None:
    """Values that the search draws are rounded to two digits."""
    default = {"algorithm.lam": 1.234e-3, "kernel.gamma": None, "optimizer.lr": 0.01234}
    values = with_values(SETTINGS, {**default, "algorithm.steps": 5, "algorithm.solver_steps": 20})
    space = {**SUGGESTED, "optimizer": {"lr": {"low": 1e-4, "high": 1e-3, "log": True}}}
    budget = {"trials": 3, "seeds": 1, "finalists": 1, "final_seeds": 2, "jobs": 1}
    tried: list[Candidate] = []
    wanted = search(space=space, directory=str(tmp_path / "search"), **budget)
    [best] = tune(values, wanted, SUGGESTED, tried.append)
    assert best.error == standard_error(best.final, 0.0, samples=80), "seeds of generated data do not overlap"
    first, *others = (candidate.point for candidate in tried)
    assert first == {**default, "kernel.gamma": 1 / 8, "optimizer.lr": first["optimizer.lr"]}
    assert tried[0].scores == [validation_score(with_values(values, first), 1000)]
    assert [point.keys() for point in others] == [default.keys()] * 2
    for point in (first, *others):
        assert 1e-4 <= float(str(point["optimizer.lr"])) <= 1e-3
        assert float(f"{point['optimizer.lr']:.2g}") == point["optimizer.lr"]


def prepared_score(values: dict[str, Any], metric: str) -> Any:
    experiment = prepare(parse_settings({**values, "seed": 3}))
    part = experiment.data.splits["validation"]
    return experiment.train().score(part.x, part.y)[metric]


def test_the_score_is_what_a_run_on_validation_data_records() -> None:
    assert validation_score(SETTINGS, 3) == prepared_score(SETTINGS, "accuracy")
    assert validation_score(with_values(SETTINGS, {"optimizer.lr": 1e39}), 3) == -math.inf  # diverges
    assert validation_score(SETTINGS, 3, seconds=1e-9) == -math.inf, "expected -inf after the time limit"
    of_losses = {**SETTINGS, "metric": "log_loss", "calibration": "sigmoid"}
    assert validation_score(of_losses, 3) == prepared_score(of_losses, "log_loss")
    assert validation_score(of_losses, 3, seconds=1e-9) == math.inf, "expected a score worse than every loss"


@pytest.mark.usefixtures("inline_workers")
def test_a_candidate_that_fails_is_worse_than_all_others(tmp_path: Path) -> None:
    values = {**with_values(SETTINGS, {"optimizer.lr": 1e39}), "metric": "log_loss", "calibration": "sigmoid"}
    budget = {"trials": 5, "seeds": 2, "final_seeds": 2, "jobs": 1}
    wanted = search(space={"optimizer": {"lr": [1e39, 0.01]}}, directory=str(tmp_path / "both"), **budget)
    tried: list[Candidate] = []
    finalists = tune(values, wanted, {}, tried.append)
    assert {c.point["optimizer.lr"] for c in finalists} == {0.01}
    assert {len(c.scores) for c in tried if c.point["optimizer.lr"] > 1} == {1}, "expected only one seed"
    hopeless = search(space={"optimizer": {"lr": [1e39]}}, directory=str(tmp_path / "hopeless"), **budget)
    with pytest.raises(RunError, match="no candidate completed training with every seed"):
        tune(values, hopeless, {}, tried.append)


def test_finalists_are_ranked_by_their_further_seeds() -> None:
    lucky = Candidate(0, "accuracy", {"optimizer.lr": 0.1, "kernel.gamma": None}, [0.99, 0.99], [0.90, 0.94])
    assert lucky.mean == pytest.approx(0.92)
    assert lucky.overrides == "optimizer.lr=0.1 kernel.gamma=null"
