"""The folders that Weights & Biases keeps offline, read back."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nsvm_cli.errors import Interrupted, RunError
from tests.loggers.runs import Stop, go, settings_with

pytest.importorskip("wandb")

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("unchecked")]

LOGGER = {"name": "wandb", "project": "tests"}


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")


@dataclass
class Tracked:
    """What one offline folder holds."""

    run: Any = None
    steps: list[int] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None


def tracked() -> list[Tracked]:
    """Return the content of the offline folders, the oldest first."""
    from wandb.proto.wandb_internal_pb2 import Record

    folders = []
    for file in sorted(Path("wandb").glob("offline-run-*/*.wandb"), key=os.path.getmtime):
        folders.append(found := Tracked())
        for data in logged(file.read_bytes()):
            record = Record.FromString(data)
            kind = record.WhichOneof("record_type")
            if kind == "run":
                found.run = record.run
            elif kind == "history":
                found.steps.append(record.history.step.num)
            elif kind == "summary":
                found.summary |= {item.key: json.loads(item.value_json) for item in record.summary.update}
            elif kind == "exit":
                found.exit_code = record.exit.exit_code
    return folders


def logged(data: bytes) -> Iterator[bytes]:
    """Yield the entries of a file in the format of LevelDB's log, which follows seven bytes of a header."""
    at, entry = 7, b""
    while at + 7 <= len(data):
        if (left := 2**15 - at % 2**15) < 7:
            at += left
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + 7])
        entry += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a whole entry, or the last part of one
            yield entry
            entry = b""


def test_a_run_with_its_records_settings_and_figures(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result = go(tmp_path / "run", settings_with(LOGGER))
    (folder,) = tracked()
    assert (folder.run.project, folder.run.run_group) == ("tests", "a-sweep")
    settings = {item.key: json.loads(item.value_json) for item in folder.run.config.update}
    assert settings["optimizer"]["lr"] == 0.01
    assert folder.steps == [10, 20, 30, 40, 50]
    assert folder.summary["train_accuracy"] == result["train_accuracy"]
    assert folder.summary["status"] == "finished"
    assert folder.exit_code == 0
    (kept,) = Path("wandb").glob("offline-run-*/files/run")
    for name in ("config.yaml", "result.json", "curves.png", "report.html", "final.safetensors"):
        assert (kept / name).read_bytes() == (tmp_path / "run" / name).read_bytes(), name
    assert folder.summary["curves"]["_type"] == "image-file"
    assert folder.summary["report"]["_type"] == "html-file"
    (page,) = kept.parent.glob("media/html/*.html")
    assert page.read_bytes() == (tmp_path / "run" / "report.html").read_bytes(), "W&B adds no style"
    assert capfd.readouterr() == ("", ""), "it keeps silent"
    assert "wandb-core" not in children(), "its process has ended"


def children() -> str:
    command = ["ps", "-o", "args", "--ppid", str(os.getpid())]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_an_interrupted_run_is_continued(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        go(tmp_path / "run", settings_with(LOGGER), Stop(step=30))
    go(tmp_path / "run", settings_with(LOGGER))
    first, second = tracked()
    assert first.run.run_id == second.run.run_id
    assert (first.steps, second.steps) == ([10, 20, 30], [10, 20, 30, 40, 50]), "wandb sync shows the last"
    assert (first.summary["status"], second.summary["status"]) == ("interrupted", "finished")
    assert (first.exit_code, second.exit_code) == (1, 0)


def test_without_an_account_the_run_ends_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(RunError, match="logger=wandb could not start: No API key configured"):
        go(tmp_path / "run", settings_with(LOGGER))
