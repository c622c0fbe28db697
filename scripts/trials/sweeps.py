"""A sweep of 24 jobs on each of Hydra's launchers, one of which fails; killed half-way, and started again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from argparse import Namespace
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import yaml

from trials.runs import finished, start

LAUNCHERS = {
    "basic": [],
    "joblib": ["hydra.launcher.n_jobs=2"],
    "submitit_local": ["hydra.launcher.mem_gb=1"],
    "ray_local": ["hydra.launcher.ray.init.num_cpus=2"],
}
PACKAGES = {
    "joblib": "hydra_joblib_launcher",
    "submitit_local": "hydra_submitit_launcher",
    "ray_local": "hydra_ray_launcher",
}
JOBS = 24
RATES = [
    *(f"{n}e-4" for n in range(10, 10 + JOBS - 1)),
    "1e25",
]  # the last makes a polynomial kernel overflow
WORDS = ["-m", "algorithm=alg3", "algorithm.steps=1500", "dataset.samples=600", "kernel=polynomial"]
WORDS += ["engine=torch", "curves=false", f"optimizer.lr={','.join(RATES)}", "hydra.sweep.dir=sweep"]
PATIENCE = 300
"""Seconds after which a sweep is taken for stuck."""


def sweeps(folder: Path, arguments: Namespace) -> list[str]:
    """Check what is left of each sweep, and that nothing that had finished is computed again."""
    lines = []
    for launcher, words in LAUNCHERS.items():
        if launcher in PACKAGES and not find_spec(f"hydra_plugins.{PACKAGES[launcher]}"):
            lines.append(f"{launcher}: not tried, as {PACKAGES[launcher]} is not installed")
            continue
        (folder / launcher).mkdir()
        lines.append(f"{launcher}: {_sweep(folder / launcher, [f'hydra/launcher={launcher}', *words])}")
    if find_spec("hydra_plugins.hydra_optuna_sweeper"):
        lines.append(f"Optuna's sweeper: {_optimized(folder)}")
    return lines


def _sweep(folder: Path, words: list[str]) -> str:
    began = time.monotonic()
    run = start([*WORDS, *words], folder)
    results = folder / "sweep"
    while len([*results.glob("*/result.json")]) < JOBS // 2:
        if run.poll() is not None or time.monotonic() - began > PATIENCE:
            raise SystemExit(f"{words}: no sweep to kill: {run.communicate()}")
        time.sleep(0.05)
    for process in [*_family(run.pid)][::-1]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    run.communicate()
    before = {file: file.stat().st_mtime_ns for file in results.glob("*/result.json")}
    again = start([*WORDS, *words], folder)
    out, errors = again.communicate(timeout=PATIENCE)
    kept = sum(file.stat().st_mtime_ns == written for file, written in before.items())
    said = f"sweep: {JOBS - 1} finished, 1 failed, 0 interrupted; {len(before)} had finished before"
    if again.returncode != 1 or said not in out or kept != len(before) or "Traceback" in errors:
        raise SystemExit(
            f"{words} ended with {again.returncode}, {kept} of {len(before)} kept: {out}\n{errors}"
        )
    seconds = time.monotonic() - began
    return (
        f"killed with {len(before)} of {JOBS} jobs finished; exit code 1, {said[7:]}; {seconds:.0f} s in all"
    )


def _optimized(folder: Path) -> str:
    words = ["-m", "hydra/sweeper=optuna", "optimized_metric=validation_accuracy", "dataset.validation=100"]
    words += ["hydra.sweeper.direction=maximize", "hydra.sweeper.n_trials=6", "hydra.sweep.dir=optuna"]
    words += [
        "optimizer.lr=tag(log,interval(1e-4,1e-1))",
        "algorithm=alg1",
        "algorithm.steps=500",
        "curves=false",
    ]
    finished(words, folder)
    found = yaml.safe_load((folder / "optuna" / "optimization_results.yaml").read_text())
    results = [json.loads(file.read_text()) for file in (folder / "optuna").glob("*/result.json")]
    best = max(results, key=lambda result: result["validation_accuracy"])
    if found["best_value"] != best["validation_accuracy"] or len(results) != 6:
        raise SystemExit(f"of {len(results)} jobs, {found} is not the best: {best['validation_accuracy']}")
    return f"the best of {len(results)} jobs has validation accuracy {found['best_value']}"


def _family(pid: int) -> Iterator[int]:
    """Yield a process and all that descend from it."""
    yield pid
    with contextlib.suppress(OSError):
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in children.read_text().split():
                yield from _family(int(child))
