"""The command as a real process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

NSVM = [sys.executable, "-m", "nsvm_cli"]


def nsvm(
    *arguments: str | Path, cwd: Path, env: dict[str, str] | None = None, command: list[str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs ``nsvm`` in a folder, without a terminal and without a network to speak of."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(cwd / "cache"), **(env or {})}
    words = [*(command or NSVM), *map(str, arguments)]
    return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


def trained(*overrides: str, cwd: Path, env: dict[str, str] | None = None) -> tuple[Path, dict[str, Any]]:
    """The run directory and the result of ``nsvm train``."""
    run = cwd / "run"
    done = nsvm("train", *overrides, f"hydra.run.dir='{run}'", cwd=cwd, env=env)
    assert done.returncode == 0, done.stderr
    return run, json.loads((run / "result.json").read_text())


def evaluated(path: Path, *overrides: str, cwd: Path, env: dict[str, str] | None = None) -> dict[str, Any]:
    """What ``nsvm evaluate --json`` says."""
    done = nsvm("evaluate", path, *overrides, "--json", cwd=cwd, env=env)
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def refusal(*arguments: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """The one line that is said about bad input; nothing else is printed, and no run directory is left."""
    done = nsvm(*arguments, cwd=cwd, env=env)
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert done.stdout == ""
    assert done.stderr.startswith("nsvm: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert not list(cwd.rglob("config.yaml"))
    assert not list(cwd.rglob("result.json"))
    return done.stderr.removeprefix("nsvm: ").strip()
