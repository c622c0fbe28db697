"""``nsvm curves``: draw the training curves of runs."""

from __future__ import annotations

from pathlib import Path

from nsvm_cli.errors import InputError

HELP = """\
usage: nsvm curves RUN [RUN ...]

Draw the training curves of runs, finished or not, as curves.png in their directories: objective,
violations per step, support vectors, and validation accuracy where it was recorded (validation.every=).
nsvm train does so at its end.

options:
  -h, --help           this text
"""


def curves(arguments: list[str]) -> None:
    """Draws, and prints where the pictures are."""
    if "-h" in arguments or "--help" in arguments:
        print(HELP, end="")
        return
    if not arguments:
        raise InputError("curves needs a RUN: the directory of a run; see nsvm curves --help")
    from nsvm_cli.report.curves import draw_curves  # takes a while to import

    for run in arguments:
        print(draw_curves(Path(run)))
