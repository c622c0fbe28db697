"""The commands that read or start many runs: runs, compare, report and reproduce."""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
from pathlib import Path

import yaml

from nsvm_cli.cli.parser import RUNTIME, CommandParser, expect_other, output_file, parse, specified
from nsvm_cli.errors import InputError, RunError, did_you_mean
from nsvm_cli.output import answer, answer_lines, say
from nsvm_cli.storage.files import csv_text
from nsvm_cli.storage.run_directory import FILES, REPORT, RESULT


def runs_arguments(parser: CommandParser) -> None:
    parser.add_runs()
    parser.add("--sort", "KEY", "sort by a setting or a metric")
    parser.add_argument("--descending", action="store_true", help="sort in descending order")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print CSV with a row for each run")
    form.add_argument("--json", action="store_true", help="print a JSON list with an object for each run")
    parser.add_escape()


def runs(options: argparse.Namespace) -> None:
    """List the runs in folders and their subfolders, including unfinished runs, with
    their status, the settings in which they differ, and their metrics. --csv and
    --json print all settings and metrics. No file is written.

    examples:
      nsvm runs outputs
      nsvm runs outputs/sweep/* --sort test_accuracy --descending
      nsvm runs outputs --filter algorithm=alg1 --filter algorithm.lam=1e-3 --csv
    """
    from nsvm_cli.comparison.records import figures_shown, find_runs, in_order, rows_of, runs_table

    if options.escape_formulas and not options.csv:
        raise InputError("--escape-formulas requires --csv, since it changes only CSV cells")
    if options.descending and not options.sort:
        raise InputError("--descending requires --sort KEY")
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
        scores = [name for name in figures if name.startswith(("validation", "test"))]
        required = ["run", "dataset", "algorithm", "seed", "status", "message", *scores]
        if hidden := show_runs(columns, figures, required):
            advice = "to print all columns, add --csv or --json"
            say(f"columns that do not fit the terminal: {', '.join(hidden)}; {advice}")


def compare_arguments(parser: CommandParser) -> None:
    parser.add_runs()
    against = "reference settings, as written in the table (default: the best settings)"
    parser.add("--against", "SETTINGS", against)
    split = "scores to compare: validation or test (default: validation, if recorded)"
    parser.add("--split", "NAME", split, choices=("validation", "test"))
    failed = "exclude failed runs (exclude, the default), or give them the score of guessing (guess)"
    parser.add("--failed", "SCORE", failed, choices=("exclude", "guess"), default="exclude")
    formats = ("markdown", "csv", "latex")
    form = "markdown (the default), csv or latex"
    parser.add("--format", "FORMAT", form, choices=formats, default="markdown")
    parser.add("--figures", "FOLDER", "folder for figures, as PNG or, with --format latex, as PDF", type=Path)
    parser.add_escape()


def compare(options: argparse.Namespace) -> None:
    """Compare settings by the scores of their runs. The table contains the mean score
    over seeds with a 95 % interval, the difference from the best settings, and the
    p-value of a paired test. Mean ranks follow below the table. The score is the
    metric that all runs set with metric=, or else the accuracy or R^2. Failed runs
    are counted. Interrupted and running runs are excluded.

    With --figures, the figures "curves" and "ranks" are drawn. "curves" shows the
    scores after training against steps, seconds and support vectors. If
    validation.every is set, it also shows the scores during training. "ranks" is a
    critical-difference diagram. It requires three or more settings on independent
    data sets or seeds. No other file is written.

    examples:
      nsvm compare outputs/sweep/*
      nsvm compare outputs --filter dataset=ringnorm --against alg1 --failed guess
      nsvm compare outputs --format latex --figures figures > table.tex
    """
    from nsvm_cli.comparison import compare as study
    from nsvm_cli.comparison.records import find_runs
    from nsvm_cli.comparison.table import cautions, notes, to_csv, to_latex, to_markdown

    if options.escape_formulas and options.format != "csv":
        raise InputError("--escape-formulas requires --format csv, since it changes only CSV cells")
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
            advice = "compare at least two settings, or runs that recorded scores during training"
            say(f"--figures {options.figures}: there is nothing to draw; {advice}")


