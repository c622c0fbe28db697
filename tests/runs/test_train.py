"""Runs that are interrupted, damaged, resumed with other settings, or out of disk space."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from nsvm_cli.artifacts.model_file import load_model
from nsvm_cli.config.settings import Settings, parse_settings, plain
from nsvm_cli.errors import InputError, Interrupted, RunError
from nsvm_cli.output import saying
from nsvm_cli.parallel.signals import Signals
from nsvm_cli.runs.checkpoint import load_checkpoint, save_checkpoint
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.runs.loop import Callback, Record
from nsvm_cli.runs.train import train_run
from nsvm_cli.storage import tensor_file
from nsvm_cli.storage.metrics_file import read_metrics, read_times
from nsvm_cli.storage.run_directory import RunDirectory, checkpoints_in, read_config
from nsvm_cli.trainers import Problem, State
from nsvm_cli.trainers.alg3 import Alg3
from nsvm_cli.trainers.coefficients import SampleState
from nsvm_cli.trainers.means import Tally

VALUES: dict[str, Any] = {
    "dataset": {"name": "ringnorm", "samples": 300, "validation": "20 each"},
    "network": {"name": "mlp", "widths": [10, 6], "dropout": 0.2},
    "kernel": {"name": "rbf"},
    "optimizer": {"name": "sgd", "lr": 0.003, "momentum": 0.9},
    "algorithm": {"name": "alg2", "steps": 300, "lam": 0.1},
    "validation": {"every": 50},
    "checkpoint": {"every": 40},
    "log_every": 7,
    "device": "cpu",
    "threads": 1,
}
"""Settings of a run that converges. The scores of a run that diverges depend on rounding errors."""


def settings_with(**changes: Any) -> Settings:
    return parse_settings({**VALUES, **changes})


class FakeSignals(Callback, Signals):
    """Simulates SIGTERM after a number of pauses or the record of a step, and a request for a checkpoint."""

    def __init__(self, pauses: int | None = None, step: int | None = None) -> None:
        self.pauses, self.step = pauses, step
        self.asked = False
        self.noted: int | None = None

    def on_log(self, state: State, record: Record) -> None:
        if self.step is not None and record["step"] >= self.step:
            self.noted = 15

    def on_step_end(self, state: State) -> None:
        if self.pauses is not None:
            self.pauses -= 1
            self.noted = 15 if self.pauses < 0 else None

    def take_checkpoint_request(self) -> bool:
        asked, self.asked = self.asked, False
        return asked

    def end_at_once(self, last_words: str) -> None:
        pass


def go(
    path: Path,
    settings: Settings,
    signals: FakeSignals | None = None,
    say: Callable[[str], object] = lambda line: None,
    allow_mismatch: bool = False,
) -> dict[str, Any]:
    signals = signals or FakeSignals()
    with RunDirectory(path, plain(settings), "resume") as run, saying(say):
        return train_run(prepare(settings), run, [signals], signals, allow_mismatch)


def stopped_at(step: int) -> FakeSignals:
    return FakeSignals(step=step)


def interrupt(path: Path, settings: Settings, step: int = 150, **options: Any) -> None:
    """Start a run, and interrupt it after the first record from step ``step`` on."""
    with pytest.raises(Interrupted):
        go(path, settings, stopped_at(step), **options)


def bits(path: Path) -> dict[str, Any]:
    result = json.loads((path / "result.json").read_text())
    for key in ("train_seconds", "resumed", "date"):
        del result[key]
    apart = {path / name for name in ("result.json", "status.json", "times.jsonl")}
    apart |= {*checkpoints_in(path)}  # checkpoints also contain times
    files = {file.name: file.read_bytes() for file in path.iterdir() if file not in apart}
    return {"result": result, **files}


def test_the_full_objective_in_records_changes_nothing_else(whole: Path, tmp_path: Path) -> None:
    runs, asked = (whole, tmp_path / "run"), go(tmp_path / "run", settings_with(full_objective=True))
    assert asked["test_accuracy"] == json.loads((whole / "result.json").read_text())["test_accuracy"]
    models = [load_model(run / "final.safetensors") for run in runs]
    assert all(map(torch.equal, *(m.network.state_dict().values() for m in models)))
    assert torch.equal(*(m.expansion.alpha for m in models))
    records = [read_metrics(run / "metrics.jsonl") for run in runs]
    values = [record.pop("full_objective") for record in records[1]]
    assert records[0] == records[1]
    model, data = models[1], prepare(settings_with()).data
    x, y = data.splits["train"].x, data.task.targets(data.splits["train"].y)
    f, lam = model.expansion, VALUES["algorithm"]["lam"]
    z, alpha = f.z.double(), f.alpha.double()
    norm = alpha @ model.kernel(z, z) @ alpha / f.scale**2
    g = model.kernel(model.features(x).double(), z) @ alpha / f.scale
    expected = lam / 2 * norm + (1 - y * g).clamp_min(0).mean()
    assert values[-1] == pytest.approx(float(expected), rel=1e-4)
    assert values[-1] < values[0]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "run"
    go(path, settings_with())
    return path


@pytest.fixture
def half(interrupted: Path, tmp_path: Path) -> Path:
    return shutil.copytree(interrupted, tmp_path / "run")


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("interrupted") / "run"
    interrupt(path, settings_with())
    assert len(checkpoints_in(path)) == 2
    return path


def test_an_interrupted_run_says_how_it_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "run"
    said = rf"after step \d+ of 300; resume with nsvm train resume={re.escape(str(path))} 'plugins=\[a,b\]'$"
    with pytest.raises(Interrupted, match=said):
        go(path, settings_with(plugins=["a", "b"]), stopped_at(7))


def resumed(folder: Path, settings: Settings, pauses: int = 20) -> dict[str, Any]:
    """Check that interruptions do not change the bits of a run, and return its result."""
    go(folder / "whole", settings)
    stops, result = 0, None
    while result is None:
        try:
            result = go(folder / "run", settings, FakeSignals(pauses=pauses))
        except Interrupted:
            stops += 1
    assert result["resumed"] == stops > 1
    assert result["exact"] is True
    assert bits(folder / "run") == bits(folder / "whole")
    return result


LEARNT = {"kernel": {"name": "rbf", "learn": ["gamma"], "ard": True}, "engine": "torch"}


@pytest.mark.parametrize(
    ("changes", "pauses"),
    [
        ({}, 8),
        ({**LEARNT, "validation": {"every": 10}, "callbacks": ["early_stopping"]}, 20),
    ],
    ids=["plain", "early stopping with a learnt kernel"],
)
def test_a_run_that_stops_at_pauses_has_the_same_bits(
    changes: dict[str, Any], pauses: int, tmp_path: Path
) -> None:
    resumed(tmp_path, settings_with(**changes), pauses)


def flip_a_bit(run: Path) -> None:
    file = checkpoints_in(run)[0]
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def cut_metrics(run: Path) -> None:
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (run / "metrics.jsonl").write_bytes(b"".join(lines[:-1]) + b'{"step": 1')


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (flip_a_bit, "safetensors is damaged: its checksum is wrong"),
        (cut_metrics, "metrics.jsonl has changed since the checkpoint"),
    ],
)
def test_what_is_damaged_falls_back_to_the_previous_checkpoint(
    damage: Callable[[Path], None], why: str, whole: Path, half: Path
) -> None:
    damage(half)
    said: list[str] = []
    go(half, settings_with(), say=said.append)
    assert why in said[0]
    assert said[0].endswith("falling back to the previous checkpoint")
    assert said[1].startswith("resuming after step ")
    assert bits(half) == bits(whole)


def test_a_run_without_an_intact_checkpoint_is_not_overwritten(whole: Path, half: Path) -> None:
    for file in checkpoints_in(half):
        file.write_bytes(file.read_bytes()[:-1])
    before = {file: file.read_bytes() for file in half.iterdir()}
    with pytest.raises(InputError, match=r"cannot be read .*; to start over, set overwrite"):
        go(half, settings_with())
    assert {file: file.read_bytes() for file in half.iterdir()} == before
    (half / "notes.txt").write_text("mine")
    with RunDirectory(half, plain(settings_with()), "overwrite") as run:
        assert {file.name for file in half.iterdir()} == {"config.yaml", "notes.txt"}
        train_run(prepare(settings_with()), run)
    (half / "notes.txt").unlink()
    assert bits(half) == bits(whole)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"optimizer": VALUES["optimizer"] | {"lr": 0.002}}, "optimizer.lr was 0.003 and is 0.002"),
        ({"algorithm": VALUES["algorithm"] | {"steps": 400}}, "algorithm.steps was 300 and is 400"),
        ({"validation": {"every": None}}, "validation.every was 50 and is None"),
        ({"dataset": VALUES["dataset"] | {"samples": 301}}, r"data was [0-9a-f]{40}"),
        ({"seed": 1}, "seed was 0 and is 1"),
    ],
)
def test_other_settings_are_refused_or_change_the_result(
    changes: dict[str, Any], said: str, half: Path
) -> None:
    before = {file: file.read_bytes() for file in half.iterdir()}
    with pytest.raises(InputError, match="cannot be resumed bit for bit") as caught:
        go(half, settings_with(**changes))
    assert re.search(said, str(caught.value))
    assert "allow_mismatch=true" in str(caught.value)
    assert {file: file.read_bytes() for file in half.iterdir()} == before
    if "dataset" not in changes:
        result = go(half, settings_with(**changes), allow_mismatch=True)
        assert result["exact"] is False
        best = (half / "best.safetensors").exists()
        assert best == ("best_step" in result) == ("validation" not in changes), "old best steps do not count"


def test_another_environment_is_refused(half: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "9.9.0")
    with pytest.raises(
        InputError, match=r"torch was .* and is 9\.9\.0; restore the earlier values or, to accept"
    ):
        go(half, settings_with())


def test_a_checkpoint_that_does_not_suit_is_refused_in_one_line(half: Path) -> None:
    other = settings_with(network={"name": "mlp", "widths": [10, 7], "dropout": 0.2})
    with pytest.raises(InputError, match=r"the checkpoint of step \d+ does not fit this run: .* expected"):
        go(half, other, allow_mismatch=True)
    last = checkpoints_in(half)[0]
    checkpoint = load_checkpoint(last)
    environment = {key: value for key, value in checkpoint.environment.items() if key != "engine"}
    save_checkpoint(last, replace(checkpoint, environment=environment))
    with pytest.raises(InputError, match="engine was auto and is torch"):
        go(half, settings_with())
    for file in checkpoints_in(half):
        tensor_file.write(file, "nsvm-checkpoint-2", {}, {"weight": torch.ones(3)})
    with pytest.raises(
        InputError, match=r"written by another version of nsvm: .*; to start over, set overwrite"
    ):
        go(half, settings_with())


def test_a_finished_run_keeps_its_best_model_and_its_last_checkpoint(whole: Path) -> None:
    records = read_metrics(whole / "metrics.jsonl")
    seen = [(r["validation_accuracy"], r["step"]) for r in records if "validation_accuracy" in r]
    result = json.loads((whole / "result.json").read_text())
    best, step = max(seen, key=lambda pair: (pair[0], -pair[1]))
    assert (result["best_validation_accuracy"], result["best_step"]) == (best, step)
    model = load_model(whole / "best.safetensors")
    part = prepare(settings_with()).data.splits["validation"]
    assert model.metadata.steps == step
    assert model.score(part.x, part.y)["accuracy"] == best
    assert {file.name for file in whole.iterdir()} == {
        *("config.yaml", "metrics.jsonl", "times.jsonl"),
        *("result.json", "final.safetensors", "best.safetensors", "step-00000300.safetensors"),
    }


def test_the_time_of_each_record_is_kept_through_a_resume(whole: Path, half: Path) -> None:
    """The interval between checkpoints may change, because it has no effect on the result."""
    before = read_times(half / "times.jsonl")
    result = go(half, settings_with(checkpoint={"every": "1h"}))
    assert (result["exact"], result["settings"]["checkpoint"]["every"]) == (True, "1h")
    assert (half / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    times = read_times(half / "times.jsonl")
    steps = [record["step"] for record in read_metrics(whole / "metrics.jsonl")]
    assert sorted(times) == steps
    seconds = [times[step] for step in steps]
    assert seconds == sorted(seconds)
    assert times[steps[0]] == before[steps[0]]
    assert 0 < seconds[-1] <= result["train_seconds"] + 1e-3


def test_a_checkpoint_on_request_and_the_run_goes_on(tmp_path: Path) -> None:
    path, said, settings = tmp_path / "run", list[str](), settings_with(checkpoint={"every": "1h"})
    signals = stopped_at(60)
    signals.asked = True
    with pytest.raises(Interrupted):
        go(path, settings, signals, said.append)
    last, requested = map(load_checkpoint, checkpoints_in(path))
    assert requested.step < 60 <= last.step
    assert said == [f"checkpoint after step {requested.step} of {prepare(settings).trainer.total}"]


def test_divergence_leaves_the_last_good_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run"
    wild = settings_with(
        algorithm={"name": "alg3", "steps": 300, "batch_size": 8},
        optimizer={"name": "sgd", "lr": 1e25, "warmup": 1.0},
        kernel={"name": "polynomial", "degree": 2},
        checkpoint={"every": 1},
        log_every=1,
        validation={"every": None},
    )
    with pytest.raises(RunError, match=r"diverged at step \d+: .* is not finite; lower") as caught:
        go(path, wild)
    step = int(str(caught.value).split("step ")[1].split(":")[0])
    assert load_checkpoint(checkpoints_in(path)[0]).step == step - 1
    assert [record["step"] for record in read_metrics(path / "metrics.jsonl")] == [*range(2, step)]


def test_a_non_finite_theta_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Alg3, problem: Problem, state: SampleState) -> None:
        step(self, problem, state)
        if state.t == 10:
            with torch.no_grad():
                next(state.F.network.parameters()).fill_(float("inf"))

    step = Alg3.step
    monkeypatch.setattr(Alg3, "step", broken)
    algorithm = {"name": "alg3", "steps": 50, "batch_size": 8}
    settings = settings_with(algorithm=algorithm, engine="literal", checkpoint={"every": 1}, log_every=50)
    with pytest.raises(RunError, match="diverged at step 10: theta is not finite"):
        go(tmp_path / "run", settings)
    assert load_checkpoint(checkpoints_in(tmp_path / "run")[0]).step == 9


def failing_from(number: int, name: str) -> Callable[..., Any]:
    """Return the function ``os.<name>``, which fails with a full disk after ``number`` calls."""
    calls, real = iter(range(number)), getattr(os, name)

    def function(*arguments: Any, **options: Any) -> Any:
        if next(calls, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments, **options)

    return function


@pytest.mark.parametrize("name", [pytest.param("fsync", marks=pytest.mark.thorough), "replace"])
@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_full_disk_at_every_write(
    name: str, stride: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resuming the run gives the same bits, whichever write failed."""
    settings = settings_with(
        algorithm=VALUES["algorithm"] | {"steps": 60},
        checkpoint={"every": 25},
        validation={"every": 30},
        log_every=20,
    )
    go(whole := tmp_path / "whole", settings)
    for number in range(0, 100, stride):
        path = tmp_path / str(number)
        with monkeypatch.context() as full:
            full.setattr(os, name, failing_from(number, name))
            try:
                go(path, settings)
                break
            except OSError:
                pass
        assert not (path / "result.json").exists() or name == "fsync"
        for file in checkpoints_in(path)[-1:]:
            load_checkpoint(file)
        if not (path / "result.json").exists():
            go(path, settings)
            assert bits(path) == bits(whole)
        shutil.rmtree(path)
    assert number >= 7, "expected 8 writes, or 7 if the second validation finds no better model"


