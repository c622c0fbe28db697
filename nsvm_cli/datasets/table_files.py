"""The files of tables: opening and unpacking them, and checking their size before they are read."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import IO, TypeAlias, cast

from nsvm_cli.memory import expect_room, fits
from nsvm_cli.storage.files import open_regular

DAMAGED = (EOFError, lzma.LZMAError, zipfile.BadZipFile, zlib.error)
"""Errors from damaged compressed files, beside ValueError and OSError."""

PER_BYTE, PER_CELL = 4, 40
"""Bytes of memory for each byte and each cell of a table, at the peak between reading and training."""

Stream: TypeAlias = io.BufferedIOBase


@contextmanager
def open_table(path: Path, separator: str, what: str) -> Iterator[Stream]:
    """Open a file of comma-separated values, which may be compressed, by the end of its name.

    Args:
        what: the setting that names the file, for messages.

    Raises:
        InputError: it needs more memory than data may take.
        ValueError, OSError: it cannot be read; or one of DAMAGED.
    """
    with open_regular(path) as file:
        _expect_room(file, path, separator, what)
        file.seek(0)
        yield unpacked(file, path)


@contextmanager
def open_stream(path: Path) -> Iterator[Stream]:
    """Open a table like ``open_table``, for a reader that keeps only some rows at a time.

    Raises:
        ValueError, OSError: it cannot be read; or one of DAMAGED.
    """
    with open_regular(path) as file:
        yield unpacked(file, path)


def _expect_room(file: Stream, path: Path, separator: str, what: str) -> None:
    """Count bytes and cells without keeping them: a small compressed file may hold a table of any size."""
    length = os.fstat(file.fileno()).st_size
    if length == 0:  # the size of the files of /proc, some of which never end
        raise ValueError("it is empty")
    expect_room(PER_BYTE * length, what)
    text, size, cells = unpacked(file, path), 0, 0
    while chunk := text.read(2**18):
        size += len(chunk)
        cells += chunk.count(separator.encode()) + chunk.count(b"\n")
        if not fits(needed := PER_BYTE * size + PER_CELL * cells):
            expect_room(needed * length // file.tell(), what)  # assuming that the rest of the file is similar


def unpacked(file: Stream, path: PurePath) -> Stream:
    """Return the content of a file without its compression, which the end of its name says."""
    decompress = DECOMPRESSORS.get(path.suffix.lower())
    return file if decompress is None else decompress(file)


def _unzipped(file: Stream) -> Stream:
    archive = zipfile.ZipFile(file)
    if len(members := archive.namelist()) != 1:
        raise ValueError(f"expected an archive of one file, got {len(members)}")
    return cast(Stream, archive.open(members[0]))


def _unzstd(file: Stream) -> Stream:
    try:
        import zstandard
    except ModuleNotFoundError:
        raise ValueError(".zst needs zstandard: pip install zstandard, or unpack the file") from None
    return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(file))


DECOMPRESSORS: dict[str, Callable[[Stream], Stream]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".bz2": lambda file: bz2.BZ2File(file),
    ".xz": lambda file: lzma.LZMAFile(cast(IO[bytes], file)),  # noqa: SIM115
    ".zip": _unzipped,
    ".zst": _unzstd,
}
