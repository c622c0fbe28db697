"""Tries what SECURITY.md promises, in the long run.

usage: scripts/try [--parts kills signals damage disk starts fuzz] [--kills 300] [--minutes 60]
                   [--out outputs/trials]

Each part writes what it has seen to PART.md in the output folder, and fails where a promise is broken. The
disk needs root: it is a small tmpfs.
"""

from __future__ import annotations

import argparse
import signal
import tempfile
from pathlib import Path

import torch

from trials import damage, fuzz, runs

USAGE = (__doc__ or "").split("usage: ")[1].split("\n\n")[0]
PARTS = {
    "kills": runs.kills,
    "signals": runs.signals,
    "damage": damage.damage,
    "disk": damage.disk,
    "starts": damage.starts,
    "fuzz": fuzz.fuzz,
}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(usage=USAGE)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--minutes", type=float, default=60, help="of fuzzing")
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--signals", type=int, default=50)
    parser.add_argument("--out", type=Path, default=Path("outputs/trials"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    # a shell's & has it ignored, and what is started from here would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.splits:
        with tempfile.TemporaryDirectory() as folder:
            lines = PARTS[name](Path(folder), arguments)
        (arguments.out / f"{name}.md").write_text("\n".join(lines) + "\n")
        print(f"{name}:", *lines, sep="\n  ", flush=True)


if __name__ == "__main__":
    main()
