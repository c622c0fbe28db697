"""Errors that are not bugs. Each message is one line that a person can act on."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """The user's input is invalid. The command exits with 2."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class RunError(RuntimeError):
    """The run failed although its input is valid. The command exits with 1."""


def message_of(error: BaseException) -> str:
    """Return the message of an error, for the system's errors with the file, for bugs with the exception."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, (InputError, RunError, OSError)):
        return str(error) or type(error).__name__
    return f"{type(error).__name__}: {error}".removesuffix(": ")


SHORTAGES = (
    *("can't allocate memory", "cannot allocate memory", "out of memory"),
    *("failed to map segment", "can't start new thread"),  # no room for a library, or a thread's stack
)
"""Messages of torch, pandas and the system about a lack of memory in errors other than MemoryError."""


def out_of_memory(error: Exception) -> RunError | None:
    """Return an error of one line if memory ran out, whichever library reports it; else None."""
    lines = str(error).strip().splitlines()
    short = [line for line in lines if any(words in line.lower() for words in SHORTAGES)]
    if not short and isinstance(error, (OSError, ImportError)) and isinstance(error.__context__, Exception):
        return out_of_memory(error.__context__)  # llvmlite reports a missing library
    if not short and not isinstance(error, MemoryError):
        return None
    reason = next(iter(short or lines), "")
    reason = reason.rpartition("DefaultCPUAllocator: ")[2].removeprefix("out of memory: ")
    return RunError(
        f"out of memory: {reason or 'an allocation failed'}; use smaller data or a smaller network, or lower "
        "memory_budget"
    )


class NotFiniteError(RunError):
    """A quantity became infinite or NaN in a step of the training loop."""

    def __init__(self, quantity: str, step: int) -> None:
        super().__init__(quantity, step)  # both are needed to copy it from a worker process
        self.quantity, self.step = quantity, step

    def __str__(self) -> str:
        return f"{self.quantity} is not finite at step {self.step}"


class Interrupted(KeyboardInterrupt):
    """A signal ended the run. The command exits with 128 plus the number of the signal."""

    def __init__(self, signum: int, message: str = "interrupted") -> None:
        super().__init__(message)
        self.signum = signum

    def __reduce__(self) -> tuple[type[Interrupted], tuple[int, str]]:
        return Interrupted, (self.signum, str(self))  # to copy it from a worker process


def did_you_mean(name: object, expected: Iterable[str], elsewhere: Iterable[str] = ()) -> str:
    """Return the end of a sentence about an unknown name: the nearest name, and a list of all.

    Names with dots are compared by their last part: ``lr`` is near ``optimizer.lr``. Names ``elsewhere`` may
    be suggested, but are not listed.
    """
    here = sorted(expected)
    there = sorted({*elsewhere} - {*here})
    listed, wanted = ", ".join(here), _last_part(str(name))
    ends = [*map(_last_part, here)]
    near = get_close_matches(wanted, [*ends, *map(_last_part, there)], n=1, cutoff=0.75)
    near = near or [end for end in ends if wanted and end.startswith(wanted)][:1]
    for nearest in near or get_close_matches(wanted, ends, n=1):
        meant = [[other for other in names if _last_part(other) == nearest] for names in (here, there)]
        return f"did you mean {' or '.join(meant[0] or meant[1])}? (known: {listed})"
    return f"expected one of: {listed}" if here else "none is known"


def _last_part(name: str) -> str:
    return name.rpartition(".")[2].lower()
