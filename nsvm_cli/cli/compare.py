"""``nsvm compare``: which settings are best, and whether the difference is real."""

from __future__ import annotations

import argparse
from pathlib import Path

from nsvm_cli.cli.parser import CommandParser
from nsvm_cli.output import answer_lines

DESCRIPTION = """\
Compare runs: the mean score of each of the settings that were tried over their
seeds, with a 95 % interval, the difference to the best, a paired test, and
ranks. Runs that have not finished are left out. Writes no file.
"""
EPILOG = """\
examples:
  nsvm compare outputs/sweep/*
  nsvm compare outputs --filter dataset=ringnorm --against alg1
  nsvm compare outputs --format latex > table.tex
"""


def configure(parser: CommandParser) -> None:
    """Add the arguments of the command."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help="folder of runs")
    parser.add_argument("--filter", metavar="CONDITION", action="append", default=[], help="as in nsvm runs")
    parser.add_argument(
        "--against", metavar="SETTINGS", help="the reference, as the table names it, in place of the best"
    )
    parser.add_argument(
        "--format",
        metavar="FORMAT",
        choices=("markdown", "csv", "latex"),
        default="markdown",
        help="markdown, csv or latex",
    )
    parser.set_defaults(run=compare)


def compare(options: argparse.Namespace) -> None:
    """Print the comparison. Writes no file."""
    from nsvm_cli.studies import compare as study
    from nsvm_cli.studies.comparison_table import FORMATS
    from nsvm_cli.studies.records import find_runs

    cells = study.cells(find_runs(options.paths, options.filter))
    rows = study.compare(cells, options.against)
    answer_lines(FORMATS[options.format](rows, study.ranking(cells)))
