"""Folders with one owner, and what a killed owner leaves."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from nsvm_cli.errors import InputError
from nsvm_cli.storage.files import locked
from nsvm_cli.storage.run_directory import RunDirectory, read_status, write_config, write_status


def test_a_locked_folder_is_refused_or_waited_for(tmp_path: Path) -> None:
    order: list[str] = []

    def wait() -> None:
        with locked(tmp_path, wait=True):
            order.append("second")

    with locked(tmp_path):
        with pytest.raises(InputError, match="in use by another nsvm"), locked(tmp_path):
            pass
        waiting = threading.Thread(target=wait)
        waiting.start()
        waiting.join(0.2)
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]


def test_only_what_was_half_written_is_removed(tmp_path: Path) -> None:
    kept = [tmp_path / name for name in (".hidden.tmp", "notes.tmp", ".result.json.x.tmp")]
    orphans = [tmp_path / name for name in (".result.json.123.tmp", ".last.safetensors.9.tmp")]
    for file in [*kept, *orphans]:
        file.write_text("half")
    with locked(tmp_path):
        pass
    assert all(file.exists() for file in kept)
    assert not any(file.exists() for file in orphans)


def test_a_link_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is a link"), locked(tmp_path):
        pass
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl"])
def test_another_name_of_a_file_elsewhere_is_not_written_to(name: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "run" / name).hardlink_to(precious)
    write_config(tmp_path / "run", {})
    with (
        pytest.raises(InputError, match=f"{name} is a link to another file, which would change: put a copy"),
        RunDirectory(tmp_path / "run", {}, "resume") as run,
    ):
        run.open_metrics()
    assert precious.read_text() == "mine"


def test_a_status_is_read_back(tmp_path: Path) -> None:
    assert read_status(tmp_path / "job") is None
    write_status(tmp_path / "job", "failed", "training diverged", job=3)
    assert read_status(tmp_path / "job") == {"status": "failed", "message": "training diverged", "job": 3}
    (tmp_path / "job" / "status.json").write_text("[half")
    assert read_status(tmp_path / "job") is None
