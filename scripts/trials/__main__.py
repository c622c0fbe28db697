"""Run long tests for which the gate has no time, before a release.

usage: scripts/try [--parts PART ...] [--kills 300] [--signals 50] [--minutes 60]
                   [--out outputs/trials]

parts, by default all:
  thorough  the tests that take long and find little, which scripts/test leaves out
  pauses    runs that pause, with code for each processor that this one can imitate, and slowed-down runs
  kills     runs that are killed at random moments, and resumed
  signals   runs that are interrupted at random moments, and resumed
  disk      runs on disks that are too small; requires root to mount a small tmpfs
  fuzz      files that are truncated, have a flipped bit, or are forged by hypothesis

Each part writes its findings to PART.md in the output folder, and fails if a promise is broken.
"""

from __future__ import annotations

import argparse
import signal
import tempfile
from pathlib import Path

import torch

from trials import disk, fuzz, pauses, runs

ABOUT, REST = (__doc__ or "").split("usage: ")
USAGE, _, DETAILS = REST.partition("\n\n")
PARTS = {
    "thorough": pauses.thorough,
    "pauses": pauses.pauses,
    "kills": runs.kills,
    "signals": runs.signals,
    "disk": disk.disk,
    "fuzz": fuzz.fuzz,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        usage=USAGE,
        description=f"{ABOUT}\n{DETAILS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--minutes", type=float, default=60, help="of fuzzing")
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--signals", type=int, default=50)
    parser.add_argument("--out", type=Path, default=Path("outputs/trials"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    # processes started by a shell's & or nohup ignore these signals, and the runs would inherit this
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.parts:
        with tempfile.TemporaryDirectory() as folder:
            lines = PARTS[name](Path(folder), arguments)
        (arguments.out / f"{name}.md").write_text("\n".join(lines) + "\n")
        print(f"{name}:", *lines, sep="\n  ", flush=True)


if __name__ == "__main__":
    main()
