"""The commands about many runs: ``nsvm runs``, ``compare``, ``report`` and ``reproduce``."""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
from pathlib import Path

import yaml

from nsvm_cli.cli.parser import RUNTIME, CommandParser, output_file, parse, specified
from nsvm_cli.errors import InputError, RunError, did_you_mean
from nsvm_cli.output import answer, answer_lines, say
from nsvm_cli.storage.files import csv_text
from nsvm_cli.storage.run_directory import REPORT, RESULT


def runs_arguments(parser: CommandParser) -> None:
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


def compare_arguments(parser: CommandParser) -> None:
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
    ranks. Failed runs are counted; interrupted and running ones are left out.
    Scores are the accuracy or R^2, or the metric that all runs set with metric=.
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
    from nsvm_cli.comparison.records import find_runs
    from nsvm_cli.comparison.table import cautions, notes, to_csv, to_latex, to_markdown

    if options.escape_formulas and options.format != "csv":
        raise InputError("--escape-formulas needs --format csv: only in CSV are there cells that it changes")
    records = find_runs(options.paths, options.filter)
    candidates = study.cells(records, options.failed == "guess", options.split)
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


def report_arguments(parser: CommandParser) -> None:
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
    runtime = {"device": "auto", **specified(options, RUNTIME)}
    for line in write_report(file, records, runtime, named=options.output is not None):
        say(f"warning: {line}")
    answer(file)


def reproduce_arguments(parser: CommandParser) -> None:
    from nsvm_cli.compose.composition import conf_folder

    suites = sorted(file.stem for file in (conf_folder() / "suite").glob("*.yaml"))
    names = f"{', '.join(suites[:-1])} or {suites[-1]}"
    suite = parser.add(
        "suite", "SUITE", f"{names}; or a YAML file of your own, with a list of lines of words"
    )
    suite.completer = lambda **_: suites  # type: ignore[attr-defined]
    overrides = "overrides for every sweep; they replace its words with the same key"
    parser.add("words", "KEY=VALUE", overrides, nargs="*")
    parser.add("--output", "FOLDER", "where runs go (default: outputs/reproduce/SUITE)", type=Path)


def reproduce(options: argparse.Namespace) -> None:
    """Run a suite of sweeps, each as nsvm train -m does, and compare the runs: the
    paper's experiments, tables of classes and real targets, or MNIST with ten
    digits, with baselines on the same splits. Runs are ordinary ones, in a folder
    for each data set. To resume after an interruption, run the same command again.

    examples:
      nsvm reproduce quick
      nsvm reproduce tables seed=0 hydra/launcher=joblib
      nsvm reproduce my_suite.yaml --output outputs/mine
    """
    from nsvm_cli.cli.train import train
    from nsvm_cli.config.overrides import quoted

    folder = options.output or Path("outputs/reproduce") / Path(options.suite).stem
    failures: list[InputError | RunError] = []
    for line in lines_of(options.suite):
        by_key = {word.partition("=")[0]: word for word in [*shlex.split(line), *options.words]}
        words = [*by_key.values()]  # options.words override words of the line
        say(f"nsvm train -m {shlex.join(words)}")
        try:
            train(["-m", *words, f"hydra.sweep.dir={quoted(f'{folder}/${{dataset.name}}')}"])
        except (InputError, RunError) as error:  # the other sweeps may still succeed
            failures.append(error)
    if not failures or any(folder.rglob(RESULT)):
        compare(parse("compare", [str(folder)]))
    if failures:
        more = f"; {len(failures) - 1} more sweeps failed" if failures[1:] else ""
        raise type(failures[0])(f"{failures[0]}{more}")


def lines_of(suite: str) -> list[str]:
    """Return the lines of a suite in conf/, or of a YAML file."""
    from nsvm_cli.compose.composition import conf_folder

    file = Path(suite) if Path(suite).suffix else conf_folder() / "suite" / f"{suite}.yaml"
    if not file.is_file():
        names = [other.stem for other in (conf_folder() / "suite").glob("*.yaml")]
        raise InputError(f"{suite}: there is no such suite; {did_you_mean(suite, names)}")
    lines = None
    with contextlib.suppress(OSError, ValueError, yaml.YAMLError):
        lines = yaml.safe_load(file.read_text())
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise InputError(f"{file}: expected a list of lines, such as '- dataset=digits seed=0,1'")
    return lines
