"""Model files that multiply sizes: what they make of the memory, whether they are refused or used."""

from __future__ import annotations

import os
import re
import subprocess
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
    nsvm("predict", "pairs.safetensors", "some.csv", "--output", "out.csv", cwd=folder, code=0)
    assert len((folder / "out.csv").read_text().splitlines()) == 301
    assert kib("VmHWM") - before < 200_000


MEASURE = """\
import os, sys
number = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(number, 0)
print(f"peak {usage.ru_maxrss}")
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""Starts a process and prints its peak. That of a process begins with what the one that starts it takes."""


@pytest.mark.thorough
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_model_file_stays_within_bounds(name: str, folder: Path) -> None:
    """In a process of its own, imports included."""
    file = folder / f"{name}.safetensors"
    HOSTILE[name].write(file)
    words = [sys.executable, "-m", "nsvm_cli", *HOSTILE[name].command(file)]
    env = {**os.environ, "PYTHONPATH": str(Path(nsvm_cli.__file__).parents[1])}
    command = [sys.executable, "-c", MEASURE, *words]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    peak = int(done.stdout.rpartition("peak ")[2])
    print(f"{name}: {file.stat().st_size} bytes, {peak} KiB")
    assert done.returncode in (0, 2), done.stderr
    assert "Traceback" not in done.stderr
    assert peak < MOST_KIB
    file.unlink()
