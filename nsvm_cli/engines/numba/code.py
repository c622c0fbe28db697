"""Where machine code is kept between processes. Nothing here needs Numba.

What is compiled together, and kept in a folder, is a *unit*: the steps of an algorithm for a type of numbers.
A process of its own compiles units: there, functions call other variants of one another than in the processes
that load them, with other last bits.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

from platformdirs import user_cache_path

from nsvm_cli.errors import RunError
from nsvm_cli.output import Say
from nsvm_cli.storage.files import locked, write_atomically


@cache
def is_usable() -> bool:
    """Return whether Numba is installed, and fits the packages that it finds."""
    try:
        import numba  # noqa: F401  # half a second: only where it is about to be used
    except ImportError:
        return False
    return True


COMPILES = "NSVM_COMPILES"
"""An environment variable of the process that compiles."""

CODE, CHECKSUM = "code", "sha256"


@cache
def code_folder() -> Path:
    """Return the user's folder of machine code; a temporary one if that cannot be written to."""
    if COMPILES in os.environ:
        return Path(os.environ[COMPILES])
    folder = user_cache_path("nsvm", appauthor=False) / "compiled" / _key()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        own = tempfile.mkdtemp(prefix="nsvm-")
        atexit.register(shutil.rmtree, own, ignore_errors=True)
        return Path(own)


def _key() -> str:
    """Return a hash of the sources, of what compiles them, and of the processor.

    Numba notices a change of the file that a function is in, but not of the functions that it calls. It does
    not use the code of other files, even of copies: hence their paths and times; nor that of other bytecode,
    which ``python -O`` changes.
    """
    here = Path(__file__).absolute().parent
    package = here.parents[1]
    python = f"{sys.implementation.cache_tag} {platform.python_version()} {sys.flags.optimize}"
    versions = f"{python} {version('numba')} {version('numpy')}"
    key = hashlib.sha256(f"{versions} {_processor()}".encode())
    for file in [*sorted(here.rglob("*.py")), package / "randomness.py", package / "models/losses.py"]:
        key.update(f"{file}\0{file.stat().st_mtime_ns}\0".encode() + file.read_bytes())
    return key.hexdigest()[:16]


def _processor() -> str:
    """Return the kind of processor for which code is compiled: this one, or the one that Numba is told of."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = [platform.processor()]
    kind = {line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))}
    told = [os.environ.get(f"NUMBA_CPU_{name}", "") for name in ("NAME", "FEATURES")]
    return "\n".join([*sorted(kind or lines), *told])


def unit_folder(unit: str) -> Path:
    return code_folder() / unit / CODE


def is_compiled(unit: str) -> bool:
    """Return whether intact code of a unit is there."""
    folder = unit_folder(unit)
    try:
        return (folder.parent / CHECKSUM).read_text() == _checksum(folder)
    except (OSError, ValueError):
        return False


def _checksum(folder: Path) -> str:
    checksum = hashlib.sha256()
    for file in sorted(folder.rglob("*.nb?")):
        checksum.update(file.read_bytes())
    return checksum.hexdigest()


def compile_once(units: Iterable[str], say: Say = str) -> None:
    """Have units compiled, unless that is done or another process does it, and say so first.

    Raises:
        RunError: they cannot be compiled.
    """
    if COMPILES in os.environ:
        return
    if left := sorted(unit for unit in units if not is_compiled(unit)):
        say("compiling the steps for these settings, which takes some fifteen seconds, once on this computer")
    with contextlib.ExitStack() as locks:
        for unit in left:
            locks.enter_context(locked(unit_folder(unit).parent, wait=True))
        if left := [unit for unit in left if not is_compiled(unit)]:
            _compile(left)


def _compile(units: Sequence[str]) -> None:
    """Compile units in a process of its own: what several of them call is compiled once."""
    for unit in units:
        shutil.rmtree(unit_folder(unit), ignore_errors=True)
        unit_folder(unit).mkdir()
    paths = os.pathsep.join(map(os.path.abspath, sys.path))
    optimize = str(sys.flags.optimize)  # a flag of this process may have set it
    with subprocess.Popen(
        [sys.executable, "-m", "nsvm_cli.engines.numba.compiler", *units],
        env={**os.environ, COMPILES: str(code_folder()), "PYTHONPATH": paths, "PYTHONOPTIMIZE": optimize},
        cwd=unit_folder(units[0]),  # from which nothing can be imported
        stdin=subprocess.PIPE,  # whose end it waits for
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C is for the run
    ) as process:  # which ends when the context does
        errors = process.stderr.read() if process.stderr else ""
    if process.returncode:
        last = (errors.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        raise RunError(
            f"the steps of {', '.join(units)} cannot be compiled: {last}; engine=torch does without"
        )
    for unit in units:
        folder = unit_folder(unit)
        write_atomically(folder.parent / CHECKSUM, _checksum(folder).encode())
