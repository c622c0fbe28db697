"""Break the package one way at a time, and check that the tests notice.

usage: scripts/mutants [--jobs N] [FILE ...]    (such as trainers/alg1.py; by default all)

Each mutant is made in a copy of the checkout, where the tests of its file are run first, and the others
only if those pass. Prints a line a mutant, with the test that failed; exits with 1 if one survives.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mutation.mutants import FIRST, MUTANTS, REST

ROOT = Path(__file__).resolve().parents[2]
USAGE = (__doc__ or "").split("usage: ")[1].split("\n\n")[0]
COPIED = ("nsvm_cli", "tests", "conf", "docs", "pyproject.toml")
# without the checks of shapes, which take most of the time of long training
OPTIONS = "addopts=-p no:hypothesispytest -p no:cacheprovider -m 'not thorough'"
PYTEST = [sys.executable, "-m", "pytest", "-x", "-q", "-o", OPTIONS]
SECONDS = 900
"""A mutant that takes longer than this is in an endless loop."""


@dataclass(frozen=True)
class Mutant:
    """``old`` is what stands in a file below nsvm_cli/, ``new`` what takes its place."""

    file: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.file}: {self.old.strip()!r} -> {self.new.strip()!r}"

    def make(self, copy: Path) -> None:
        """Break a copy of the checkout."""
        path = copy / "nsvm_cli" / self.file
        text = path.read_text()
        if self.old not in text:
            raise SystemExit(f"{self.file} no longer holds {self.old!r}: see tests/test_mutants.py")
        path.write_text(text.replace(self.old, self.new, 1))


def noticed(tests: Sequence[str], mutant: Mutant | None = None) -> str | None:
    """Return which test fails in a copy with a mutant, or None where all pass."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in COPIED:
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, copy / name)
        if mutant:
            mutant.make(copy)
        environment = {**os.environ, "PYTHONPATH": folder, "OMP_NUM_THREADS": "1"}
        environment.setdefault("NSVM_TEST_DATA", str(ROOT.parent / "shared" / "data"))
        try:
            done = subprocess.run(
                [*PYTEST, *tests], cwd=copy, env=environment, capture_output=True, text=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            return f"no end after {SECONDS} seconds"
    if done.returncode == 0:
        return None
    found = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - |$)", done.stdout, re.MULTILINE)
    return found[1] if found else done.stdout[-300:] + done.stderr[-300:]


def caught_by(mutant: Mutant) -> str | None:
    """Return the test that notices a mutant, if there is one."""
    if by := noticed(FIRST[mutant.file], mutant):
        return by
    by = noticed(REST, mutant)
    return by and f"{by} (not among the first)"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(usage=USAGE)
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"of {', '.join(MUTANTS)}")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants at a time")
    arguments = parser.parse_args()
    if unknown := {*arguments.files} - {*MUTANTS}:
        parser.error(f"no mutants of {', '.join(unknown)}")
    files = arguments.files or [*MUTANTS]
    began = time.monotonic()
    mutants = [Mutant(file, old, new) for file in files for old, new in MUTANTS[file]]
    survivors = 0
    with ThreadPoolExecutor(arguments.jobs) as threads:
        unbroken = threads.submit(noticed, [*REST, *{test for file in files for test in FIRST[file]}])
        for mutant, by in zip(mutants, threads.map(caught_by, mutants), strict=True):
            survivors += by is None
            print(f"{'caught  ' if by else 'SURVIVES'}  {mutant}{f'  by {by}' if by else ''}", flush=True)
    if failed := unbroken.result():
        raise SystemExit(f"{failed} fails without a mutant, so that nothing of this counts")
    minutes = (time.monotonic() - began) / 60
    print(f"{len(mutants) - survivors} of {len(mutants)} mutants caught, in {minutes:.1f} minutes")
    sys.exit(survivors > 0)


if __name__ == "__main__":
    main()
