"""TensorBoard's files, read back with TensorBoard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nsvm_cli.config.settings import plain
from nsvm_cli.errors import Interrupted
from nsvm_cli.storage.run_directory import RunDirectory
from tests.cli.process import nsvm
from tests.loggers.runs import Stop, go, go_until_killed, settings_with

pytest.importorskip("tensorboard")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

pytestmark = pytest.mark.usefixtures("unchecked")


def events(run: Path) -> EventAccumulator:
    return EventAccumulator(str(run), size_guidance={"scalars": 0, "tensors": 0}).Reload()


def statuses(run: Path) -> list[tuple[int, bytes]]:
    return [
        (event.step, event.tensor_proto.string_val[0]) for event in events(run).Tensors("status/text_summary")
    ]


def expect_the_records_of(run: Path) -> None:
    """Check that each record is there once, at its step."""
    logged = events(run)
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for name in records[0].keys() - {"step"}:
        course = [(event.step, event.value) for event in logged.Scalars(name)]
        recorded = [(record["step"], record[name]) for record in records if record[name] is not None]
        assert [step for step, _ in course] == [step for step, _ in recorded]
        assert [value for _, value in course] == pytest.approx([value for _, value in recorded])


def test_a_run_with_its_records_settings_and_figures(tmp_path: Path) -> None:
    result = go(tmp_path, settings_with("tensorboard"))
    expect_the_records_of(tmp_path)
    logged = events(tmp_path)
    last = {name: logged.Scalars(name)[-1] for name in ("train_accuracy", "train_seconds")}
    assert {name: event.step for name, event in last.items()} == dict.fromkeys(last, 50)
    assert last["train_accuracy"].value == pytest.approx(result["train_accuracy"])
    assert statuses(tmp_path) == [(50, b"finished")]
    (picture,) = logged.Images("curves")
    assert (picture.step, picture.width, picture.height) == (50, 1, 1)
    start = HParamsPluginData.FromString(
        logged.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    )
    settings = start.session_start_info.hparams
    assert settings["optimizer.lr"].number_value == 0.01
    assert settings["algorithm.name"].string_value == "alg2"
    assert settings["network.widths"].string_value == "[4]"


def test_an_interrupted_run_continues_where_it_stopped(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        go(tmp_path, settings_with("tensorboard"), Stop(step=30))
    go(tmp_path, settings_with("tensorboard"))
    expect_the_records_of(tmp_path)
    assert statuses(tmp_path) == [(30, b"interrupted"), (50, b"finished")]


def test_a_run_is_resumed_with_the_logger_of_the_command(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run", plain(settings_with("tensorboard"))):
        pass
    words = "resume=run", "logger=tensorboard", "curves=false"
    assert nsvm("train", *words, cwd=tmp_path).returncode == 0
    expect_the_records_of(tmp_path / "run")


def test_steps_that_are_taken_again_are_there_once(tmp_path: Path) -> None:
    go_until_killed(tmp_path, settings_with("tensorboard"), step=40)  # after the checkpoint of step 20
    assert events(tmp_path).Scalars("violations")[-1].step == 40
    go(tmp_path, settings_with("tensorboard"))
    expect_the_records_of(tmp_path)


def test_starting_over_removes_the_files_of_this_run_alone(tmp_path: Path) -> None:
    go_until_killed(tmp_path, settings_with("tensorboard"), step=10)
    (tmp_path / "events.out.tfevents.1.host.2.0").write_bytes(b"of another program")
    with RunDirectory(tmp_path, plain(settings_with("none")), "overwrite"):
        assert [file.name for file in tmp_path.glob("events.*")] == ["events.out.tfevents.1.host.2.0"]
