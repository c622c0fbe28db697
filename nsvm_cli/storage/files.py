"""Atomic file writes, and folders locked by one process at a time."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import io
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nsvm_cli.errors import InputError

TEMPORARY = ".tmp"
ORPHAN = re.compile(r"\..+\.(json|jsonl|yaml|png|safetensors|csv|md|html|onnx)\.[0-9]+\.tmp")
"""Temporary files that ``write_atomically`` leaves behind if its process is killed."""

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""How cells begin that a spreadsheet may take for a formula; the last four are full-width = + - @."""

LOOK_SECONDS = 0.2
"""Longer than another process holds a lock that only looks whether it is held: see ``is_locked``."""


def write_atomically(path: Path, content: bytes | bytearray) -> None:
    """Replace a file atomically: even after a power cut, it has either the new content or the old.

    Raises:
        OSError: the system refused; its ``filename`` is ``path``.
    """
    with replacing(path) as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[io.BufferedWriter]:
    """Yield a file that atomically takes the place of ``path`` at the end of the context, unless it raises.

    Raises:
        OSError: the system refused; its ``filename`` is ``path``.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}")
    try:
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            raise with_filename(error, path) from None
        raise
    fsync_folder(path.parent)


def with_filename(error: OSError, path: Path) -> OSError:
    """Return the same error with a file name that the user knows."""
    return OSError(error.errno, error.strerror, str(path))


def fsync_folder(path: Path) -> None:
    """Flush the names in a folder to disk, so that renames are durable."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file for reading, and nothing else: reading a device or a pipe may never end.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for a writer
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("it is not a regular file")
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, limit: int) -> bytes:
    """Return the content of a regular file of at most ``limit`` bytes.

    The files of /proc, which claim to be empty and may be endless, read as empty.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no regular file, or longer.
    """
    with open_regular(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > limit:
            raise ValueError(f"it has {size} bytes, expected at most {limit}")
        return file.read(size)


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a CSV file atomically; there is at least one row, and all rows have the same keys."""
    write_atomically(path, csv_text(rows).encode())


def csv_text(rows: Sequence[Mapping[str, Any]], escape: bool = False) -> str:
    """Return a CSV file; there is at least one row, and all rows have the same keys.

    ``escape`` applies ``escape_formula`` to all cells, also those of the header.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    for cells in (rows[0], *([row[key] for key in rows[0]] for row in rows)):
        table.writerow(map(escape_formula, cells) if escape else cells)
    return text.getvalue()


def escape_formula(cell: Any) -> Any:
    """Return a cell with a quote before what a spreadsheet would take for a formula, as OWASP advises."""
    if not isinstance(cell, str) or not cell.startswith(FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def open_for_append(path: Path) -> io.FileIO:
    """Open a file for reading and appending; create it if it is missing.

    Raises:
        InputError: ``path`` is a link, symbolic or hard, whose other end could be outside the folder.
    """
    _refuse_link(path)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    return io.FileIO(descriptor, "a+b")


@contextlib.contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Lock a folder within the context, and remove temporary files of killed processes from it.

    Args:
        folder: the folder, created if it is missing; its lock is the file ``.lock`` in it.
        wait: whether to wait for a process that holds the lock, instead of raising.

    Raises:
        InputError: another process holds the lock, or the lock file is a link.
        OSError: the folder cannot be written to.
    """
    from filelock import FileLock, Timeout  # slow to import, and not needed to parse a command

    folder.mkdir(parents=True, exist_ok=True)
    _refuse_link(folder / ".lock")
    lock = FileLock(folder / ".lock", mode=0o666)
    try:
        lock.acquire(timeout=-1 if wait else LOOK_SECONDS, poll_interval=LOOK_SECONDS / 20)
    except Timeout:
        raise InputError(f"{folder} is in use by another nsvm: wait for it, or name another folder") from None
    try:
        for orphan in folder.glob(f".*{TEMPORARY}"):
            if ORPHAN.fullmatch(orphan.name) and orphan.is_file():
                orphan.unlink()
        yield
    finally:
        lock.release()


def is_locked(folder: Path) -> bool:
    """Return whether a process holds the lock of a folder. Writes nothing."""
    try:
        with open_regular(folder / ".lock") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (OSError, ValueError):
        return False
    return False


def _refuse_link(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode) or status.st_nlink > 1:
            raise InputError(f"{path} is a link to another file, which would change: put a copy in its place")
