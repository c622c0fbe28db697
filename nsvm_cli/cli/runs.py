"""``nsvm runs``: list runs, with their settings and figures."""

from __future__ import annotations

import argparse
import json

from nsvm_cli.cli.parser import CommandParser
from nsvm_cli.errors import InputError
from nsvm_cli.output import answer, answer_lines, say
from nsvm_cli.storage.files import csv_text


def configure(parser: CommandParser) -> None:
    parser.add_runs()
    parser.add("--sort", "KEY", "in the order of a setting or a figure")
    parser.add_argument("--descending", action="store_true", help="the largest first")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print a row for each run, with all its fields")
    form.add_argument("--json", action="store_true", help="print a list with an object for each run")
    parser.add_escape()


def runs(options: argparse.Namespace) -> None:
    """List the runs in folders and below them, finished or not: their status, the
    settings that tell them apart, and their figures. --csv and --json print all
    settings and figures. Writes no file.

    examples:
      nsvm runs outputs
      nsvm runs outputs/sweep/* --sort test_accuracy --descending
      nsvm runs outputs --filter algorithm=alg1 --filter algorithm.lam=1e-3 --csv
    """
    from nsvm_cli.comparison.records import KEPT, figures_shown, find_runs, in_order, rows_of, runs_table

    if options.escape_formulas and not options.csv:
        raise InputError("--escape-formulas needs --csv: it changes the cells of CSV only")
    records = find_runs(options.paths, options.filter)
    if options.sort:
        records = in_order(records, options.sort, options.descending)
    if options.json:
        answer(json.dumps([record.to_json() for record in records]))
    elif options.csv:
        answer_lines(csv_text(rows_of(records), options.escape_formulas) if records else "path\n")
    elif not records:
        answer("no run matches the filter")
    else:
        from nsvm_cli.terminal.console import show_runs

        folder, count, columns = runs_table(records)
        answer(f"{folder}: {count}")
        figures = figures_shown(records)
        kept = [*KEPT, *(name for name in figures if name.startswith(("validation", "test")))]
        if left_out := show_runs(columns, figures, kept):
            say(f"left out for lack of room: {', '.join(left_out)}; --csv and --json have all")
