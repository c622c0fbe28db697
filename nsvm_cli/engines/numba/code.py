"""The cache of machine code on disk. A unit is the code for the steps of an algorithm in one dtype.

A separate process compiles each unit. Functions that are compiled by the process that runs them may be
inlined differently, with different last bits. This module does not require Numba.
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

from nsvm_cli.errors import RunError
from nsvm_cli.output import Say
from nsvm_cli.storage.files import cache_folder, locked, write_atomically


@cache
def is_usable() -> bool:
    """Return whether Numba is installed and can be imported."""
    try:
        import numba  # noqa: F401  # takes half a second
    except ImportError:
        return False
    return True


COMPILES = "NSVM_COMPILES"
"""The environment variable that contains the folder of the code, set in the compiling process only."""

CODE, CHECKSUM = "code", "sha256"


@cache
def code_folder() -> Path:
    """Return the user's cache folder for machine code, or a temporary folder if it is not writable."""
    if COMPILES in os.environ:
        return Path(os.environ[COMPILES])
    folder = cache_folder() / "compiled" / _key()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        temporary = tempfile.mkdtemp(prefix="nsvm-")
        atexit.register(shutil.rmtree, temporary, ignore_errors=True)
        return Path(temporary)


def _key() -> str:
    """Return a hash of the sources, of the versions of Python, Numba and NumPy, and of the processor."""
    # Numba misses changes in files of called functions, and refuses code from files with other paths or times
    here = Path(__file__).absolute().parent
    package = here.parents[1]
    python = f"{sys.implementation.cache_tag} {platform.python_version()} {sys.flags.optimize}"
    versions = f"{python} {version('numba')} {version('numpy')}"
    key = hashlib.sha256(f"{versions} {_processor()}".encode())
    imported = ("randomness.py", "models/losses.py", "models/kernels.py", "trainers/dual.py")
    for file in [*sorted(here.rglob("*.py")), *(package / name for name in imported)]:
        key.update(f"{file}\0{file.stat().st_mtime_ns}\0".encode() + file.read_bytes())
    return key.hexdigest()[:16]


def _processor() -> str:
    """Return a description of the processor and of Numba's settings for it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = [platform.processor()]
    kind = {line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))}
    options = [os.environ.get(f"NUMBA_CPU_{name}", "") for name in ("NAME", "FEATURES")]
    return "\n".join([*sorted(kind or lines), *options])


def unit_folder(unit: str) -> Path:
    return code_folder() / unit / CODE


def is_compiled(unit: str) -> bool:
    """Return whether the unit has intact code on disk."""
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
    """Show a message and compile the units that have no code yet, if any. Raise a RunError if this fails."""
    if COMPILES in os.environ:
        return
    if missing := sorted(unit for unit in units if not is_compiled(unit)):
        say("compiling for these settings (about 15 seconds; needed only once on this computer)")
    with contextlib.ExitStack() as locks:
        for unit in missing:
            locks.enter_context(locked(unit_folder(unit).parent, wait=True))
        if missing := [unit for unit in missing if not is_compiled(unit)]:
            _compile(missing)


def _compile(units: Sequence[str]) -> None:
    """Compile units in one separate process, so that functions that units share are compiled once."""
    for unit in units:
        shutil.rmtree(unit_folder(unit), ignore_errors=True)
        unit_folder(unit).mkdir()
    paths = os.pathsep.join(map(os.path.abspath, sys.path))
    optimize = str(sys.flags.optimize)  # a flag of this process may have set it
    with subprocess.Popen(
        [sys.executable, "-m", "nsvm_cli.engines.numba.compiler", *units],
        env={**os.environ, COMPILES: str(code_folder()), "PYTHONPATH": paths, "PYTHONOPTIMIZE": optimize},
        cwd=unit_folder(units[0]),  # nothing can be imported from there
        stdin=subprocess.PIPE,  # the process ends when this pipe closes
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C interrupts this process only
    ) as process:  # the process ends with the context
        errors = process.stderr.read() if process.stderr else ""
    if process.returncode:
        last = (errors.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        raise RunError(f"the steps of {', '.join(units)} cannot be compiled: {last}; use engine=torch")
    for unit in units:
        folder = unit_folder(unit)
        write_atomically(folder.parent / CHECKSUM, _checksum(folder).encode())
