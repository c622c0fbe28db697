"""Where machine code is kept between processes, and what is there. Nothing here needs Numba."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import platform
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch
from platformdirs import user_cache_path


@cache
def code_folder() -> Path:
    """Return the folder of the machine code.

    Its name depends on everything that the code is made of: Numba notices a change of the file that a
    function is in, but not of the functions that it calls.
    """
    sources = [file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py"))]
    about = (b"@compiled", b"(NamedTuple)", b"njit(")
    compiled = [source for source in sources if any(word in source for word in about)]
    digest = hashlib.sha256(b"\0".join(compiled)).hexdigest()[:16]
    made_by = f"python{platform.python_version()}-numba{version('numba')}-numpy{version('numpy')}"
    return user_cache_path("nsvm", appauthor=False) / "compiled" / f"{made_by}-{digest}"


def name_of_type(dtype: torch.dtype) -> str:
    """Return float32 or float64."""
    return str(dtype).removeprefix("torch.")


@cache
def _processor() -> str:
    """Return a short name of this kind of processor, for which code is compiled."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = [platform.processor()]
    facts = {line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))}
    return hashlib.sha256("\n".join(sorted(facts)).encode()).hexdigest()[:8]


def _mark(algorithm: str, dtype: str) -> Path:
    return code_folder() / f"{algorithm}-{dtype}-{_processor()}"


def is_compiled(algorithm: str, dtype: str) -> bool:
    """Return whether the functions of an algorithm have been compiled for this type and processor."""
    return _mark(algorithm, dtype).exists()


@contextlib.contextmanager
def compiling(algorithm: str, dtype: str) -> Iterator[None]:
    """Call functions in the block that are compiled now, unless they have been before.

    One process compiles at a time: two at once could mix up the code that they keep.
    """
    if (algorithm, dtype) in _loaded or is_compiled(algorithm, dtype):
        yield
    else:
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):  # without a place for code, each process compiles for itself
                lock = stack.enter_context((code_folder() / "lock").open("a"))
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield
            with contextlib.suppress(OSError):
                _mark(algorithm, dtype).touch()
    _loaded.add((algorithm, dtype))


_loaded: set[tuple[str, str]] = set()
"""What this process has called."""