def report_arguments(parser: CommandParser) -> None:
    parser.add_runs()
    output = f"file to write (default: {REPORT} in PATH, or in the current folder for several PATHs)"
    parser.add("--output", "HTML", output, type=output_file)
    parser.add_runtime()


def report(options: argparse.Namespace) -> None:
    """Write a report as one HTML file that can be read offline. The report of one run
    shows its settings, curves, mistakes, support vectors, kernel matrix and
    features. The report of several runs, such as a sweep, compares the runs.
    Sections whose data are missing are skipped.

    examples:
      nsvm report run
      nsvm report outputs/sweep/digits --output sweep.html
      nsvm report outputs --filter dataset=ringnorm
    """
    from nsvm_cli.comparison.records import find_runs

    records = find_runs(options.paths, options.filter)
    if not records:
        raise InputError(f"--filter {' '.join(options.filter)}: no run matches; list the runs with nsvm runs")
    from nsvm_cli.comparison.pages import write_report

    folder = options.paths[0] if len(options.paths) == 1 else Path()
    file = options.output or folder / REPORT
    for record in records:
        expect_other(options.output, *(record.path / name for name in FILES if name != REPORT))
    runtime = {"device": "auto", **specified(options, RUNTIME)}
    for line in write_report(file, records, runtime, named=options.output is not None):
        say(f"warning: {line}")
    answer(file)


def reproduce_arguments(parser: CommandParser) -> None:
    from nsvm_cli.compose.composition import conf_folder

    suites = sorted(file.stem for file in (conf_folder() / "suite").glob("*.yaml"))
    names = f"{', '.join(suites[:-1])} or {suites[-1]}"
    suite = parser.add(
        "suite", "SUITE", f"{names}, or a YAML file with a list of sweeps, each written as its overrides"
    )
    suite.completer = lambda **_: suites  # type: ignore[attr-defined]
    overrides = "override for all sweeps, which replaces the suite's overrides of the same key"
    parser.add("words", "KEY=VALUE", overrides, nargs="*")
    parser.add("--output", "FOLDER", "folder for the runs (default: outputs/reproduce/SUITE)", type=Path)


def reproduce(options: argparse.Namespace) -> None:
    """Run a suite, which is a list of sweeps (nsvm train -m), and compare the runs.
    There are suites for the paper's experiments, for tables with classes or real
    targets, and for images of ten classes. They include baselines on the same
    splits. The runs of each data set are in one folder. To resume after an
    interruption, run the same command again.

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
        overrides = [*by_key.values()]  # options.words replace overrides in the line with the same key
        say(f"nsvm train -m {shlex.join(overrides)}")
        try:
            train(["-m", *overrides, f"hydra.sweep.dir={quoted(f'{folder}/${{dataset.name}}')}"])
        except (InputError, RunError) as error:  # the other sweeps may still succeed
            failures.append(error)
    if not failures or any(folder.rglob(RESULT)):
        compare(parse("compare", [str(folder)]))
    if failures:
        further = f"; failed sweeps in total: {len(failures)}" if failures[1:] else ""
        raise type(failures[0])(f"{failures[0]}{further}")


def lines_of(suite: str) -> list[str]:
    """Return the lines of a suite in conf/ or in a YAML file. Each line has the overrides of one sweep."""
    from nsvm_cli.compose.composition import conf_folder

    file = Path(suite) if Path(suite).suffix else conf_folder() / "suite" / f"{suite}.yaml"
    if not file.is_file():
        names = [other.stem for other in (conf_folder() / "suite").glob("*.yaml")]
        raise InputError(f"{suite}: there is no such suite; {did_you_mean(suite, names)}")
    lines = None
    with contextlib.suppress(OSError, ValueError, yaml.YAMLError):
        lines = yaml.safe_load(file.read_text())
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise InputError(f"{file}: expected a YAML list of sweeps, such as '- dataset=digits seed=0,1'")
    return lines
