"""``nsvm columns``: say how the columns of a table are read, before any training."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from nsvm_cli.cli.parser import DIALECT, CommandParser, given
from nsvm_cli.output import answer


def columns_arguments(parser: CommandParser) -> None:
    parser.add("file", "FILE", "a table: CSV, .xlsx, .parquet or .jsonl")
    parser.add("--label", "NAME", "column of labels, by default label if there is one")
    parser.add_dialect()
    parser.add_argument("--json", action="store_true", help="print one object")


def columns(options: argparse.Namespace) -> None:
    """Show how nsvm train would read a table: the kind and the first cells of each
    column, the recognised layout, doubtful cells with the settings that resolve
    them, and the command that trains. Writes no file.

    examples:
      nsvm columns customers.csv --label churned
      nsvm columns customers.csv --separator ";" --decimal , --json
    """
    from nsvm_cli import words
    from nsvm_cli.datasets.columns import survey
    from nsvm_cli.terminal.console import show_columns

    found = survey(options.file, given(options, DIALECT), options.label)
    if options.json:
        answer(json.dumps({**asdict(found), "classes": [*found.classes]}))
        return
    answer(f"{found.rows} rows")
    show_columns(words.column_rows(found.columns))
    for line in found.lines:
        answer(line)
