"""Locks on folders, temporary files of killed processes, and atomic writes."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from nsvm_cli.errors import InputError
from nsvm_cli.storage.files import is_locked, locked, write_atomically, writing
from nsvm_cli.storage.run_directory import RunDirectory, read_status, write_config, write_status
from tests.patience import PATIENCE


def test_a_locked_folder_is_refused_or_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order, asks, flock = list[str](), threading.Event(), fcntl.flock

    def heard(descriptor: int, kind: int) -> None:
        if kind == fcntl.LOCK_EX:
            asks.set()
        flock(descriptor, kind)

    def wait() -> None:
        with locked(tmp_path, wait=True):
            order.append("second")

    with locked(tmp_path):
        assert is_locked(tmp_path)
        assert not [*tmp_path.iterdir()], "the lock should not be a file, which others could delete"
        with pytest.raises(InputError, match="in use by another nsvm process"), locked(tmp_path):
            pass
        monkeypatch.setattr(fcntl, "flock", heard)
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert asks.wait(PATIENCE)
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]
    assert not is_locked(tmp_path)


def test_only_what_was_half_written_is_removed(tmp_path: Path) -> None:
    kept = [tmp_path / name for name in (".hidden.tmp", "notes.tmp", ".result.json.x.tmp")]
    with writing(tmp_path / "result.json"), writing(tmp_path / "last.safetensors"):
        orphans = [*tmp_path.glob(".*")]
    assert len(orphans) == 2
    (folder := tmp_path / ".result.json.01234567.tmp").mkdir()
    for file in [*kept, *orphans]:
        file.write_text("half")
    with locked(tmp_path):
        pass
    assert all(file.exists() for file in [*kept, folder]), "deleted files of other programs, or a folder"
    assert not any(file.exists() for file in orphans)


def test_no_temporary_file_is_a_link_that_was_there_before(tmp_path: Path) -> None:
    """Others may have placed links at names that they could guess."""
    (precious := tmp_path / "precious").write_text("mine")
    for number in (os.getpid(), "0" * 8):
        (tmp_path / f".report.html.{number}.tmp").symlink_to(precious)
    write_atomically(tmp_path / "report.html", b"new")
    assert (precious.read_text(), (tmp_path / "report.html").read_text()) == ("mine", "new")
    assert not (tmp_path / "report.html").is_symlink()


@pytest.mark.parametrize("name", ["metrics", "times"])
def test_a_pipe_is_not_written_to(name: str, tmp_path: Path) -> None:
    """Without a reader, the run would block forever once the pipe is full."""
    os.mkfifo(tmp_path / f"{name}.jsonl")
    write_config(tmp_path, {})
    with (
        pytest.raises(
            InputError, match=rf"{name}\.jsonl is not a regular file: replace it with a regular file"
        ),
        RunDirectory(tmp_path, {}, "resume") as directory,
    ):
        directory.resume({})


@pytest.mark.parametrize("name", ["metrics", "times"])
def test_a_file_elsewhere_is_not_written_to(name: str, tmp_path: Path) -> None:
    """A run directory from an untrusted source may contain links to other files."""
    (run := tmp_path / "run").mkdir()
    (precious := tmp_path / "precious").write_text("mine")
    for link in (f"{name}.jsonl", "curves.png"):
        (run / link).symlink_to(precious)
    write_config(run, {})
    with (
        pytest.raises(InputError, match=rf"{name}\.jsonl is a link to another file: replace"),
        RunDirectory(run, {}, "resume") as directory,
    ):
        directory.resume({})
    write_atomically(run / "curves.png", b"new")
    assert precious.read_text() == "mine"


def test_a_status_is_read_back(tmp_path: Path) -> None:
    assert read_status(tmp_path / "job") == {}
    write_status(tmp_path / "job", "failed", "training diverged", job=3)
    assert read_status(tmp_path / "job") == {"status": "failed", "message": "training diverged", "job": 3}
    (tmp_path / "job" / "status.json").write_text("[half")
    assert read_status(tmp_path / "job") == {}


def test_a_link_that_the_user_names_is_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target, link, dangling = tmp_path / "elsewhere" / "a", tmp_path / "link", tmp_path / "dangling"
    target.write_text("old")
    link.symlink_to(target)
    dangling.symlink_to(tmp_path / "elsewhere" / "b")
    for path in (link, dangling):
        write_atomically(path, b"new", named=True)
        assert path.is_symlink()
        assert path.read_text() == "new"
    assert {file.name for file in (tmp_path / "elsewhere").iterdir()} == {"a", "b"}
