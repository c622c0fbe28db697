"""MLflow's database, read back with MLflow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nsvm_cli.errors import Interrupted, RunError
from tests.loggers.runs import Stop, go, go_until_killed, settings_with

pytest.importorskip("mlflow")

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.usefixtures("unchecked"),
    pytest.mark.filterwarnings("ignore"),  # those about its tables
]

LOGGER = {"name": "mlflow", "experiment": "tests"}
FILES = ["config.yaml", "curves.png", "final.safetensors", "report.html", "result.json"]


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where it keeps the files
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/tracked.db")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def tracked() -> Any:
    """Return the only run in the database."""
    from mlflow import MlflowClient

    client = MlflowClient()
    experiment = client.get_experiment_by_name("tests")
    (run,) = client.search_runs([experiment.experiment_id])
    return run


def steps(metric: str) -> list[int]:
    from mlflow import MlflowClient

    return [logged.step for logged in MlflowClient().get_metric_history(tracked().info.run_id, metric)]


def test_a_run_with_its_records_settings_and_figures(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    result = go(tmp_path / "run", settings_with(LOGGER))
    run = tracked()
    assert run.info.status == "FINISHED"
    assert run.data.tags["sweep"] == "a-sweep"
    assert run.data.params["optimizer.lr"] == "0.01"
    assert run.data.metrics["train_accuracy"] == result["train_accuracy"]
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert run.data.metrics["violations"] == last["violations"]
    assert steps("violations") == [10, 20, 30, 40, 50]
    assert steps("validation_accuracy") == [50]
    folder = MlflowClient().download_artifacts(run.info.run_id, "")
    assert [file.name for file in sorted(Path(folder).iterdir())] == FILES
    assert (Path(folder) / "result.json").read_bytes() == (tmp_path / "run" / "result.json").read_bytes()
    assert (tmp_path / "cache/nsvm/mlflow").is_dir(), "locked, for one run at a time makes a database"


def test_an_interrupted_run_is_continued(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        go(tmp_path / "run", settings_with(LOGGER), Stop(step=30))
    assert (tracked().info.status, steps("violations")) == ("KILLED", [10, 20, 30])
    go(tmp_path / "run", settings_with(LOGGER))
    assert (tracked().info.status, steps("violations")) == ("FINISHED", [10, 20, 30, 40, 50])


@pytest.mark.parametrize("seconds", [0.0, 60.0], ids=["each record is sent", "none is sent"])
def test_after_a_kill_each_step_is_there_once(
    seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nsvm_cli.loggers.mlflow.SECONDS", seconds)
    go_until_killed(tmp_path / "run", settings_with(LOGGER), step=50)  # after the checkpoint of step 40
    assert steps("violations") == ([] if seconds else [10, 20, 30, 40, 50])
    go(tmp_path / "run", settings_with(LOGGER))
    assert steps("violations") == [10, 20, 30, 40, 50]


def test_many_figures_are_sent_in_several_batches(tmp_path: Path) -> None:
    go(tmp_path / "run", settings_with(LOGGER, log_every=1, algorithm={"name": "alg2", "steps": 400}))
    records = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert steps("violations") == [json.loads(record)["step"] for record in records]


def test_a_server_that_cannot_be_reached_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(RunError, match=r"logger=mlflow could not start: .*127\.0\.0\.1"):
        go(tmp_path / "run", settings_with(LOGGER))
    assert not (tmp_path / "cache/nsvm/mlflow").exists(), "a server makes its own"
