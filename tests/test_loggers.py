"""Loggers: what they receive, what TensorBoard, MLflow and W&B store, and what happens if one fails."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import pytest

from nsvm_cli.config.settings import Settings, plain
from nsvm_cli.errors import InputError, Interrupted, RunError
from nsvm_cli.output import saying
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.runs.loggers import LOGGERS, Logger, TensorBoard, Tracking
from nsvm_cli.runs.loop import Callback, Record
from nsvm_cli.runs.train import train_run
from nsvm_cli.storage.metrics_file import read_metrics
from nsvm_cli.storage.run_directory import RunDirectory, Status
from nsvm_cli.trainers import State
from tests.cli.process import nsvm, refusal
from tests.runs.test_train import FakeSignals, stopped_at
from tests.small_runs import small_settings

FILES = ["config.yaml", "result.json", "final.safetensors"]


def settings_with(logger: str, **changes: Any) -> Settings:
    values: dict[str, Any] = {
        "dataset": {"name": "digits", "validation": 10},
        "network": {"name": "mlp", "widths": [4]},
        "algorithm": {"name": "alg2", "steps": 50},
        "validation": {"every": 50},
        "checkpoint": {"every": 20},
        "log_every": 10,
        "engine": "torch",
        "logger": {"name": logger},
    }
    return small_settings(**{**values, **changes})


class Kill(Callback):
    """Interrupts the run after the record of step 40."""

    def on_log(self, state: State, record: Record) -> None:
        if record["step"] == 40:
            raise KeyboardInterrupt


def go(
    path: Path, settings: Settings, *callbacks: Callback, signals: FakeSignals | None = None, say: Any = str
) -> dict[str, Any]:
    """Train as a job of the sweep ``a-sweep``, from the last checkpoint in the directory if there is one."""
    callbacks = callbacks if signals is None else (*callbacks, signals)
    with RunDirectory(path, plain(settings), "resume") as run, saying(say):
        return train_run(prepare(settings), run, callbacks, signals, sweep="a-sweep")


class Notebook(Logger):
    """Records its calls, and raises an error in the call that ``fails`` names."""

    told: ClassVar[list[Any]] = []
    fails: ClassVar[str] = ""

    def start(self, run: Tracking) -> str | None:
        note("start", run, run.id)
        return "abc-1"

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        note("log", step, figures)

    def finish(self, status: Status, step: int, figures: Mapping[str, float], files: Sequence[Path]) -> None:
        note("finish", status, step, figures, [file.name for file in files if file.stat().st_size])


def note(call: str, *what: Any) -> None:
    Notebook.told.append((call, *what))
    if call == Notebook.fails:
        raise ConnectionError("the server\nhas gone.")


@pytest.fixture(autouse=True)
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setitem(LOGGERS, "notebook", Notebook)
    monkeypatch.setattr(Notebook, "told", told := [])
    return told


@pytest.fixture(scope="module")
def untracked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("untracked") / "run"
    go(path, settings_with("none"))
    return path


def test_a_logger_is_told_the_settings_each_record_and_the_figures(
    notebook: list[Any], untracked: Path, tmp_path: Path
) -> None:
    settings = settings_with("notebook")
    result = go(tmp_path / "run", settings)
    start, *logs, (_, status, step, figures, files) = notebook
    run, known = start[1:]
    assert (run.directory, run.settings, run.sweep) == (tmp_path / "run", plain(settings), "a-sweep")
    assert (run.step, known) == (0, None)
    records = read_metrics(untracked / "metrics.jsonl")
    assert read_metrics(tmp_path / "run" / "metrics.jsonl") == records
    assert logs == [
        ("log", record.pop("step"), {name: value for name, value in record.items() if value is not None})
        for record in records
    ]
    assert (status, step, files) == ("finished", 50, FILES)
    assert figures["train_accuracy"] == result["train_accuracy"]
    assert not figures.keys() & {"violations", "seed", "exact"}, "expected only new figures that are numbers"


def test_a_logger_is_told_how_a_run_ends_and_where_it_resumes(notebook: list[Any], tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        go(tmp_path, settings_with("notebook"), signals=stopped_at(30))
    assert notebook[-1] == ("finish", "interrupted", 30, {}, [])
    del notebook[:]
    assert go(tmp_path, settings_with("notebook"))["exact"] is True
    (_, run, known), *logs, (_, status, *_) = notebook
    assert [run.step, *(step for _, step, _ in logs)] == [30, 40, 50]
    assert (known, status) == ("abc-1", "finished")
    with RunDirectory(tmp_path, plain(settings_with("none")), "overwrite"):
        assert run.id is None, "expected no id after overwriting the run"
    with pytest.raises(RunError, match="diverged"):
        go(tmp_path / "wild", settings_with("notebook", optimizer={"name": "sgd", "lr": 1e300}))
    assert notebook[-1][:2] == ("finish", "failed")


@pytest.mark.parametrize("fails", ["log", "finish"])
def test_a_logger_that_fails_costs_one_warning_and_nothing_else(
    fails: str, notebook: list[Any], untracked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Notebook, "fails", fails)
    said: list[str] = []
    go(tmp_path, settings_with("notebook"), say=said.append)
    warning = "warning: logger=notebook failed and is disabled for the rest of the run"
    assert said == [f"{warning}: the server has gone"]
    assert notebook[-1][0] == fails
    assert (tmp_path / "metrics.jsonl").read_bytes() == (untracked / "metrics.jsonl").read_bytes()


def test_a_logger_that_cannot_start_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Notebook, "fails", "start")
    says = "notebook could not start: .* to train without a logger, set logger=none"
    with pytest.raises(RunError, match=says):
        go(tmp_path, settings_with("notebook"))


def test_a_missing_package_is_named_before_the_data_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Notebook, "package", "no_such_package")
    settings = settings_with("notebook", dataset={"name": "csv", "path": "missing.csv"})
    with pytest.raises(InputError, match="requires no_such_package: install it with pip"):
        prepare(settings)


@pytest.mark.parametrize("damaged", ['{"notebook": "../x"}', '{"notebook": 3}', "[]", "{"])
def test_a_damaged_record_of_a_tracked_run_is_refused(damaged: str, tmp_path: Path) -> None:
    (tmp_path / "tracking.json").write_text(damaged)
    with pytest.raises(InputError, match=r"tracking\.json cannot be read"):
        _ = Tracking(Notebook(), tmp_path, {"logger": {"name": "notebook"}}, None, 0).id


def test_a_job_of_a_sweep_names_the_sweep(notebook: list[Any], tmp_path: Path) -> None:
    words = ["dataset=ringnorm", "dataset.samples=300", "algorithm=pegasos", "algorithm.steps=2"]
    words += ["engine=torch", "logger.name=notebook", "hydra.sweep.dir=sweep"]
    nsvm("train", "-m", *words, cwd=tmp_path, code=0)
    (_, run, _), *_ = notebook
    assert run.sweep == "sweep"
    assert run.name.startswith("sweep/pegasos-0-")


def test_a_run_directory_does_not_choose_the_logger(tmp_path: Path) -> None:
    """The command line must repeat or replace the logger, whatever settings the logger has."""
    for name, logger in (("odd", {}), ("run", {"name": "mlflow", "experiment": "mine"})):
        with RunDirectory(tmp_path / name, {**plain(settings_with("none", curves=False)), "logger": logger}):
            pass
    assert "logger" in refusal("train", "resume=odd", cwd=tmp_path)
    said = "config.yaml sets logger=mlflow; to allow this, add logger=mlflow to the command line"
    assert refusal("train", "resume=run", cwd=tmp_path).endswith(said)
    nsvm("train", "resume=run", "logger=none", cwd=tmp_path, code=0)


def test_tensorboard(tmp_path: Path) -> None:
    """Steps that are repeated after a kill appear only once."""
    module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

    def logged() -> Any:
        return module.EventAccumulator(str(run), size_guidance={"scalars": 0, "tensors": 0}).Reload()

    run, settings = tmp_path / "run", settings_with("tensorboard")
    with mock.patch.object(TensorBoard, "finish"), pytest.raises(KeyboardInterrupt):
        go(run, settings, Kill())  # the last checkpoint is at step 20, and the logger does not finish
    assert logged().Scalars("violations")[-1].step == 40
    nsvm("train", "resume=run", "logger=tensorboard", "curves=false", cwd=tmp_path, code=0)
    events, result = logged(), json.loads((run / "result.json").read_text())
    records = read_metrics(run / "metrics.jsonl")
    for name in records[0].keys() - {"step"}:
        course = {record["step"]: record[name] for record in records if record[name] is not None}
        assert [event.step for event in events.Scalars(name)] == [*course]
        assert [event.value for event in events.Scalars(name)] == pytest.approx([*course.values()])
    (accuracy,) = events.Scalars("train_accuracy")
    assert (accuracy.step, accuracy.value) == (50, pytest.approx(result["train_accuracy"]))
    (status,) = events.Tensors("status/text_summary")
    assert status.tensor_proto.string_val[0] == b"finished"
    with RunDirectory(run, plain(settings), "overwrite"):
        assert not [*run.glob("events.*")]


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")  # MLflow warns about its database tables
def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)  # MLflow stores artifacts in the current folder
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/tracked.db")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def mlflow_run() -> Any:
        client = mlflow.MlflowClient()
        (run,) = client.search_runs([client.get_experiment_by_name("nsvm").experiment_id])
        history = client.get_metric_history(run.info.run_id, "violations")
        return client, run, [metric.step for metric in history]

    settings = settings_with("mlflow")
    with pytest.raises(Interrupted):
        go(tmp_path / "run", settings, signals=stopped_at(30))
    _, run, steps = mlflow_run()
    assert (run.info.status, steps) == ("KILLED", [10, 20, 30])
    result = go(tmp_path / "run", settings)
    client, run, steps = mlflow_run()
    assert (run.info.status, steps) == ("FINISHED", [10, 20, 30, 40, 50])
    assert (run.data.tags["sweep"], run.data.params["optimizer.lr"]) == ("a-sweep", "0.01")
    assert run.data.metrics["train_accuracy"] == result["train_accuracy"]
    folder = Path(client.download_artifacts(run.info.run_id, ""))
    assert {file.name for file in folder.iterdir()} == {*FILES}
    assert (folder / "result.json").read_bytes() == (tmp_path / "run" / "result.json").read_bytes()


@pytest.mark.thorough
def test_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Without a connection, W&B writes two folders for a resumed run."""
    pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    with pytest.raises(Interrupted):
        go(tmp_path / "run", settings_with("wandb"), signals=stopped_at(30))
    go(tmp_path / "run", settings_with("wandb"))
    first, second = (folder.name.rpartition("-")[2] for folder in Path("wandb").glob("offline-run-*"))
    assert first == second, "expected the same id after resuming"
    (kept,) = Path("wandb").glob("offline-run-*/files/run")
    for name in FILES:
        assert (kept / name).read_bytes() == (tmp_path / "run" / name).read_bytes(), name
    assert capfd.readouterr() == ("", ""), "expected no output of W&B"
