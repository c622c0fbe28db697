"""Compiled code that is damaged, killed while it is made, and made by two processes at once."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from nsvm_cli.engines.numba.code import CODE, MANIFEST, _intact_manifest
from trials.runs import NSVM

TRAIN = [*NSVM, "train", "algorithm=alg1", "algorithm.steps=2000", "engine=numba", "curves=false"]
KILLS = 20


def _flip(data: bytes) -> bytes:
    place = random.Random(len(data)).randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "emptied": lambda data: b"",
    "cut in half": lambda data: data[: len(data) // 2],
    "filled with noise": lambda data: random.Random(0).randbytes(len(data)),
    "with one bit flipped": _flip,
    "removed": lambda data: None,
}


def code(folder: Path, arguments: Namespace) -> list[str]:
    """Check that code which is not as it was compiled is never run, and that the bits of a run stay."""
    began = time.monotonic()
    expected = _train(folder / "cache")
    lines = [f"compiled, and trained 2,000 steps, in {time.monotonic() - began:.0f} s"]
    (compiled,) = (folder / "cache" / "nsvm" / "compiled").iterdir()
    if _intact_manifest(compiled) is None:
        raise SystemExit(f"{compiled} is not taken as it was compiled")
    files = sorted(path for path in [*(compiled / CODE).rglob("*"), compiled / MANIFEST] if path.is_file())
    for file in files:
        data = file.read_bytes()
        for name, damage in DAMAGE.items():
            damaged = damage(data)
            file.unlink() if damaged is None else file.write_bytes(damaged)
            if _intact_manifest(compiled) is not None:
                raise SystemExit(f"{file}, {name}, is taken")
            file.write_bytes(data)
    lines.append(f"{len(files)} files, each damaged in {len(DAMAGE)} ways: noticed every time")
    for name, damage in DAMAGE.items():
        file = max(files, key=lambda path: path.stat().st_size)
        damaged = damage(file.read_bytes())
        file.unlink() if damaged is None else file.write_bytes(damaged)
        if _train(folder / "cache") != expected or _intact_manifest(compiled) is None:
            raise SystemExit(f"{name}: the next run has other bits, or leaves the damage")
    lines.append("the largest file damaged in each of these ways: compiled anew, the same bits")
    return [*lines, _kill(folder, expected), _two_at_once(folder, expected)]


def _train(cache: Path) -> bytes:
    """Return the model file of the run with this cache."""
    run = cache.parent / "run"
    shutil.rmtree(run, ignore_errors=True)
    subprocess.run([*TRAIN, f"hydra.run.dir={run}"], env=_environment(cache), check=True, capture_output=True)
    return (run / "final.safetensors").read_bytes()


def _environment(cache: Path) -> dict[str, str]:
    return {**os.environ, "XDG_CACHE_HOME": str(cache)}


def _start(cache: Path, run: Path) -> subprocess.Popen[bytes]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen(
        [*TRAIN, f"hydra.run.dir={run}"], env=_environment(cache), stdout=quiet, stderr=quiet
    )


def _kill(folder: Path, expected: bytes) -> str:
    began = time.monotonic()
    _train(folder / "timed")
    seconds = time.monotonic() - began
    for number in range(KILLS):
        process = _start(folder / "killed", folder / f"killed-{number}")
        time.sleep(seconds * (number + 1) / KILLS)
        process.send_signal(signal.SIGKILL)
        process.wait()
        shutil.rmtree(folder / f"killed-{number}", ignore_errors=True)
        if number % 5 == 4 and _train(folder / "killed") != expected:
            raise SystemExit(f"killed {number + 1} times: the next run has other bits")
        if number % 5 == 4:
            shutil.rmtree(folder / "killed")
    return f"killed at {KILLS} points of {seconds:.0f} s, five times each cache: then a run has the same bits"


def _two_at_once(folder: Path, expected: bytes) -> str:
    runs = [folder / "first", folder / "second"]
    processes = [_start(folder / "shared", run) for run in runs]
    codes = [process.wait() for process in processes]
    if any(codes) or any((run / "final.safetensors").read_bytes() != expected for run in runs):
        raise SystemExit("two processes at once: one fails, or has other bits")
    return "two processes at once with an empty cache: the same bits"
