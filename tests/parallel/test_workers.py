"""Worker processes: their results and errors, and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nsvm_cli.errors import RunError
from nsvm_cli.parallel.workers import Workers
from tests.patience import PATIENCE

SLEEPER = """
import sys, time
from nsvm_cli.parallel.workers import Workers
from tests.parallel.test_workers import report_and_sleep

if __name__ == "__main__":
    with Workers(2) as workers:
        workers.submit(report_and_sleep, sys.argv[1]).result()
"""


def report_and_sleep(file: str) -> None:
    Path(file).write_text(str(os.getpid()))
    time.sleep(2 * PATIENCE)


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def until(condition: Callable[[], object]) -> bool:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_they_end_with_the_process_that_started_them(how: signal.Signals, tmp_path: Path) -> None:
    script, file = tmp_path / "script.py", tmp_path / "pid"
    script.write_text(SLEEPER)
    root = Path(__file__).parents[2]
    words = [sys.executable, str(script), str(file)]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE) as process:
        assert until(lambda: file.exists() and file.read_text())
        process.send_signal(how)
        assert until(lambda: not alive(int(file.read_text())))
        process.communicate(timeout=PATIENCE)


def test_what_they_raise_arrives_and_a_dead_one_is_said() -> None:
    with Workers(1) as workers:
        assert workers.submit(pow, 2, 10).result() == 1024
        with pytest.raises(ZeroDivisionError):
            workers.submit(divmod, 1, 0).result()
    with pytest.raises(RunError, match="a worker process died"), Workers(1) as workers:
        workers.submit(os._exit, 3).result()
