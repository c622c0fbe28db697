"""``nsvm diagnose``: look inside a trained model."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from nsvm_cli.cli.parser import MODEL, RUNTIME, CommandParser, given
from nsvm_cli.output import answer, say


def configure(parser: CommandParser) -> None:
    parser.add("path", "RUN", MODEL, type=Path)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_runtime()


def diagnose(options: argparse.Namespace) -> None:
    """Look inside the model of a run: its kernel matrix, its SVM, and what
    each part of it contributes. An exact SVM takes the place of the model's on the
    same features, which says what the solver costs, and on those of the initial
    network, which says what training them gained. The last line is a verdict.
    Writes no file.

    examples:
      nsvm diagnose run
      nsvm diagnose run --json
    """
    from nsvm_cli.artifacts.diagnosis import diagnose as of
    from nsvm_cli.runs.open_model import load_trained
    from nsvm_cli.terminal.console import show_rows
    from nsvm_cli.words import diagnosis_rows

    runtime = {"device": "auto", **given(options, RUNTIME)}
    figures = of(*load_trained(options.path, runtime, say=say))
    if options.json:
        answer(json.dumps(figures, allow_nan=False))
    else:
        show_rows(diagnosis_rows(figures))
        answer(f"{figures['verdict']}: {figures['why']}")
