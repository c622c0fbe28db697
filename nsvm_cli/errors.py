"""The two ways a run can end badly without a bug. Each is one line that a person can act on."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """What the user gave cannot be used; said in one line. The command exits with 2."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class RunError(RuntimeError):
    """The input was fine and the run failed all the same. The command exits with 1."""


def plainly(error: OSError) -> str:
    """What the system could not do, and with which file."""
    return f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)


class NotFiniteError(ArithmeticError):
    """A quantity is no longer finite at a step; the loop says so in a sentence."""

    def __init__(self, quantity: str) -> None:
        self.quantity = quantity


class Interrupted(KeyboardInterrupt):
    """A signal has ended the run, once what it needs to go on was written. The command exits with
    128 and the signal's number."""

    def __init__(self, signum: int, message: str = "interrupted") -> None:
        super().__init__(message)
        self.signum = signum

    def __reduce__(self) -> tuple[type[Interrupted], tuple[int, str]]:
        return Interrupted, (self.signum, str(self))  # it may be raised in a worker process


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the nearest known one, and all of them."""
    known = sorted(known)
    close = get_close_matches(str(name), known, n=1)
    nearest = f"did you mean {close[0]}? " if close else ""
    return f"{nearest}(known: {', '.join(known) or 'none'})"
