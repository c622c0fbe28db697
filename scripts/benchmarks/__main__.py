"""Measure how fast nsvm is, compared with baselines. See BENCHMARKS.md.

usage: scripts/benchmark [--parts trainers svc exact] [--pairs 5]
                         [--out outputs/benchmark] [--ringnorm FILE.csv] [--mnist FOLDER] [--pmlb FOLDER]
                         [--algorithms alg1 alg2 ...] [--engine auto|torch|numba]

Everything runs on one thread, and the two sides of a ratio alternate. The output is a CSV file for each
table, and report.md. Without --ringnorm, the data are generated. Without --mnist or --pmlb, the cells that
require it are left out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from benchmarks import baselines, exact, trainers
from benchmarks.report import Report

USAGE = (__doc__ or "").split("usage: ")[1].split("\n\n")[0]
PARTS = {"trainers": trainers.measure, "svc": baselines.fit, "exact": exact.fit}


def main() -> None:
    parser = argparse.ArgumentParser(usage=USAGE, add_help=True)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--algorithms", nargs="+", choices=trainers.ALGORITHMS, default=trainers.ALGORITHMS)
    parser.add_argument("--engine", choices=("auto", "torch", "numba"), default="auto")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("outputs/benchmark"))
    parser.add_argument("--ringnorm", type=Path)
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--pmlb", type=Path)
    arguments = parser.parse_args()
    for path in (arguments.ringnorm, arguments.mnist, arguments.pmlb):
        if path is not None and not path.exists():
            parser.error(f"{path} does not exist")
    torch.set_num_threads(1)
    report = Report(arguments.out)
    for name in arguments.parts:
        PARTS[name](report, arguments)
    print(f"written: {report.folder}")


if __name__ == "__main__":
    main()
