"""Where machine code is kept between processes, and what is there. Nothing here needs Numba.

What is compiled together, and kept in a folder, is a *unit*: the steps of an algorithm for a type of
numbers, a kind of kernel and a kind of network.

Numba's files hold pickles. None is opened unless it is in a folder that only this user can write to, and has
the checksum that the manifest of the unit names. Otherwise everything is compiled anew.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.errors import RunError
from nsvm_cli.storage.files import locked, write_atomically

COMPILES = "NSVM_COMPILES"
"""An environment variable of the process that compiles: the folder that it writes to."""

MANIFEST, CODE, BUILDING = "manifest.json", "code", "building-"
DAY = 24 * 60 * 60

IMITATED = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX")
"""Environment variables with which Numba compiles for another processor than this one."""

COMPILED = (b"@jit", b"@intrinsic", b"(NamedTuple)", b"njit(", b"def stretch")
"""What a file has in it that machine code is made of."""

START = """\
import gc, json, sys
gc.disable()
sys.path[:] = json.loads(sys.argv.pop())
from nsvm_cli.engines.numba.compiler import main
main()"""
"""What the process that compiles runs: isolated, it imports nothing from the current folder before this.

Looking for garbage would take a sixth of its time."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Manifest:
    """What has been compiled into a folder.

    ``owner`` is the path of this package and that of its environment, and ``files`` has the SHA-256 of each
    file.
    """

    owner: tuple[str, str]
    files: dict[str, str]


