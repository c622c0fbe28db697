"""Functions that print messages and results.

Names and values from files may contain control characters, which a terminal would execute. Therefore nsvm
prints only with ``say``, ``answer`` and ``nsvm_cli.terminal.console.Console``, which escape them.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, ClassVar

Say = Callable[[str], object]
"""A function that shows a message to the user."""


def printable(text: str) -> str:
    """Return the text with escapes such as ``\\x1b`` in place of characters that cannot be printed."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shortened(name: str, longest: int = 16) -> str:
    """Return a name from an untrusted source as ``printable`` text of at most ``longest`` characters."""
    name = printable(name)
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def say(line: object) -> None:
    """Show a line about progress, or a message: on standard error, or as the innermost ``saying`` does."""
    _shown.get()(str(line))


def _to_stderr(line: str) -> None:
    print(printable(line), file=sys.stderr, flush=True)  # noqa: T201


_shown: ContextVar[Say] = ContextVar("shown", default=_to_stderr)


@contextlib.contextmanager
def saying(show: Say) -> Iterator[None]:
    """Context manager: let ``say`` pass its lines to ``show``, such as ``str`` to show nothing."""
    token = _shown.set(show)
    try:
        yield
    finally:
        _shown.reset(token)


def details(error: BaseException) -> list[str]:
    """Return the traceback of an error as lines."""
    return "".join(traceback.format_exception(error)).splitlines()


def answer(line: object) -> None:
    """Print a line of a command's result to standard output."""
    print(printable(str(line)), flush=True)  # noqa: T201


def answer_lines(text: str) -> None:
    """Print text to standard output. Every line of the text must end with a newline."""
    for line in text.split("\n")[:-1]:
        answer(line)


def flash(text: str) -> None:
    """Show a line on a terminal. The next printed line replaces it."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{text} ...\r")
        sys.stderr.flush()
        _Unfailing.flashed = True


@contextlib.contextmanager
def standard_streams() -> Iterator[list[OSError]]:
    """Context manager: replace standard output and standard error by streams that never raise an error.

    After an error, such as a closed pipe, text is discarded. Yields the list of errors of standard output.
    """
    errors: list[OSError] = []
    out: Any = _Unfailing(sys.stdout, errors)
    err: Any = _Unfailing(sys.stderr, [])
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            yield errors
        finally:
            out.flush()
            err.write("")  # removes the line that ``flash`` shows
            err.flush()


class _Unfailing:
    """A text stream that records errors, and discards all output after the first error."""

    flashed: ClassVar[bool] = False

    def __init__(self, stream: Any, errors: list[OSError]) -> None:
        self.stream = stream or open(os.devnull, "w")  # noqa: SIM115  # it was closed before Python started
        self.errors = errors
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

    def write(self, text: str) -> int:
        if _Unfailing.flashed and self.stream.isatty():
            _Unfailing.flashed, text = False, f"\x1b[K{text}"
        self._try(self.stream.write, text)
        return len(text)

    def flush(self) -> None:
        self._try(self.stream.flush)

    def _try(self, action: Callable[..., object], *arguments: str) -> None:
        try:
            action(*arguments)
        except OSError as error:
            self.errors.append(error)
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self.stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
