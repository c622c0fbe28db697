"""Real runs that are killed or interrupted, and resumed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections import Counter
from pathlib import Path

ALGORITHMS = ["pegasos", "alg1", "alg2", "alg3", "alg4"]
NSVM = [sys.executable, "-m", "nsvm_cli"]
# each is interrupted some seconds after its start, most of which are spent on imports
RUNS = {
    "pegasos": ["algorithm.steps=400000", "network=mlp", "algorithm.lam=1e-3"],
    "alg1": ["algorithm.steps=60000"],
    "alg2": ["algorithm.steps=40000"],
    "alg3": ["algorithm.steps=3000"],
    "alg4": ["algorithm.steps=4000", "algorithm.solver_steps=400000"],
}
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU)
VARIANTS = ["checkpoint.every=0.05s", "checkpoint.every=17", "checkpoint.every=0.3s"]


def command(algorithm: str, seed: int) -> list[str]:
    """Return the words of a run that takes some seconds on generated data."""
    every = VARIANTS[seed % len(VARIANTS)]
    if every.endswith("17") and algorithm != "alg3":  # of the others, 17 steps take less than a millisecond
        every += "00"
    extra = ["dataset.validation=100", "validation.every=1000"] if seed % 2 else []
    return [f"algorithm={algorithm}", *RUNS[algorithm], f"seed={seed}", every, *extra, "curves=false"]


def start(words: list[str], folder: Path) -> subprocess.Popen[str]:
    """Start ``nsvm train`` in a folder."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*NSVM, "train", *words],
        cwd=folder,
        env=environment,
        text=True,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def finished(words: list[str], folder: Path) -> None:
    """Run ``nsvm train`` to its end."""
    run = start(words, folder)
    _, errors = run.communicate(timeout=600)
    if run.returncode != 0:
        raise SystemExit(f"{words} ended with {run.returncode}: {errors}")


def bits(run: Path) -> dict[str, object]:
    """Return what a run has written, except its time, how often it was resumed, and with which words."""
    result = json.loads((run / "result.json").read_text())
    for key in ("train_seconds", "resumed", "date"):
        del result[key]
    apart = {"result.json", "status.json", "times.jsonl", "last.safetensors"}
    names = sorted({path.name for path in run.iterdir()} - apart)
    return {"result": result, **{name: (run / name).read_bytes() for name in names}}


def lines_are_whole(run: Path) -> None:
    """Check that no line of the metrics is torn or written twice, whatever has just happened."""
    if not (run / "metrics.jsonl").exists():
        return
    text = (run / "metrics.jsonl").read_text()
    if text and not text.endswith("\n"):
        raise SystemExit(f"{run}: torn line {text.splitlines()[-1]!r}")
    steps = [json.loads(line)["step"] for line in text.splitlines()]
    if steps != sorted(set(steps)):
        raise SystemExit(f"{run}: doubled lines")