@cache
def code_folder() -> Path:
    """Return the folder of the machine code: the user's, or one that is removed when this process ends."""
    if can_keep_code():
        return lasting_folder()
    folder = tempfile.mkdtemp(prefix="nsvm-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@cache
def can_keep_code() -> bool:
    """Return whether there is a place for machine code: a folder that nobody else can read or write."""
    folder = lasting_folder()
    try:
        folder.parent.parent.mkdir(parents=True, exist_ok=True)
        for private in (folder.parent, folder):
            private.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077 or folder.is_symlink():
            return False
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@cache
def lasting_folder() -> Path:
    """Return the folder of the machine code in the user's cache.

    Its name depends on everything that the code is made of: Numba notices a change of the file that a
    function is in, but not of the functions that it calls. It depends on where these files are and when they
    were written too, as Numba does not use the code of other files, even of copies.
    """
    digest = hashlib.sha256()
    here = Path(__file__).absolute().parent
    package = here.parents[1]  # outside of this folder, functions and numbers of these are compiled too
    others = [package / "randomness.py", package / "models" / "losses.py"]
    for file in [*sorted(here.rglob("*.py")), *others]:
        source = file.read_bytes()
        if file in others or any(word in source for word in COMPILED):
            digest.update(f"{file}\0{file.stat().st_mtime_ns}\0".encode() + source)
    made_by = f"python{platform.python_version()}-numba{version('numba')}-numpy{version('numpy')}"
    return user_cache_path("nsvm", appauthor=False) / "compiled" / f"{made_by}-{digest.hexdigest()[:16]}"


def _unit_folder(unit: str) -> Path:
    return code_folder() / f"{unit}-{_processor(*map(os.environ.get, IMITATED))}"


def cache_folder(unit: str) -> Path:
    """Return the folder that Numba reads from, and in the process that compiles writes to."""
    return Path(os.environ.get(COMPILES) or _unit_folder(unit) / CODE)


@cache
def _processor(*imitated: str | None) -> str:
    """Return a short name of the kind of processor for which code is compiled; see ``IMITATED``."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = [platform.processor()]
    facts = {line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))}
    return hashlib.sha256("\n".join([*sorted(facts), *map(str, imitated)]).encode()).hexdigest()[:8]


_verified: set[Path] = set()
"""The folders whose code this process has found intact; it looks at the files once."""


def is_compiled(unit: str) -> bool:
    """Return whether intact code of a unit is there for this processor."""
    folder = _unit_folder(unit)
    if folder not in _verified and _is_intact(folder):
        _verified.add(folder)
    return folder in _verified


def _is_intact(folder: Path) -> bool:
    """Return whether a folder holds exactly the files that its manifest names."""
    manifest = _read_manifest(folder)
    try:
        return manifest is not None and _checksums(folder / CODE) == manifest.files
    except OSError:
        return False


def _read_manifest(folder: Path) -> Manifest | None:
    try:
        return Manifest(**json.loads((folder / MANIFEST).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _checksums(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if not path.is_dir())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def compile_once(units: Iterable[str], say: Callable[[str], None] = lambda unit: None) -> None:
    """Have these units compiled, unless that is done, each by a process of its own and on all cores.

    In the process that compiles functions, these call other variants of one another than in those that
    load them, with other last bits.

    Args:
        units: what to compile, see ``coverage.units``.
        say: is told each of them before it is compiled.

    Raises:
        RunError: they cannot be compiled.
    """
    if COMPILES in os.environ:
        return
    left = sorted(unit for unit in {*units} if not is_compiled(unit))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    for first in range(0, len(left), cores):
        with contextlib.ExitStack() as compiling:
            for unit in left[first : first + cores]:
                compiling.enter_context(_compiling(unit, say))
    if left:
        _remove_obsolete(code_folder())


@contextlib.contextmanager
def _compiling(unit: str, say: Callable[[str], None]) -> Iterator[None]:
    """Compile a unit, beside what the context does, unless another process does it meanwhile."""
    folder = _unit_folder(unit)
    with locked(folder, wait=True):
        if is_compiled(unit):
            yield
            return
        for damaged in folder.iterdir():
            shutil.rmtree(damaged) if damaged.is_dir() else damaged.unlink()
        say(unit)
        with tempfile.TemporaryDirectory(prefix=BUILDING, dir=folder) as building, _leash() as leash:
            process = _start_compiler(unit, Path(building), leash)
            yield
            _, errors = process.communicate()
            if process.returncode:
                last = (errors.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
                raise RunError(f"the steps of {unit} cannot be compiled: {last}; engine=torch does without")
            manifest = Manifest(owner=_owner(), files=_checksums(Path(building)))
            shutil.copytree(building, folder / CODE)
        write_atomically(folder / MANIFEST, json.dumps(asdict(manifest), indent=0).encode())
        _verified.add(folder)


def _start_compiler(unit: str, folder: Path, leash: int) -> subprocess.Popen[str]:
    here = os.getcwd()
    package = str(Path(__file__).parents[3])
    paths = [package, *(path for path in sys.path if os.path.isabs(path) and path not in (here, package))]
    return subprocess.Popen(
        [sys.executable, "-I", "-c", START, unit, json.dumps(paths)],
        env={**os.environ, COMPILES: str(folder)},
        cwd=folder,
        stdin=leash,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C is for the run
    )


def expect_loaded(stretch: Any) -> None:
    """Raise a RunError if this process has compiled a stretch that it should have loaded."""
    if stretch.stats.cache_misses and COMPILES not in os.environ:
        raise RunError(
            f"the compiled code in {code_folder()} does not fit these samples: engine=torch does without"
        )


@contextlib.contextmanager
def _leash() -> Iterator[int]:
    """Yield the end of a pipe that the other end closes when the context, or this process, ends."""
    reader, writer = os.pipe()
    try:
        yield reader
    finally:
        os.close(reader)
        os.close(writer)


def _owner() -> tuple[str, str]:
    return str(Path(__file__).absolute().parent), sys.prefix


def _remove_obsolete(folder: Path) -> None:
    """Remove the code of earlier versions of this package, and of packages and environments that are gone."""
    for other in {*folder.parent.iterdir()} - {folder}:
        with contextlib.suppress(OSError):  # another process may remove it as well
            manifests = [manifest for unit in other.iterdir() if (manifest := _read_manifest(unit))]
            manifest = manifests[0] if manifests else None
            if manifest is None:  # of a version that wrote none; or another process is about to write it
                in_use = time.time() - other.lstat().st_mtime < DAY
            else:
                in_use = manifest.owner != _owner() and all(map(os.path.exists, manifest.owner))
            if not in_use:
                shutil.rmtree(other)  # which follows no links
