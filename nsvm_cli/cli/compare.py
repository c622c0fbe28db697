"""``nsvm compare``: which settings are best, and whether the difference is real."""

from __future__ import annotations

import argparse
from pathlib import Path

from nsvm_cli.cli.parser import CommandParser
from nsvm_cli.errors import InputError
from nsvm_cli.output import answer_lines, say


def configure(parser: CommandParser) -> None:
    parser.add_runs()
    parser.add("--against", "SETTINGS", "the reference, as the table names it, in place of the best")
    split = "scores to compare: validation, by default where there are any, or test"
    parser.add("--split", "NAME", split, choices=("validation", "test"))
    failed = "score of failed runs: exclude leaves them out, guess scores them as guessing"
    parser.add("--failed", "SCORE", failed, choices=("exclude", "guess"), default="exclude")
    formats = ("markdown", "csv", "latex")
    parser.add("--format", "FORMAT", "markdown, csv or latex", choices=formats, default="markdown")
    parser.add("--figures", "FOLDER", "draw the figures that apply as PNG, or with latex as PDF", type=Path)
    parser.add_escape()


def compare(options: argparse.Namespace) -> None:
    """Compare runs: the mean score of each of the settings that were tried over their
    seeds, with a 95 % interval, the difference to the best, a paired test, and
    ranks. Failed runs are counted; those that were interrupted or are still running
    are left out. Scores are the accuracy or R^2, or what metric= names in all runs.
    Writes no file but figures: curves, the scores after training and, where they
    were recorded (see validation.every=), during it, against steps, seconds and
    support vectors; ranks, a critical-difference diagram of three or more settings
    on independent data sets or seeds.

    examples:
      nsvm compare outputs/sweep/*
      nsvm compare outputs --filter dataset=ringnorm --against alg1 --failed guess
      nsvm compare outputs --format latex --figures figures > table.tex
    """
    from nsvm_cli.comparison import compare as study
    from nsvm_cli.comparison.cells import cells
    from nsvm_cli.comparison.records import find_runs
    from nsvm_cli.comparison.table import cautions, notes, to_csv, to_latex, to_markdown

    if options.escape_formulas and options.format != "csv":
        raise InputError("--escape-formulas needs --format csv: only in CSV are there cells that it changes")
    records = find_runs(options.paths, options.filter)
    candidates = cells(records, options.failed == "guess", options.split)
    rows, ranks = study.compare(candidates, options.against), study.ranking(candidates)
    if options.format == "csv":
        answer_lines(to_csv(rows, options.escape_formulas))
        for note in cautions(candidates, len(records)):
            say(note)
    else:
        write = to_latex if options.format == "latex" else to_markdown
        answer_lines(write(rows, notes(rows, ranks, len(records))))
    if options.figures is not None:
        from nsvm_cli.comparison.figures import figures
        from nsvm_cli.page.plotting import write_figure

        options.figures.mkdir(parents=True, exist_ok=True)
        kind = "pdf" if options.format == "latex" else "png"
        for name, figure in (drawn := figures(rows, ranks)).items():
            say(write_figure(options.figures / f"{name}.{kind}", figure))
        if not drawn:
            say(f"{options.figures}: no figure applies to these runs; see nsvm compare --help")
