"""Callbacks in the settings of a run: values in records, early stopping, and resuming."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from nsvm_cli.artifacts.model_file import load_model
from nsvm_cli.errors import InputError
from nsvm_cli.runs.checkpoint import load_checkpoint, save_checkpoint
from nsvm_cli.runs.experiment import Experiment, prepare
from nsvm_cli.runs.loop import CALLBACKS, Callback, Record
from nsvm_cli.runs.open_model import open_model
from nsvm_cli.storage.metrics_file import read_metrics
from nsvm_cli.storage.run_directory import checkpoints_in
from nsvm_cli.trainers import State
from nsvm_cli.tuning.search import validation_score
from tests.runs.test_train import bits, go, interrupt, resumed, settings_with


class Mine(Callback):
    """Adds values that depend on the model and on earlier records, and stops at step ``until``."""

    saved = ("count", "total")

    def __init__(self, experiment: Experiment, until: int = 10**9, figure: str = "") -> None:
        self.experiment, self.until, self.figure = experiment, until, figure
        self.count, self.total = 0, torch.zeros(2, dtype=torch.float64)

    def on_log(self, state: State, record: Record) -> str | None:
        self.count += 1
        if self.experiment.trainer.has_svm(state):
            x = self.experiment.data.splits["train"].x
            self.total[1] += self.experiment.model(state).decision_function(x).double().abs().mean()
        record |= {"count": self.count, "mean_total": float(self.total[1]) / self.count}
        if self.figure:
            record["mine"] = {"tensor": torch.ones(()), "nan": float("nan"), "text": "1"}[self.figure]
        return f"step {self.until} is reached" if state.t >= self.until else None


@pytest.fixture(autouse=True, scope="module")
def mine() -> Iterator[None]:
    with mock.patch.dict(CALLBACKS, mine=Mine):
        yield


MINE = {"name": "mine", "until": 200}
STOPPING = settings_with(callbacks=[MINE])
DIGITS = {"name": "digits", "validation": 30}
"""Two classes that an SVM soon separates, so that the score stops improving regardless of rounding errors."""
WITHOUT_OWN = ("count", "mean_total")


def metrics(run: Path) -> list[dict[str, Any]]:
    """Return the records without the values of ``Mine``."""
    records = read_metrics(run / "metrics.jsonl")
    return [{name: value for name, value in r.items() if name not in WITHOUT_OWN} for r in records]


@pytest.fixture(scope="module")
def at_200(mine: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that a callback stopped at step 200."""
    go(path := tmp_path_factory.mktemp("at_200") / "run", STOPPING)
    return path


@pytest.fixture
def run(at_200: Path, tmp_path: Path) -> Path:
    return shutil.copytree(at_200, tmp_path / "run")


@pytest.mark.parametrize(("engine", "algorithm"), [("literal", "alg2"), ("torch", "alg4")])
def test_looking_at_the_model_changes_no_step(engine: str, algorithm: str, tmp_path: Path) -> None:
    """A stopped run has the first records of the run that is not stopped."""
    changes: dict[str, Any] = {"algorithm": {"name": algorithm, "steps": 70}, "engine": engine}
    plain, stopped = tmp_path / "plain", tmp_path / "stopped"
    result = go(plain, settings_with(**changes))
    watched = go(tmp_path / "watched", settings_with(**changes, callbacks=["mine"]))
    short = go(stopped, settings_with(**changes, callbacks=[{**MINE, "until": 50}]))
    assert metrics(plain) == metrics(tmp_path / "watched")
    models = [load_model(run / "final.safetensors") for run in (plain, tmp_path / "watched")]
    assert torch.equal(*(model.expansion.alpha for model in models))
    assert all(map(torch.equal, *(model.network.state_dict().values() for model in models)))
    assert "stopped" not in result | watched
    assert (short["stopped"], short["steps"]) == ("step 50 is reached", 50)
    assert metrics(stopped) == [record for record in metrics(plain) if record["step"] <= 50]
    assert load_model(stopped / "final.safetensors").metadata.steps == 50
    assert 0 < short["theta_steps"] <= result["theta_steps"]
    looked = read_metrics(tmp_path / "watched" / "metrics.jsonl")[-1]
    assert looked["count"] > 10
    assert looked["mean_total"] > 0


def test_early_stopping_counts_records_without_improvement(tmp_path: Path) -> None:
    run, every = tmp_path / "run", {"every": 10}
    stopping = {"name": "early_stopping", "patience": 3}
    result = go(run, settings_with(dataset=DIGITS, callbacks=[stopping], validation=every))
    scores = {r["step"]: s for r in metrics(run) if (s := r.get("validation_accuracy")) is not None}
    best = max(scores, key=lambda step: (scores[step], -step))
    assert [step for step in scores if step > best] == [best + 10, best + 20, best + 30]
    assert result["steps"] == best + 30 == max(scores)
    said = f"validation_accuracy has not improved since step {best}, when it was {scores[best]:.6g}"
    assert (result["stopped"], result["best_step"]) == (said, best)
    assert result["steps"] < 300
    score = validation_score(result["settings"], seed=0)
    assert score == result["validation_accuracy"], "tuning should stop at the same step"


