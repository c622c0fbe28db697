"""Model files that multiply sizes: what they make of the memory, whether they are refused or used."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

import nsvm_cli
from tests.cli.hostile_models import HOSTILE, make_samples
from tests.cli.process import nsvm

MOST_KIB = 500_000
"""The peak of a process, two thirds of which torch, pandas and scikit-learn take by being imported."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    make_samples(folder)
    return folder


def kib(name: str) -> int:
    found = re.search(rf"{name}:\s*([0-9]+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


def test_pairs_of_classes_count_before_they_are_computed(folder: Path) -> None:
    """The worst of them, in this process: 400 classes in pairs, 300 samples."""
    HOSTILE["pairs_400"].write(folder / "pairs.safetensors")
    Path("/proc/self/clear_refs").write_text("5")
    before = kib("VmRSS")
    done = nsvm("predict", "pairs.safetensors", "some.csv", "--output", "out.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert len((folder / "out.csv").read_text().splitlines()) == 301
    assert kib("VmHWM") - before < 200_000


@pytest.mark.thorough
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_model_file_stays_within_bounds(name: str, folder: Path) -> None:
    """In a process of its own, imports included."""
    file = folder / f"{name}.safetensors"
    HOSTILE[name].write(file)
    words = [sys.executable, "-m", "nsvm_cli", *HOSTILE[name].command(file)]
    root = str(Path(nsvm_cli.__file__).parents[1])
    said = folder / f"{name}.txt"
    child = os.posix_spawn(
        "/bin/sh",
        ["sh", "-c", 'cd "$0" && exec "$@" > "$LOG" 2>&1', str(folder), *words],
        {**os.environ, "PYTHONPATH": root, "LOG": str(said)},
    )
    _, status, usage = os.wait4(child, 0)
    print(f"{name}: {file.stat().st_size} bytes, {usage.ru_maxrss} KiB")
    assert os.waitstatus_to_exitcode(status) in (0, 2), said.read_text()
    assert "Traceback" not in said.read_text()
    assert usage.ru_maxrss < MOST_KIB, said.read_text()
    file.unlink()
