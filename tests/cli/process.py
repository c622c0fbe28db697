"""Helpers that run ``nsvm`` in the test's process, because starting Python and importing torch takes seconds.

Tests of signals and kills start a separate process with ``start``.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO
from unittest import mock

import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig

from nsvm_cli import plugins
from nsvm_cli.cli import ENDING, main
from nsvm_cli.config.registry import Registry
from nsvm_cli.datasets.augmentation import AUGMENTATIONS
from nsvm_cli.metrics import METRICS
from nsvm_cli.models.objectives import KERNEL_OBJECTIVES
from nsvm_cli.models.optimizers import SCHEDULES
from nsvm_cli.runs.checkpoint import CheckpointManager
from nsvm_cli.runs.loop import Record
from nsvm_cli.trainers import State
from nsvm_cli.trainers.alg1 import MAINTENANCE
from tests.patience import PATIENCE

NSVM = [sys.executable, "-m", "nsvm_cli"]
FUNCTIONS: list[dict[str, Any]] = [AUGMENTATIONS, KERNEL_OBJECTIVES, MAINTENANCE, METRICS, SCHEDULES]


def nsvm(
    *arguments: str | Path, cwd: Path, env: dict[str, str] | None = None, code: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``nsvm`` in a folder, without a terminal, and check the exit code if ``code`` is given."""
    out, errors = io.StringIO(), io.StringIO()
    ended_with = exit_code(*arguments, cwd=cwd, env=env, out=out, errors=errors)
    assert code in (None, ended_with), errors.getvalue()
    return subprocess.CompletedProcess(arguments, ended_with, out.getvalue(), errors.getvalue())


def exit_code(
    *arguments: str | Path, cwd: Path, env: dict[str, str] | None = None, out: TextIO, errors: TextIO
) -> int:
    """Run ``nsvm`` with the given output streams, and return its exit code."""
    with (
        as_if_started(cwd, env or {}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
        pytest.raises(SystemExit) as exit,
    ):
        main([str(argument) for argument in arguments])
    code = exit.value.code or 0
    assert isinstance(code, int)
    return code


def start(*arguments: str | Path, cwd: Path, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """Start ``nsvm`` in a folder as a separate process."""
    words, pipe = [*NSVM, *map(str, arguments)], subprocess.PIPE
    environment = {**os.environ, **environment_of(cwd), **(env or {})}
    return subprocess.Popen(words, cwd=cwd, env=environment, text=True, stdout=pipe, stderr=pipe)


class Killed(BaseException):
    """An exception that no command catches."""


def killed(*overrides: str, step: int, cwd: Path) -> None:
    """Train until the record of a step, and leave the run directory as SIGKILL would."""
    on_log = CheckpointManager.on_log

    def last_words(recorder: CheckpointManager, state: State, record: Record) -> None:
        on_log(recorder, state, record)
        if state.t >= step:
            raise Killed

    with mock.patch.object(CheckpointManager, "on_log", last_words), pytest.raises(Killed):
        nsvm("train", *overrides, cwd=cwd)


@contextlib.contextmanager
def signalled(signum: int) -> Iterator[None]:
    """Context manager: send a signal after the first record of a run, and wait until the run has noted it."""
    on_log, first = CheckpointManager.on_log, iter([True])

    def send(recorder: CheckpointManager, state: State, record: Record) -> None:
        on_log(recorder, state, record)
        if next(first, False):
            os.kill(os.getpid(), signum)
            while recorder.signals.noted is None:
                time.sleep(0.001)

    with mock.patch.object(CheckpointManager, "on_log", send):
        yield


def wait_for(there: Callable[[], bool], run: subprocess.Popen[str]) -> None:
    """Wait until ``there`` returns True. Fail if the process ends before that, or takes too long."""
    deadline = time.monotonic() + PATIENCE
    while not there():
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def environment_of(cwd: Path) -> dict[str, str]:
    """Return the environment of a command in a folder: one thread, a separate cache and 80 columns."""
    return {"OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(cwd / "cache"), "COLUMNS": "80"}


@contextlib.contextmanager
def as_if_started(cwd: Path, env: dict[str, str]) -> Iterator[None]:
    """Context manager: set the folder and the environment, and undo what a command changes in the process."""
    with contextlib.ExitStack() as after:
        after.enter_context(contextlib.chdir(cwd))
        after.enter_context(mock.patch.dict(os.environ, {**environment_of(cwd), **env}))
        # Hydra would first compose the whole configuration for hydra.mode alone, which no test sets
        after.enter_context(mock.patch("hydra._internal.hydra.Hydra.get_mode", return_value=None))
        for registry in (*Registry.kinds.values(), *FUNCTIONS):
            after.enter_context(mock.patch.dict(registry))
        after.enter_context(mock.patch.object(plugins, "_roots", set()))
        after.enter_context(mock.patch.object(plugins, "_sources", {}))
        after.enter_context(mock.patch.object(sys, "argv", [*sys.argv]))
        after.enter_context(mock.patch.object(sys, "path", [*sys.path]))
        after.callback(_forget_modules_of, cwd)
        for signum in (signal.SIGINT, signal.SIGUSR1, *ENDING):
            after.callback(signal.signal, signum, signal.getsignal(signum))
        after.callback(torch.set_num_threads, torch.get_num_threads())
        root = logging.getLogger()
        after.enter_context(mock.patch.object(root, "handlers", [*root.handlers]))
        after.callback(root.setLevel, root.level)
        after.callback(_forget_hydra)
        yield


def _forget_modules_of(folder: Path) -> None:
    """Remove the plugins in a folder from ``sys.modules``."""
    for name, module in [*sys.modules.items()]:
        if (getattr(module, "__file__", None) or "").startswith(f"{folder}/"):
            del sys.modules[name]


def _forget_hydra() -> None:
    GlobalHydra.instance().clear()
    HydraConfig.instance().cfg = None


def trained(*overrides: str, cwd: Path, env: dict[str, str] | None = None) -> tuple[Path, dict[str, Any]]:
    """Train with ``nsvm train``, and return the run directory and the result."""
    run = cwd / "run"
    nsvm("train", *overrides, f"hydra.run.dir='{run}'", cwd=cwd, env=env, code=0)
    return run, json.loads((run / "result.json").read_text())


def evaluated(path: Path, *overrides: str, cwd: Path, env: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the figures that ``nsvm evaluate --json`` prints."""
    done = nsvm("evaluate", path, *overrides, "--json", cwd=cwd, env=env, code=0)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def refusal(*arguments: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Check that a command refuses bad input in one line and writes no run, and return the line."""
    runs = run_files(cwd)
    done = nsvm(*arguments, cwd=cwd, env=env, code=2)
    assert done.stdout == ""
    assert done.stderr.startswith("nsvm: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert run_files(cwd) == runs
    return done.stderr.removeprefix("nsvm: ").strip()


def run_files(folder: Path) -> dict[Path, int]:
    """Return the modification times of all settings and results below a folder."""
    files = [file for name in ("config.yaml", "result.json") for file in folder.rglob(name)]
    return {file: file.stat().st_mtime_ns for file in files}