def test_settings_changed_and_restored_resume_bit_for_bit(whole: Path, half: Path) -> None:
    """A run with other settings may be killed before it has replaced the earlier checkpoints."""
    before = {file: file.read_bytes() for file in checkpoints_in(half)}
    with pytest.raises(InputError, match="log_every was 7 and is 8"):
        go(half, settings_with(log_every=8))
    with pytest.raises(Interrupted):
        go(half, settings_with(log_every=8), FakeSignals(pauses=3), allow_mismatch=True)
    assert read_config(half) == plain(settings_with(log_every=8))
    for file in checkpoints_in(half):
        file.unlink()
    for file, data in before.items():
        file.write_bytes(data)
    go(half, settings_with())
    assert bits(half) == bits(whole)


@pytest.mark.parametrize(
    "changes",
    [
        {"metrics": 2**31},
        {"state": {"mean_gap": 1e308}},
        {"state": {"mean_gap": -1, "last_violation": 10**18}},
        {"state": {"violations": -1}},
        {"state": {"objective": torch.ones(2, 2)}},
        {"state": {"tally": {**Tally(samples=1, correct=2).state_dict()}}},
        {"state": {"tally": {**Tally(objectives=2**54).state_dict()}}},
        {"state": {"window": {"first": 1, "s": torch.ones(0, dtype=torch.float64)}}},
    ],
)
def test_impossible_values_are_refused(changes: dict[str, Any], half: Path) -> None:
    """A valid checksum is not enough, because an attacker can compute it."""
    last = checkpoints_in(half)[0]
    checkpoint = load_checkpoint(last)
    values = {**checkpoint.values, "state": {**checkpoint.values["state"], **changes.pop("state", {})}}
    save_checkpoint(last, replace(checkpoint, values=values, **changes))
    for file in checkpoints_in(half)[1:]:
        file.unlink()
    with pytest.raises(InputError, match=r"does not fit this run|has changed since the checkpoint"):
        go(half, settings_with())
