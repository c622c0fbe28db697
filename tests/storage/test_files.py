"""Folders with one owner, and what a killed owner leaves."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from nsvm_cli.errors import InputError
from nsvm_cli.storage.files import is_locked, locked, replacing, write_atomically
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


def test_no_file_can_be_removed_to_unlock_a_folder(tmp_path: Path) -> None:
    with locked(tmp_path):
        assert is_locked(tmp_path)
        for file in tmp_path.iterdir():
            file.unlink()
        with pytest.raises(InputError, match="in use by another nsvm"), locked(tmp_path):
            pass
        assert not [*tmp_path.iterdir()], "nothing that others could open or remove"
    assert not is_locked(tmp_path)


def test_another_name_of_a_file_elsewhere_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "run" / "metrics.jsonl").hardlink_to(precious)
    write_config(tmp_path / "run", {})
    with (
        pytest.raises(InputError, match=r"metrics\.jsonl is a link to another file, which would change"),
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


def test_a_link_in_a_folder_of_others_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "curves.png").symlink_to("precious")
    with replacing(tmp_path / "curves.png") as file:
        file.write(b"new")
    assert (tmp_path / "precious").read_text() == "mine"
    assert not (tmp_path / "curves.png").is_symlink()


def test_a_pipe_and_a_device_that_the_user_names_are_written_to(tmp_path: Path) -> None:
    pipe, null = tmp_path / "pipe", tmp_path / "null"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomically(pipe, b"new", named=True)
        assert os.read(reader, 99) == b"new"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    try:
        os.mknod(null, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        return  # only root makes devices
    write_atomically(null, b"new", named=True)
    assert null.is_char_device()


def test_a_file_that_is_open_already_is_continued(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        file.write(b"first ")
        file.flush()
        write_atomically(Path(f"/dev/fd/{file.fileno()}"), b"second", named=True)
    assert (tmp_path / "out").read_text() == "first second"
