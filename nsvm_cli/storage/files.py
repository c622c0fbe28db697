"""Atomic file writes, and folders that only one process at a time can lock."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import hashlib
import io
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from nsvm_cli.errors import InputError

ORPHANS = f".*.{'[0-9a-f]' * 8}.tmp"
"""Glob pattern of temporary files that a killed process has left behind."""

PROBE_SECONDS = 0.2
"""Seconds for which a failed lock is tried again, since ``is_locked`` may hold the lock for a moment."""


def cache_folder() -> Path:
    """Return the user's cache folder: on Linux ``$XDG_CACHE_HOME/nsvm``, by default ``~/.cache/nsvm``."""
    return user_cache_path("nsvm", appauthor=False)


def write_atomically(path: Path, content: bytes | bytearray, named: bool = False) -> None:
    """Write a file atomically; see ``writing``."""
    with writing(path, named) as file:
        file.write(content)


@contextlib.contextmanager
def writing(path: Path, named: bool = False) -> Iterator[io.BufferedWriter]:
    """Context manager: yield a file that replaces ``path`` atomically if the context ends without an error.

    Args:
        named: whether the user chose ``path``. Only then, pipes and devices are written to and links are
            followed, because anyone may have placed them in a run directory.

    Raises:
        OSError: the file cannot be written. The error's ``filename`` is ``path``.
    """
    if named and path.exists() and not path.is_file():
        with path.open("ab") as file:
            yield file
        return
    path = Path(os.path.realpath(path)) if named else path
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:  # fails if anyone has placed a link there
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = str(path)  # the user does not know the temporary file
        raise
    with _opened(path.parent) as folder:
        os.fsync(folder)  # otherwise a power cut may undo the renaming


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file for reading; raise a ValueError for devices and pipes, which may never end."""
    if path.exists() and not path.is_file():
        raise ValueError("it is not a regular file")
    return path.open("rb")


def read_regular(path: Path, limit: int) -> bytes:
    """Return a file's content; raise a ValueError if it is not regular or has more than ``limit`` bytes."""
    with open_regular(path) as file:
        if (size := path.stat().st_size) > limit:
            raise ValueError(f"it has {size} bytes, expected at most {limit}")
        return file.read(limit)


def file_sha256(path: str) -> str:
    """Return the SHA-256 of a file or, for a folder, of the checksums of all files in it."""
    named = Path(os.path.expanduser(path))
    if named.is_dir():
        sums = [file_sha256(str(file)) for file in sorted(named.rglob("*")) if file.is_file()]
        return hashlib.sha256("".join(sums).encode()).hexdigest()
    with named.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def csv_text(rows: Sequence[Mapping[str, Any]], escape: bool = False) -> str:
    """Return CSV text with a header for rows with the same keys; see ``csv_lines``."""
    return csv_lines([rows[0], *([row[key] for key in rows[0]] for row in rows)], escape)


def csv_lines(rows: Iterable[Iterable[Any]], escape: bool = False) -> str:
    """Return rows as lines of CSV; if ``escape``, apply ``escape_formula`` to each cell."""
    text = io.StringIO(newline="")
    line_end = "\r\n\0"  # temporary, because csv then quotes cells that contain \r or \n
    table = csv.writer(text, lineterminator=line_end)
    table.writerows(map(escape_formula, row) if escape else row for row in rows)
    return text.getvalue().replace(line_end, "\n")


def escape_formula(cell: Any) -> Any:
    """Return a cell. A quote is prepended if a spreadsheet would read a formula, as OWASP recommends."""
    if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n")):
        try:
            float(cell)
        except ValueError:
            return f"'{cell}"
    return cell


@contextlib.contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Context manager: create and lock a folder, and delete temporary files of killed processes from it.

    Args:
        wait: whether to wait for a process that holds the lock instead of raising an InputError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _opened(folder) as descriptor:  # not a lock file, which could be deleted
        if wait:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        until = time.monotonic() + PROBE_SECONDS
        while not _try_lock(descriptor):
            if time.monotonic() > until:
                raise InputError(
                    f"{folder} is in use by another nsvm process: wait until it ends, or set another folder"
                )
            time.sleep(PROBE_SECONDS / 20)
        for orphan in folder.glob(ORPHANS):
            with contextlib.suppress(OSError):  # a folder may have such a name
                orphan.unlink()
        yield


def _try_lock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(folder: Path) -> bool:
    """Return whether a process holds the lock of a folder."""
    try:
        with _opened(folder) as descriptor:
            return not _try_lock(descriptor, fcntl.LOCK_SH)
    except OSError:
        return False
