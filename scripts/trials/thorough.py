"""The tests that the gate leaves out."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

ROOT = Path(__file__).parents[2]


def thorough(folder: Path, arguments: Namespace) -> list[str]:
    """Run what is marked as thorough; all of it must pass."""
    return [passed(folder, "-m", "thorough")]


def passed(folder: Path, *selection: str, **environment: str) -> str:
    """Return the last line of pytest, all of whose selected tests must pass."""
    command = [sys.executable, "-m", "pytest", *selection, "-n", "2", "--basetemp", str(folder / "pytest")]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout.splitlines()[-1]
