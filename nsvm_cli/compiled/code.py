"""Where machine code is kept between processes, and what is there. Nothing here needs Numba."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import subprocess
import sys
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch
from platformdirs import user_cache_path

from nsvm_cli.errors import RunError


@cache
def code_folder() -> Path:
    """Return the folder of the machine code.

    Its name depends on everything that the code is made of: Numba notices a change of the file that a
    function is in, but not of the functions that it calls. It depends on where these files are and when they
    were written too, as Numba does not use the code of other files, even of copies.
    """
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).absolute().parent.glob("*.py")):
        source = file.read_bytes()
        if any(word in source for word in (b"@compiled", b"@intrinsic", b"(NamedTuple)", b"njit(")):
            digest.update(f"{file}\0{file.stat().st_mtime_ns}\0".encode() + source)
    made_by = f"python{platform.python_version()}-numba{version('numba')}-numpy{version('numpy')}"
    return user_cache_path("nsvm", appauthor=False) / "compiled" / f"{made_by}-{digest.hexdigest()[:16]}"


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


@cache
def can_keep_code() -> bool:
    """Return whether there is a place for machine code."""
    try:
        code_folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=code_folder()):
            return True
    except OSError:
        return False


def compile_once(algorithm: str, dtype: str) -> None:
    """Have the functions of an algorithm compiled for a type, by a process of its own, unless that is done.

    In the process that compiles functions, these call other variants of one another than in those that
    load them, with other last bits. Where there is no place for code, each process has to compile for itself.

    Raises:
        RunError: they cannot be compiled.
    """
    if is_compiled(algorithm, dtype) or not can_keep_code() or os.environ.get(COMPILES):
        return
    with (code_folder() / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two processes at once could mix up the code that they keep
        if is_compiled(algorithm, dtype):
            return
        done = subprocess.run(
            [sys.executable, "-P", "-m", "nsvm_cli.compiled.compiler", algorithm, dtype],
            env={**os.environ, COMPILES: "1", "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is for the run
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise RunError(f"the steps of {algorithm} cannot be compiled: {last}; engine=torch does without")
        _mark(algorithm, dtype).touch()


COMPILES = "NSVM_COMPILES"
"""An environment variable of the process that compiles."""
