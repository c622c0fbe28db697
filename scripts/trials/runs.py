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
# the runs are interrupted some seconds after their start, and imports take most of this time
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
    """Return the overrides of a run that takes some seconds on generated data."""
    every = VARIANTS[seed % len(VARIANTS)]
    if every.endswith("17") and algorithm != "alg3":  # 17 steps of the others take less than a millisecond
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
    """Return what a run has written, except times, checkpoints, and how and how often it was resumed."""
    result = json.loads((run / "result.json").read_text())
    for key in ("train_seconds", "resumed", "date"):
        del result[key]
    apart = {"result.json", "status.json", "times.jsonl"}
    apart |= {file.name for file in run.glob("step-*")}
    names = sorted({path.name for path in run.iterdir()} - apart)
    return {"result": result, **{name: (run / name).read_bytes() for name in names}}


def lines_are_whole(run: Path) -> None:
    """Check that no line of the metrics is truncated or written twice."""
    if not (run / "metrics.jsonl").exists():
        return
    text = (run / "metrics.jsonl").read_text()
    if text and not text.endswith("\n"):
        raise SystemExit(f"{run}: torn line {text.splitlines()[-1]!r}")
    steps = [json.loads(line)["step"] for line in text.splitlines()]
    if steps != sorted(set(steps)):
        raise SystemExit(f"{run}: doubled lines")


def begun(words: list[str], folder: Path) -> subprocess.Popen[str]:
    """Start the run in the directory ``run``, or resume it if the directory contains a configuration."""
    there = (folder / "run" / "config.yaml").exists()
    return start([*words, "resume=run" if there else "hydra.run.dir=run"], folder)


def compared(words: list[str], folder: Path) -> None:
    """Check that a run ended with the same bits as its uninterrupted twin, and delete both."""
    ours, theirs = bits(folder / "run"), bits(folder / "twin")
    if ours != theirs:
        differing = [key for key in theirs if ours.get(key) != theirs[key]]
        raise SystemExit(f"{words}: {differing} differ from its twin's")
    shutil.rmtree(folder / "run")
    shutil.rmtree(folder / "twin")


def kills(folder: Path, arguments: Namespace) -> list[str]:
    """Kill runs at random moments and resume them; each must end with the bits of an uninterrupted twin."""
    rng = random.Random(0)
    killed: Counter[str] = Counter()
    runs = in_training = without_run = 0
    while killed.total() < arguments.kills or runs < 60:
        algorithm = ALGORITHMS[runs % len(ALGORITHMS)]
        words = command(algorithm, runs)
        began = time.monotonic()
        finished([*words, "hydra.run.dir=twin"], folder)
        longest = max(2.5, 0.8 * (time.monotonic() - began))
        left = max(1, round(arguments.kills / 60))
        while True:
            run = begun(words, folder)
            try:
                _, errors = run.communicate(timeout=rng.uniform(0.3, longest) if left else 600)
                if run.returncode != 0:
                    raise SystemExit(f"{words}: could not be resumed: {errors}")
                break
            except subprocess.TimeoutExpired:
                run.send_signal(signal.SIGKILL)
                run.communicate()
                left -= 1
                killed[algorithm] += 1
                in_training += any((folder / "run").glob("step-*"))
                without_run += not (folder / "run").exists()
                lines_are_whole(folder / "run")
        compared(words, folder)
        runs += 1
    each = ", ".join(f"{algorithm} {number}" for algorithm, number in sorted(killed.items()))
    return [
        f"{killed.total()} SIGKILLs over {runs} runs ({each}), {in_training} of them with a checkpoint there "
        f"already, {without_run} before there was a run directory",
        "no run lost; every model, metrics file and result has the bits of its uninterrupted twin; no torn, "
        "doubled or missing line",
    ]


def signals(folder: Path, arguments: Namespace) -> list[str]:
    """Interrupt runs by signals during training, and resume them; each must end with the bits of its twin.

    Before the signal that ends a run, the run receives a SIGUSR1, which must not end it.
    """
    rng = random.Random(1)
    waits: list[float] = []
    runs = requested = 0
    while len(waits) < arguments.signals and runs < 10 + 2 * arguments.signals:
        words = command(ALGORITHMS[runs % len(ALGORITHMS)], runs)
        words = [word for word in words if not word.startswith("checkpoint.")] + ["checkpoint.every=1h"]
        finished([*words, "hydra.run.dir=twin"], folder)
        run, metrics = begun(words, folder), folder / "run" / "metrics.jsonl"
        while run.poll() is None and not metrics.exists():
            time.sleep(0.01)
        run.send_signal(signal.SIGUSR1)
        time.sleep(rng.uniform(0, 0.5))
        signum, sent = ENDING[len(waits) % len(ENDING)], time.monotonic()
        run.send_signal(signum)
        _, errors = run.communicate(timeout=120)
        if run.returncode != 0:  # otherwise the run ended before the signal
            waits.append(time.monotonic() - sent)
            requested += "checkpoint after step" in errors
            if run.returncode != 128 + signum or "Traceback" in errors:
                raise SystemExit(f"{words}: exit code {run.returncode}, {errors}")
            lines_are_whole(folder / "run")
            finished([*words, "resume=run"], folder)
        compared(words, folder)
        runs += 1
    if len(waits) < arguments.signals:
        raise SystemExit(f"only {len(waits)} of {runs} runs were still there when the signal came")
    median, names = sorted(waits)[len(waits) // 2], ", ".join(signum.name for signum in ENDING)
    return [
        f"{len(waits)} signals, {names} in turn, each after a SIGUSR1, which the run survived ({requested} "
        "times with its checkpoint reported): exit code 128 plus the signal's number after "
        f"{median:.2f} s (median; longest {max(waits):.2f} s), resumed to its twin's bits",
    ]
