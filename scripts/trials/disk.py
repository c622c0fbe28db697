"""Runs on full disks."""

from __future__ import annotations

import json
import subprocess
from argparse import Namespace
from pathlib import Path

from nsvm_cli.errors import InputError
from nsvm_cli.runs.checkpoint import load_checkpoint
from nsvm_cli.storage.run_directory import checkpoints_in
from trials.runs import start


def disk(folder: Path, arguments: Namespace) -> list[str]:
    """Train on disks of growing size; a run without enough space must fail cleanly, and resume with more."""
    small = folder / "small"
    small.mkdir()
    words = ["algorithm=alg2", "algorithm.steps=3000", "seed=3", "log_every=10", "checkpoint.every=300"]
    words += [
        "dataset.samples=400",
        "dataset.validation=20",
        "validation.every=500",
        "hydra.run.dir=small/run",
    ]
    sizes = kept = resumed = 0
    for kilobytes in range(4, 4000, 4):
        options = f"size={kilobytes}k,mode=755"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(small)], check=True)
        try:
            run = start(words, folder)
            _, errors = run.communicate(timeout=300)
            path = small / "run"
            if run.returncode == 0:
                return [
                    f"{sizes} sizes of a tmpfs, from 4 KiB in steps of 4, until the run fitted into "
                    f"{kilobytes} KiB: exit code 1 and one line each time, no traceback",
                    f"{kept} times there was a checkpoint already: it loads; {resumed} of these runs were "
                    "resumed after the disk had been made larger",
                ]
            last = errors.splitlines()[-1]
            if run.returncode != 1 or "Traceback" in errors or "No space left" not in last:
                raise SystemExit(f"{kilobytes} KiB: {run.returncode}, {errors}")
            if (path / "result.json").exists():
                json.loads((path / "result.json").read_text())
            sizes += 1
            if checkpoints_in(path):
                load_checkpoint(checkpoints_in(path)[0])
                kept += 1
                if resumed < 5:
                    subprocess.run(["mount", "-o", "remount,size=100m", str(small)], check=True)
                    again = start(["resume=small/run"], folder)
                    _, errors = again.communicate(timeout=300)
                    if again.returncode != 0 or "resuming after step" not in errors:
                        raise SystemExit(f"{kilobytes} KiB: could not be resumed: {errors}")
                    resumed += 1
        except InputError as error:
            raise SystemExit(f"{kilobytes} KiB: {error}") from None
        finally:
            subprocess.run(["umount", str(small)], check=True)
    raise SystemExit("the run never fitted")
