"""``nsvm columns``: say how the columns of a table are read, before any training."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from nsvm_cli.cli.parser import DIALECT, CommandParser, given
from nsvm_cli.output import answer, say

DESCRIPTION = """\
Say how nsvm train would read the columns of a table, were all of its rows for
training: as numbers, text with so many categories, dates, or identifiers, which
are left out. The example is the median of numbers and of dates. Writes no file.
"""
EPILOG = """\
examples:
  nsvm columns customers.csv --label churned
  nsvm columns customers.csv --separator ";" --decimal , --json
"""


def configure(parser: CommandParser) -> None:
    parser.add("file", "FILE", "CSV or Parquet file")
    parser.add("--label", "NAME", "column of labels, by default label if there is one")
    parser.add_dialect()
    parser.add_argument("--json", action="store_true", help="print a list with an object for each column")


def columns(options: argparse.Namespace) -> None:
    """Print a row for each column. Writes no file."""
    from nsvm_cli import words
    from nsvm_cli.config.registry import construct
    from nsvm_cli.datasets.columns import decimal_commas, survey
    from nsvm_cli.datasets.csv import Dialect
    from nsvm_cli.terminal.console import show_columns

    found = survey(options.file, construct(Dialect, "", given(options, DIALECT)), options.label)
    if options.json:
        answer(json.dumps([asdict(column) for column in found]))
    else:
        show_columns(words.column_rows(found))
    for line in decimal_commas(found, "--decimal ,"):
        say(line)
