"""``nsvm evaluate``: evaluate a trained model."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from nsvm_cli.cli.parser import MODEL, RUNTIME, CommandParser, given
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.output import answer, say

SPLITS = ("test", "train", "validation", "all")
KEYS = {
    "dataset=NAME": "evaluate on another data set",
    "dataset.root=FOLDER": "folder of the data set, if it has moved",
    "dataset.path=FILE": "file of the data set, if it has moved",
    "dataset.KEY=VALUE": "any other setting of the data set",
}


def configure(parser: CommandParser) -> None:
    parser.add("path", "PATH", f"{MODEL}; further ones may follow")
    parser.add("--split", "NAME", f"samples to evaluate on: {', '.join(SPLITS)}", choices=SPLITS)
    parser.add_argument("--json", action="store_true", help="print a JSON object for each PATH, not a table")
    parser.add_keys("overrides", KEYS)
    parser.add_runtime()


def evaluate(options: argparse.Namespace) -> None:
    """Evaluate a trained model on its test set, or on its validation set if it was
    trained with dataset.validation. Of several files, such as the checkpoints of a
    run, each is a line. Writes no file.

    examples:
      nsvm evaluate run
      nsvm evaluate run/final.safetensors dataset.root=data --split train --json
      nsvm evaluate run dataset=csv dataset.path=new.csv --split all
      nsvm evaluate run/step-*.safetensors
    """
    further = [word for word in options.words if Path(word).exists()]
    changes = _changes([word for word in options.words if word not in further])
    name = changes.pop("dataset", None)
    changes = {key.removeprefix("dataset."): value for key, value in changes.items()}

    from nsvm_cli.artifacts.evaluation import evaluate_model
    from nsvm_cli.runs.open_model import NoModelYetError, open_model
    from nsvm_cli.terminal.console import show_evaluation, show_evaluations

    dataset = None
    if name is not None:
        from nsvm_cli.compose.composition import compose_settings  # Hydra is needed only here

        dataset = dict(compose_settings([f"dataset={name}"], complete=False)["dataset"])
    runtime = given(options, RUNTIME)
    if dataset is None and "root" in changes:
        runtime["dataset.root"] = changes["root"]
    rows, paths = list[dict[str, Any]](), [options.path, *further]
    for path in paths:
        try:
            file, model = open_model(path, runtime, say)
        except NoModelYetError as error:
            if path == paths[-1] and not rows:
                raise
            say(error)
            continue
        rows.append(figures := evaluate_model(file, model, options.split, dataset, changes, say))
        if options.json:
            answer(json.dumps(figures, allow_nan=False))
    if not options.json:
        show_evaluations(rows) if further else show_evaluation(*rows)


def _changes(words: Sequence[str]) -> dict[str, Any]:
    """Return ``dataset.root=x`` as a value; text stays text, to be converted by the settings."""
    changes: dict[str, Any] = {}
    for word in words:
        key, _, value = word.partition("=")
        if not value or not re.fullmatch(r"dataset(\.\w+)?", key):
            hint = did_you_mean(key, (known.partition("=")[0] for known in KEYS))
            raise InputError(f"{word}: expected a file that exists, or KEY=VALUE about the data set; {hint}")
        try:
            changes[key] = yaml.safe_load(value) if value.startswith("[") or value == "null" else value
        except yaml.YAMLError:
            raise InputError(f"{word}: expected null or a list such as [0,1]") from None
    return changes
