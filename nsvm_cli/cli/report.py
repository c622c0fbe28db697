"""``nsvm report``: a report of runs as one HTML file."""

from __future__ import annotations

import argparse
from pathlib import Path

from nsvm_cli.cli.parser import RUNTIME, CommandParser, given, output_file
from nsvm_cli.errors import InputError
from nsvm_cli.output import answer, say
from nsvm_cli.storage.run_directory import REPORT


def configure(parser: CommandParser) -> None:
    parser.add_runs()
    output = f"file to write; by default {REPORT} in PATH or, for several, in the current folder"
    parser.add("--output", "HTML", output, type=output_file)
    parser.add_runtime()


def report(options: argparse.Namespace) -> None:
    """Write a report as one HTML file, which needs no network: of a run its settings,
    curves, mistakes, support vectors, kernel matrix and features; of several, such
    as a sweep, how they compare. Parts whose data are missing are left out.

    examples:
      nsvm report run
      nsvm report outputs/sweep/alg1 --output sweep.html
      nsvm report outputs --filter dataset=ringnorm
    """
    from nsvm_cli.comparison.records import find_runs

    records = find_runs(options.paths, options.filter)
    if not records:
        raise InputError(f"--filter {' '.join(options.filter)}: no run matches; see nsvm runs")
    from nsvm_cli.comparison.pages import write_report

    folder = options.paths[0] if len(options.paths) == 1 else Path()
    file = options.output or folder / REPORT
    runtime = {"device": "auto", **given(options, RUNTIME)}
    for line in write_report(file, records, runtime, named=options.output is not None):
        say(f"warning: {line}")
    answer(file)
