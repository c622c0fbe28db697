"""``nsvm curves``: draw the training curves of runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from nsvm_cli.cli.parser import CommandParser
from nsvm_cli.output import answer

DESCRIPTION = """\
Draw the training curves of runs, finished or not, as curves.png in their
directories: the objective, violations, support vectors, and the accuracy on the
training samples before they were learnt and on validation data, where it was
recorded (validation.every=), or otherwise on held-out data after training. nsvm
train draws them at the end of a run, unless it was told curves=false.
"""
EPILOG = """\
examples:
  nsvm curves outputs/mnist_alg3/*
"""


def configure(parser: CommandParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="run directory")


def curves(options: argparse.Namespace) -> None:
    """Draw the curves, and print where the pictures are."""
    from nsvm_cli.page.curves import draw_curves  # takes a while to import

    for run in options.runs:
        answer(draw_curves(run))
