"""Where machine code is kept between processes, and what is there. Nothing here needs Numba.

Numba's files hold pickles. None is opened unless it is in a folder that only this user can write to, and has
the checksum that the manifest of the folder names. Otherwise everything is compiled anew.
"""

from __future__ import annotations

import contextlib
import fcntl
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
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch
from platformdirs import user_cache_path
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.errors import RunError
from nsvm_cli.storage.files import write_atomically

COMPILES = "NSVM_COMPILES"
"""An environment variable of the process that compiles: the folder that it writes to."""

MANIFEST, CODE, BUILDING = "manifest.json", "code", "building-"
DAY = 24 * 60 * 60

START = """\
import json, sys
sys.path[:] = json.loads(sys.argv.pop())
from nsvm_cli.engines.numba.compiler import main
main()"""
"""What the process that compiles runs: isolated, it imports nothing from the current folder before this."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Manifest:
    """What has been compiled into a folder.

    ``owner`` is the path of this package and that of its environment, ``compiled`` names algorithms with
    their types and processors, and ``files`` has the SHA-256 of each file.
    """

    owner: tuple[str, str]
    compiled: list[str]
    files: dict[str, str]


MARKS = (b"@jit", b"@intrinsic", b"(NamedTuple)", b"njit(")
"""What a file has that is compiled, or whose types compiled functions have."""


@cache
def code_folder() -> Path:
    """Return the folder of the machine code.

    Its name depends on everything that the code is made of: Numba notices a change of the file that a
    function is in, but not of the functions that it calls. It depends on where these files are and when they
    were written too, as Numba does not use the code of other files, even of copies.
    """
    digest = hashlib.sha256()
    here = Path(__file__).absolute().parent
    masks = here.parents[1] / "randomness.py"  # whose ``mixed`` is compiled too
    for file in [*sorted(here.glob("*.py")), masks]:
        source = file.read_bytes()
        if file == masks or any(word in source for word in MARKS):
            digest.update(f"{file}\0{file.stat().st_mtime_ns}\0".encode() + source)
    made_by = f"python{platform.python_version()}-numba{version('numba')}-numpy{version('numpy')}"
    return user_cache_path("nsvm", appauthor=False) / "compiled" / f"{made_by}-{digest.hexdigest()[:16]}"


def cache_folder() -> Path:
    """Return the folder that Numba reads from, and in the process that compiles writes to."""
    return Path(os.environ.get(COMPILES) or code_folder() / CODE)


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


_verified: set[tuple[Path, str]] = set()
"""The folders and names whose code this process has found intact; it looks at the files once."""


def is_compiled(algorithm: str, dtype: str) -> bool:
    """Return whether intact code of an algorithm is there for this type and processor."""
    folder, name = code_folder(), f"{algorithm}-{dtype}-{_processor()}"
    if (folder, name) not in _verified and can_keep_code() and (manifest := _intact_manifest(folder)):
        _verified.update((folder, compiled) for compiled in manifest.compiled)
    return (folder, name) in _verified


def _intact_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a folder that holds exactly the files that it names; None for any other."""
    manifest = _read_manifest(folder)
    try:
        return manifest if manifest and _checksums(folder / CODE) == manifest.files else None
    except OSError:
        return None


def _read_manifest(folder: Path) -> Manifest | None:
    try:
        return Manifest(**json.loads((folder / MANIFEST).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _checksums(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if not path.is_dir())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@cache
def can_keep_code() -> bool:
    """Return whether there is a place for machine code: a folder that nobody else can read or write."""
    folder = code_folder()
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


def compile_once(algorithm: str, dtype: str) -> None:
    """Have the functions of an algorithm compiled for a type, by a process of its own, unless that is done.

    In the process that compiles functions, these call other variants of one another than in those that
    load them, with other last bits. Where there is no place for code, each process has to compile for itself.

    Raises:
        RunError: they cannot be compiled.
    """
    if COMPILES in os.environ or not can_keep_code() or is_compiled(algorithm, dtype):
        return
    folder = code_folder()
    with _locked(folder):
        if is_compiled(algorithm, dtype):  # by another process, meanwhile
            return
        for abandoned in folder.glob(f"{BUILDING}*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        _compile(folder, algorithm, dtype)
    if not is_compiled(algorithm, dtype):
        raise RunError(f"the files of nsvm changed while the steps of {algorithm} were compiled: start again")
    _remove_obsolete(folder)


def _compile(folder: Path, algorithm: str, dtype: str) -> None:
    """Compile beside the code that is there and intact, and then let the result take its place."""
    before = _intact_manifest(folder)
    if before is None:
        shutil.rmtree(folder / CODE, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=BUILDING, dir=folder) as building:
        new = Path(building) / CODE
        if before is None:
            new.mkdir()
        else:  # Numba replaces files and never writes to them: a link is as good as a copy
            shutil.copytree(folder / CODE, new, copy_function=os.link)
        _run_compiler(new, algorithm, dtype)
        files = _checksums(new)
        for name in files:
            (folder / CODE / name).parent.mkdir(parents=True, exist_ok=True)
            (new / name).replace(folder / CODE / name)
    compiled = sorted({*(before.compiled if before else ()), f"{algorithm}-{dtype}-{_processor()}"})
    manifest = Manifest(owner=_owner(), compiled=compiled, files=files)
    write_atomically(folder / MANIFEST, json.dumps(asdict(manifest), indent=0).encode())


def _run_compiler(folder: Path, algorithm: str, dtype: str) -> None:
    here = os.getcwd()
    package = str(Path(__file__).parents[3])
    paths = [package, *(path for path in sys.path if os.path.isabs(path) and path not in (here, package))]
    with _leash() as leash:
        done = subprocess.run(
            [sys.executable, "-I", "-c", START, algorithm, dtype, json.dumps(paths)],
            env={**os.environ, COMPILES: str(folder)},
            cwd=folder,
            stdin=leash,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is for the run
        )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise RunError(f"the steps of {algorithm} cannot be compiled: {last}; engine=torch does without")


@contextlib.contextmanager
def _leash() -> Iterator[int]:
    """Yield the end of a pipe that the other end closes when the context, or this process, ends."""
    reader, writer = os.pipe()
    try:
        yield reader
    finally:
        os.close(reader)
        os.close(writer)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time write to the folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _owner() -> tuple[str, str]:
    return str(Path(__file__).absolute().parent), sys.prefix


def _remove_obsolete(folder: Path) -> None:
    """Remove the code of earlier versions of this package, and of packages and environments that are gone."""
    for other in {*folder.parent.iterdir()} - {folder}:
        with contextlib.suppress(OSError):  # another process may remove it as well
            manifest = _read_manifest(other)
            if manifest is None:  # of a version that wrote none; or another process is about to write it
                in_use = time.time() - other.lstat().st_mtime < DAY
            else:
                in_use = manifest.owner != _owner() and all(map(os.path.exists, manifest.owner))
            if not in_use:
                shutil.rmtree(other)  # which follows no links
