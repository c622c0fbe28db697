"""``nsvm runs``: list runs, with their settings and figures."""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsvm_cli.cli.parser import CommandParser
from nsvm_cli.output import answer, answer_lines
from nsvm_cli.storage.files import csv_text

if TYPE_CHECKING:
    from rich.table import Table

    from nsvm_cli.studies.records import RunRecord

DESCRIPTION = """\
List the runs in folders and below them, finished or not: their status, the
settings that tell them apart, and their figures. --csv and --json print all
settings and figures. Writes no file.
"""
EPILOG = """\
examples:
  nsvm runs outputs
  nsvm runs outputs/sweep/* --sort test_accuracy --descending
  nsvm runs outputs --filter algorithm=alg1 --filter 'algorithm.lam<1e-3' --csv
"""

FIGURES = {
    "validation_accuracy": "validation",
    "validation_r2": "validation R²",
    "test_accuracy": "test",
    "test_r2": "test R²",
    "train_accuracy": "training",
    "train_r2": "training R²",
    "support_vectors": "support vectors",
    "train_seconds": "seconds",
}
"""The figures of the table, if any run has them, and the heads of their columns."""


def configure(parser: CommandParser) -> None:
    """Add the arguments of the command."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument(
        "paths", metavar="PATH", nargs="+", type=Path, help="run directory, or a folder above"
    )
    parser.add_argument(
        "--filter",
        metavar="CONDITION",
        action="append",
        default=[],
        help="only runs with KEY=VALUE, or another relation: != < <= > >=; KEY is a setting or a figure",
    )
    parser.add_argument("--sort", metavar="KEY", help="in the order of a setting or a figure")
    parser.add_argument("--descending", action="store_true", help="the largest first")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print a row for each run, with all it has")
    form.add_argument("--json", action="store_true", help="print a list with an object for each run")
    parser.set_defaults(run=runs)


def runs(options: argparse.Namespace) -> None:
    """Print the runs as a table, as CSV or as JSON. Writes no file."""
    from nsvm_cli.studies.records import find_runs, in_order, rows_of

    records = find_runs(options.paths, options.filter)
    if options.sort:
        records = in_order(records, options.sort, options.descending)
    if options.json:
        answer(json.dumps([record.to_json() for record in records]))
    elif options.csv:
        answer_lines(csv_text(rows_of(records)) if records else "path\n")
    else:
        _show(records)


def _show(records: Sequence[RunRecord]) -> None:
    if not records:
        answer("no run is like that")
        return
    folder = Path(os.path.commonpath([record.path.parent.absolute() for record in records]))
    count = Counter(record.status for record in records)
    answer(f"{folder}: {', '.join(f'{n} {status}' for status, n in count.most_common())}")

    from nsvm_cli.report.console import Console

    Console(wide=True).print(_table(records, folder))


def _table(records: Sequence[RunRecord], folder: Path) -> Table:
    from rich.table import Table

    from nsvm_cli.studies.records import telling

    rows = [record.values() for record in records]
    settings = telling(records)
    figures = [name for name in FIGURES if any(row.get(name) is not None for row in rows)]
    message = ["message"] if any(record.message for record in records) else []
    table = Table()
    for head in ("run", *(name.removesuffix(".name") for name in settings), "status"):
        table.add_column(head, overflow="fold")
    for name in figures:
        table.add_column(FIGURES[name], justify="right")
    for name in message:
        table.add_column(name, overflow="fold")
    for record, row in zip(records, rows, strict=True):
        cells = [
            str(record.path.absolute().relative_to(folder)),
            *(_text(row.get(name)) for name in settings),
        ]
        cells += [record.status, *(_figure(name, row.get(name)) for name in figures)]
        table.add_row(*cells, *(str(row[name]) for name in message))
    return table


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _figure(name: str, value: Any) -> str:
    if not isinstance(value, (int, float)):
        return ""
    from nsvm_cli.report.console import METRICS

    metric = name.partition("_")[2]
    if metric in METRICS:
        return METRICS[metric][1](value)
    return f"{value:.1f}" if name.endswith("seconds") else str(value)
