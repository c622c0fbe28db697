"""The ways a run can end badly without a bug. Each message is one line that a person can act on."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """What the user gave cannot be used. The command exits with 2."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class RunError(RuntimeError):
    """The input was fine, but the run failed. The command exits with 1."""


def plainly(error: OSError) -> str:
    """Return what the system could not do, and with which file."""
    return f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)


def message_of(error: BaseException) -> str:
    """Return what went wrong; of a bug, with the name of the exception."""
    if isinstance(error, OSError):
        return plainly(error) or type(error).__name__
    return str(error) if isinstance(error, (InputError, RunError)) else f"{type(error).__name__}: {error}"


SHORTAGES = (
    *("can't allocate memory", "cannot allocate memory", "out of memory"),
    *("failed to map segment", "can't start new thread"),  # a library, and the stack of a thread
)
"""What torch, pandas and the system say when memory runs out, in errors of other kinds."""


def out_of_memory(error: Exception) -> RunError | None:
    """Return one line about memory that ran out, whichever library reports it; None for any other error."""
    reason = next(iter(str(error).strip().splitlines()), "")
    if not isinstance(error, MemoryError) and not any(words in reason.lower() for words in SHORTAGES):
        return None
    reason = reason.rpartition("DefaultCPUAllocator: ")[2].removeprefix("out of memory: ")
    return RunError(f"out of memory: {reason or 'an allocation failed'}")


class NotFiniteError(ArithmeticError):
    """A quantity was no longer finite in a step of the training loop."""

    def __init__(self, quantity: str, step: int) -> None:
        super().__init__(f"{quantity} is not finite at step {step}")
        self.quantity, self.step = quantity, step

    def __reduce__(self) -> tuple[type[NotFiniteError], tuple[str, int]]:
        return NotFiniteError, (self.quantity, self.step)  # it may be raised in a worker process


class Interrupted(KeyboardInterrupt):
    """A signal has ended the run, after its checkpoint was written. The command exits with 128 plus the
    signal's number."""

    def __init__(self, signum: int, message: str = "interrupted") -> None:
        super().__init__(message)
        self.signum = signum

    def __reduce__(self) -> tuple[type[Interrupted], tuple[int, str]]:
        return Interrupted, (self.signum, str(self))  # it may be raised in a worker process


def did_you_mean(name: object, known: Iterable[str], elsewhere: Iterable[str] = ()) -> str:
    """Return the end of a sentence about an unknown name: what may have been meant, and what is known.

    Names with dots are compared by their last part: ``lr`` is near ``optimizer.lr``.

    Args:
        name: what was given.
        known: the names that would be right in this place.
        elsewhere: names that are right in another place: they may be suggested, but are not listed.
    """
    known = sorted(known)
    there = sorted({*elsewhere} - {*known})
    listed, wanted = ", ".join(known), _last_part(str(name))
    here = [*map(_last_part, known)]
    near = get_close_matches(wanted, [*here, *map(_last_part, there)], n=1, cutoff=0.75)
    near = near or [other for other in here if wanted and other.startswith(wanted)][:1]
    for nearest in near or get_close_matches(wanted, here, n=1):
        meant = [[other for other in names if _last_part(other) == nearest] for names in (known, there)]
        return f"did you mean {' or '.join(meant[0] or meant[1])}? (known: {listed})"
    return f"expected one of: {listed}" if known else "none is known"


def _last_part(name: str) -> str:
    return name.rpartition(".")[2].lower()
