"""Errors that are not bugs. Each message is one line that says what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """The user's input is invalid. The command exits with code 2."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class RunError(RuntimeError):
    """The run failed although its input is valid. The command exits with code 1."""


def message_of(error: BaseException) -> str:
    """Return the message of an error, with the file of an OSError and the class of an unexpected error."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, (InputError, RunError, OSError)):
        return str(error) or type(error).__name__
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its class if it has no message."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def out_of_memory(error: Exception) -> RunError | None:
    """Return a RunError with a short message if ``error`` means that memory ran out, otherwise None."""
    phrases = ["can't allocate memory", "cannot allocate memory", "out of memory"]
    phrases += ["failed to map segment", "can't start new thread"]  # no memory for a library or a stack
    lines = str(error).strip().splitlines()
    reasons = [line for line in lines if any(phrase in line.lower() for phrase in phrases)]
    if not reasons and isinstance(error, (OSError, ImportError)) and isinstance(error.__context__, Exception):
        return out_of_memory(error.__context__)  # llvmlite reports a missing library
    if not reasons and not isinstance(error, MemoryError):
        return None
    reason = next(iter(reasons or lines), "")
    reason = reason.rpartition("DefaultCPUAllocator: ")[2].removeprefix("out of memory: ")
    return RunError(
        f"out of memory: {reason or 'an allocation failed'}; use fewer samples, a smaller network or a lower "
        "memory_budget"
    )


class NotFiniteError(RunError):
    """A quantity became infinite or NaN in a step of the training loop."""

    def __init__(self, quantity: str, step: int) -> None:
        super().__init__(quantity, step)  # copying the error from a worker process requires both
        self.quantity, self.step = quantity, step

    def __str__(self) -> str:
        return f"{self.quantity} is not finite at step {self.step}"


class Interrupted(KeyboardInterrupt):
    """A signal ended the run. The command exits with code 128 plus the number of the signal."""

    def __init__(self, signum: int, message: str = "interrupted") -> None:
        super().__init__(message)
        self.signum = signum

    def __reduce__(self) -> tuple[type[Interrupted], tuple[int, str]]:
        return Interrupted, (self.signum, str(self))  # copying the error from a worker process requires this


def did_you_mean(name: object, expected: Iterable[str], elsewhere: Iterable[str] = ()) -> str:
    """Return the end of a message about an unknown name: the most similar name and the ``expected`` names.

    Only the last parts of dotted names are compared. Names in ``elsewhere`` are suggested, but not listed.
    """
    names = sorted(expected)
    further_names = sorted({*elsewhere} - {*names})
    listed, wanted = ", ".join(names), _last_part(str(name))
    parts = [*map(_last_part, names)]
    matches = get_close_matches(wanted, [*parts, *map(_last_part, further_names)], n=1, cutoff=0.75)
    matches = matches or [part for part in parts if wanted and part.startswith(wanted)][:1]
    matches = matches or [part for part in parts if wanted and part.endswith(f"_{wanted}")][:1]
    for match in matches or get_close_matches(wanted, parts, n=1):
        meant = [[known for known in group if _last_part(known) == match] for group in (names, further_names)]
        return f"did you mean {' or '.join(meant[0] or meant[1])}? (known: {listed})"
    return f"expected one of: {listed}" if names else "none is known"


def _last_part(name: str) -> str:
    return name.rpartition(".")[2].lower()