def kills(folder: Path, arguments: Namespace) -> list[str]:
    """Kill at random moments, over at least 60 runs; each must end with the bits of an undisturbed twin."""
    rng = random.Random(0)
    killed: Counter[str] = Counter()
    runs, in_training, without_run = 0, 0, 0
    while killed.total() < arguments.kills or runs < 60:
        algorithm, seed = ALGORITHMS[runs % len(ALGORITHMS)], runs
        words = command(algorithm, seed)
        began = time.monotonic()
        finished([*words, "hydra.run.dir=twin"], folder)
        takes = time.monotonic() - began
        quota = max(1, round(arguments.kills / 60))
        while True:
            exists = (folder / "run" / "config.yaml").exists()
            run = start([*words, "resume=run"] if exists else [*words, "hydra.run.dir=run"], folder)
            if quota == 0:
                _, errors = run.communicate(timeout=600)
                if run.returncode != 0:
                    raise SystemExit(f"{words}: could not be resumed: {errors}")
                break
            try:
                run.communicate(timeout=rng.uniform(0.3, max(2.5, 0.8 * takes)))
                if run.returncode != 0:
                    raise SystemExit(f"{words}: could not be resumed")
                break
            except subprocess.TimeoutExpired:
                run.send_signal(signal.SIGKILL)
                run.communicate()
                quota -= 1
                killed[algorithm] += 1
                in_training += (folder / "run" / "last.safetensors").exists()
                without_run += not (folder / "run").exists()
                lines_are_whole(folder / "run")
        ours, theirs = bits(folder / "run"), bits(folder / "twin")
        if ours != theirs:
            raise SystemExit(
                f"{words}: {[key for key in theirs if ours.get(key) != theirs[key]]} differ from its twin's"
            )
        shutil.rmtree(folder / "run")
        shutil.rmtree(folder / "twin")
        runs += 1
    each = ", ".join(f"{algorithm} {number}" for algorithm, number in sorted(killed.items()))
    return [
        f"{killed.total()} SIGKILLs over {runs} runs ({each}), {in_training} of them with a checkpoint there "
        f"already, {without_run} before there was a run directory",
        "no run lost; every model, metrics file and result has the bits of its uninterrupted twin; no torn, "
        "doubled or missing line",
    ]


def signals(folder: Path, arguments: Namespace) -> list[str]:
    """Signal at random moments of training: a checkpoint soon, and in the end the twin's bits.

    Before each signal that ends a run, it gets a SIGUSR1, which it survives.
    """
    rng = random.Random(1)
    waits: list[float] = []
    number = requested = done = 0
    while len(waits) < arguments.signals:
        algorithm = ALGORITHMS[number % len(ALGORITHMS)]
        words = command(algorithm, number)
        words = [word for word in words if not word.startswith("checkpoint.")] + ["checkpoint.every=1h"]
        finished([*words, "hydra.run.dir=twin"], folder)
        shutil.rmtree(folder / "run", ignore_errors=True)
        for _ in range(2):
            signum = ENDING[len(waits) % len(ENDING)]
            there = (folder / "run").exists()
            run = start([*words, "resume=run"] if there else [*words, "hydra.run.dir=run"], folder)
            before = (folder / "run" / "metrics.jsonl").stat().st_mtime_ns if there else 0
            while run.poll() is None and (
                not (folder / "run" / "metrics.jsonl").exists()
                or (folder / "run" / "metrics.jsonl").stat().st_mtime_ns == before
            ):
                time.sleep(0.01)
            run.send_signal(signal.SIGUSR1)
            time.sleep(rng.uniform(0, 0.5))
            if run.poll() is not None:
                _, errors = run.communicate()
                if run.returncode != 0:
                    raise SystemExit(f"{words}: SIGUSR1 ended it with {run.returncode}: {errors}")
                break
            sent = time.monotonic()
            run.send_signal(signum)
            _, errors = run.communicate(timeout=120)
            if run.returncode == 0:  # it was just done
                done += 1
                if done > 10 + len(waits):
                    raise SystemExit(f"{words}: runs end before {signum.name}, or in spite of it")
                break
            waits.append(time.monotonic() - sent)
            requested += "checkpoint after step" in errors
            if run.returncode != 128 + signum or "Traceback" in errors:
                raise SystemExit(f"{words}: exit code {run.returncode}, {errors}")
            lines_are_whole(folder / "run")
        if not (folder / "run" / "result.json").exists():
            finished([*words, "resume=run"], folder)
        if bits(folder / "run") != bits(folder / "twin"):
            raise SystemExit(f"{words}: differs from its twin")
        shutil.rmtree(folder / "twin")
        number += 1
    names = ", ".join(signum.name for signum in ENDING)
    return [
        f"{len(waits)} signals, {names} in turn, in {number} runs, each shortly after a SIGUSR1, which the "
        f"run survived ({requested} times with its checkpoint reported): exit code 128 plus the signal's "
        f"number, the process gone after {sorted(waits)[len(waits) // 2]:.2f} s (median; longest "
        f"{max(waits):.2f} s), "
        "every run resumed to its twin's bits",
    ]
