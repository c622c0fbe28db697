"""The tests that the gate leaves out, and runs that pause, which must not change a bit of the model."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path

from safetensors.torch import load_file

from trials.runs import start

PROCESSORS = {"haswell": "avx2", "skylake-avx512": "avx512vl", "sapphirerapids": "avx512_fp16"}
"""Other processors for which Numba can compile, and the flag of processors that can run this code."""

SLOWED = 6
LOG_EVERY = (37, 1_000_000)
RUN = ["dataset=ringnorm", "algorithm=alg1", "engine=numba", "threads=1", "curves=false"]

ROOT = Path(__file__).parents[2]


def thorough(folder: Path, arguments: Namespace) -> list[str]:
    """Run the tests that are marked as thorough."""
    return [passed(folder, "-m", "thorough")]


def passed(folder: Path, *selection: str, **environment: str) -> str:
    """Run the selected tests, all of which must pass, and return the last line of pytest."""
    command = [sys.executable, "-m", "pytest", *selection, "-n", "2", "--basetemp", str(folder / "pytest")]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout.splitlines()[-1]


def pauses(folder: Path, arguments: Namespace) -> list[str]:
    """Run the tests of pauses with newly compiled code for each processor, and slow down a run."""
    facts = Path("/proc/cpuinfo").read_text()
    (own,) = {line.partition(": ")[2] for line in facts.splitlines() if line.startswith("model name")}
    lines = []
    for name in (None, *(name for name, flag in PROCESSORS.items() if flag in facts.split())):
        # unless its features are reset, Numba uses the features of this processor
        imitated = {} if name is None else {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": ""}
        tests = "test_no_pause" if name is None else "test_no_pause and numba"
        selection = ["tests/engines/test_contract.py", "-k", tests, "-m", "thorough or not thorough"]
        done = passed(folder, *selection, XDG_CACHE_HOME=str(folder / str(name)), **imitated)
        lines.append(f"{own} as {name or 'it is'}: {done.strip('= ')}")
    return [*lines, _slowed(folder)]


def _slowed(folder: Path) -> str:
    """Stop and continue runs at random, which moves their pauses, and check that all models are equal."""
    rng, stops, models = random.Random(0), 0, []
    for n, log_every in enumerate((*LOG_EVERY, *SLOWED * LOG_EVERY[:1])):
        run = start([*RUN, f"log_every={log_every}", f"hydra.run.dir=run{n}"], folder)
        while n >= len(LOG_EVERY) and run.poll() is None:
            time.sleep(rng.uniform(0, 0.3))
            run.send_signal(signal.SIGSTOP)
            time.sleep(rng.uniform(0, 0.3))
            run.send_signal(signal.SIGCONT)
            stops += 1
        _, errors = run.communicate(timeout=600)
        if run.returncode != 0:
            raise SystemExit(errors)
        models.append(
            {name: t.tolist() for name, t in load_file(folder / f"run{n}/final.safetensors").items()}
        )
    if any(model != models[0] for model in models):
        raise SystemExit(f"{RUN}: runs that are slowed down, or log elsewhere, have other models")
    return (
        f"{' '.join(RUN)}: one model with log_every {LOG_EVERY}, and in {SLOWED} runs stopped {stops} times"
    )
