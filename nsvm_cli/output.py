"""Printing, for a person or a program to read.

Names and values may come from other people's files, and a terminal obeys control characters: ``say``,
``answer`` and ``nsvm_cli.terminal.console.Console`` write these as escapes. Nothing else in nsvm prints.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Any, ClassVar


def printable(text: str) -> str:
    """Return the text with escapes such as ``\\x1b`` in place of characters that cannot be printed."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shortened(name: str, longest: int = 16) -> str:
    """Return the beginning of a name, which may be anyone's, with escapes for what no font has."""
    name = printable(name)
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def say(line: object) -> None:
    """Print a line to standard error: progress or a message."""
    print(printable(str(line)), file=sys.stderr, flush=True)  # noqa: T201


def details(error: BaseException, full: bool) -> list[str]:
    """Return the lines of the traceback of an error, if it is asked for."""
    return "".join(traceback.format_exception(error)).splitlines() if full else []


def answer(line: object) -> None:
    """Print a line to standard output: the result of a command."""
    print(printable(str(line)), flush=True)  # noqa: T201


def answer_lines(text: str) -> None:
    """Print the lines of a text to standard output, each of which ends with a newline."""
    for line in text.split("\n")[:-1]:
        answer(line)


def flash(text: str) -> None:
    """Show a line on a terminal, until something else is printed."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{text} ...\r")
        sys.stderr.flush()
        _Unfailing.flashed = len(text) + 4


@contextlib.contextmanager
def standard_streams() -> Iterator[list[OSError]]:
    """Make standard output and standard error streams that never fail, within the context.

    They drop what cannot be written: a closed pipe, a closed terminal or a full disk must not end a run.
    Characters that the encoding lacks are written as escapes. Yields the errors of standard output, for
    commands whose output is their result.
    """
    before = sys.stdout, sys.stderr
    errors: list[OSError] = []
    sys.stdout, sys.stderr = _unfailing(sys.stdout, errors), _unfailing(sys.stderr, [])
    try:
        yield errors
    finally:
        sys.stdout.flush()
        if _Unfailing.flashed:
            sys.stderr.write("\r")
        sys.stderr.flush()
        _Unfailing.flashed = 0
        sys.stdout, sys.stderr = before


class _Unfailing(io.FileIO):
    """A raw file that notes errors of writing instead of raising them.

    ``flashed`` is the length of a line on the terminal that the next one replaces.
    """

    flashed: ClassVar[int] = 0

    def __init__(self, file: int | str, errors: list[OSError]) -> None:
        super().__init__(file, "w", closefd=isinstance(file, str))
        self.errors = errors

    def write(self, data: Any) -> int:
        written = None
        try:
            if _Unfailing.flashed and self.isatty():
                super().write(b" " * _Unfailing.flashed + b"\r")
                _Unfailing.flashed = 0
            written = super().write(data)
        except OSError as error:
            self.errors.append(error)
        return memoryview(data).nbytes if written is None else written


def _unfailing(stream: Any, errors: list[OSError]) -> Any:
    if stream is None:  # it was closed before Python started; the next opened file would take its descriptor
        return io.TextIOWrapper(io.BufferedWriter(_Unfailing(os.devnull, errors)))
    try:
        number = stream.fileno()
    except (OSError, ValueError):  # not a file of the system
        return stream
    if isinstance(getattr(getattr(stream, "buffer", None), "raw", None), _Unfailing):
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(_Unfailing(number, errors)),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=getattr(stream, "line_buffering", True),
        write_through=getattr(stream, "write_through", False),
    )