@pytest.mark.parametrize(
    ("metric", "values", "steps"),
    [
        ("running_accuracy", [1, 2, 3, 2, 2], 5),
        ("my_loss", [3, 2, 1, 1, 1], 5),
        ("full_objective", [1, 2, 2], 3),
        ("violation_rate", [1, None, 1, None, 1], 5),
        ("support", [-3, -2, -1, -4, -1], 5),
    ],
)
def test_which_way_is_better(metric: str, values: list[float], steps: int) -> None:
    e = prepare(
        settings_with(callbacks=[{"name": "early_stopping", "metric": metric, "patience": 2}, "mine"])
    )
    state = e.trainer.start(e.problem, e.F)
    stopping = e.callbacks[1][0]
    said = []
    for value in values:
        state.t += 1
        said.append(stopping.on_log(state, {metric: value}))
    assert said[:-1] == [None] * (steps - 1)
    assert said[-1] is not None


def test_a_run_that_stops_at_pauses_has_the_same_bits(tmp_path: Path) -> None:
    resumed(tmp_path, STOPPING, 10)


def test_a_kill_before_the_result_takes_no_further_step(run: Path) -> None:
    before, said = bits(run), list[str]()
    (run / "result.json").unlink()
    (run / "final.safetensors").unlink()
    result = go(run, STOPPING, say=said.append)
    assert bits(run) == before
    assert said == ["resuming after step 200 of 300, where training had stopped early: step 200 is reached"]
    assert (result["resumed"], result["exact"]) == (1, True)


def test_a_stopped_run_goes_on_with_other_callbacks(run: Path) -> None:
    with pytest.raises(
        InputError, match=r"callbacks was \[\{'name': 'mine', .* and is \[\]; restore the earlier"
    ):
        go(run, settings_with())
    result = go(run, settings_with(), allow_mismatch=True)
    assert (result["steps"], result["exact"], "stopped" in result) == (300, False, False)


@pytest.mark.parametrize("solver", ["pegasos", "svc"])
def test_part_1_of_algorithm_4_stops_early_if_part_2_needs_no_steps(solver: str, tmp_path: Path) -> None:
    algorithm = {"name": "alg4", "steps": 400, "solver": solver}
    stopping = {"name": "early_stopping", "metric": "objective", "patience": 2}
    settings = settings_with(
        dataset=DIGITS, algorithm=algorithm, callbacks=[stopping], validation={"every": None}
    )
    if solver == "svc":
        result = go(tmp_path / "run", settings)
        assert result["steps"] == result["theta_steps"] < 200
        assert result["validation_accuracy"] > 0.6
        assert load_model(tmp_path / "run" / "final.safetensors").metadata.steps == result["steps"]
    else:
        said = (
            r"^callbacks: objective has not improved since .*, but training cannot stop at step \d+, because"
        )
        with pytest.raises(InputError, match=said):
            go(tmp_path / "run", settings)


def test_part_2_of_algorithm_4_stops_early(tmp_path: Path) -> None:
    algorithm = {"name": "alg4", "steps": 100, "solver_steps": 5000}
    settings = settings_with(algorithm=algorithm, callbacks=["early_stopping"], validation={"every": 10})
    result = go(tmp_path / "run", settings)
    assert 100 + 10 * 10 < result["steps"] < 5100
    assert result["theta_steps"] == 100


@pytest.mark.parametrize("figure", ["tensor", "nan", "text"])
def test_a_figure_that_is_no_number_is_refused_in_one_line(figure: str, tmp_path: Path) -> None:
    settings = settings_with(callbacks=[{"name": "mine", "figure": figure}])
    with pytest.raises(InputError, match=r"^callbacks: mine must be a finite number or None, got .*$"):
        go(tmp_path / "run", settings)


STATES: list[Any] = [
    {"0": {"best": torch.ones(2), "best_step": 1}},
    {"0": {"best": 0.5}},
    {"0": 3},
    torch.ones(3),
    {"0": {"best": 0.5, "best_step": 50}, "1": {"count": 1.5, "total": torch.zeros(2).double()}},
    {"0": {"best": 0.5, "best_step": 50}, "1": {"count": 1, "total": torch.zeros(3).double()}},
]


def test_states_in_a_checkpoint_that_do_not_fit(tmp_path: Path) -> None:
    run, settings = tmp_path / "run", settings_with(callbacks=["mine"])
    interrupt(run, settings)
    for states in STATES:
        for file in checkpoints_in(run):
            checkpoint = load_checkpoint(file)
            save_checkpoint(file, replace(checkpoint, values={**checkpoint.values, "callbacks": states}))
        with pytest.raises(InputError, match="the checkpoint does not fit the callbacks: "):
            go(run, settings)


def test_the_settings_of_a_run_are_opened_without_its_callbacks(
    at_200: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model can be opened without the callbacks that its configuration names."""
    monkeypatch.delitem(CALLBACKS, "mine")
    for name in ("final", "step-00000200"):
        assert open_model(at_200 / f"{name}.safetensors")[1].metadata.steps == 200
    with pytest.raises(InputError, match="there is no callback 'mine'"):
        prepare(STOPPING)


@pytest.mark.parametrize(("metric", "calibration"), [("roc_auc", None), ("log_loss", "sigmoid")])
def test_the_best_step_by_a_metric_is_the_model_of_a_run(
    metric: str, calibration: str | None, tmp_path: Path
) -> None:
    settings = settings_with(
        dataset=DIGITS, metric=metric, keep="best", calibration=calibration, validation={"every": 20}
    )
    result = go(run := tmp_path / "run", settings)
    scores = {r["step"]: s for r in metrics(run) if (s := r.get(f"validation_{metric}")) is not None}
    best = (min if metric == "log_loss" else max)(scores, key=lambda step: scores[step])
    assert best < 300 or metric == "log_loss", "only log_loss may improve until the last step"
    assert result["best_step"] == best == load_model(run / "final.safetensors").metadata.steps
    assert result[f"best_validation_{metric}"] == result[f"validation_{metric}"] == scores[best]
