"""``nsvm evaluate``: evaluate a trained model."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from nsvm_cli.cli.parser import MODEL, CommandParser, Key, split_words
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.output import answer, say

DESCRIPTION = """\
Evaluate a trained model on its test set, or on its validation set if it was
trained with dataset.validation. Of several files, such as the checkpoints of a
run, each is a line. Writes no file.
"""
EPILOG = """\
examples:
  nsvm evaluate run
  nsvm evaluate run/final.safetensors dataset.root=data split=train --json
  nsvm evaluate run dataset=csv dataset.path=new.csv split=all
  nsvm evaluate run/step-*.safetensors
"""

SPLITS = ("test", "train", "validation", "all")
KEYS = (
    Key("split", "NAME", "samples to evaluate on: test, train, validation or all", SPLITS),
    Key("dataset", "NAME", "evaluate on another data set"),
    Key("dataset.root", "FOLDER", "folder of the data set, if it has moved"),
    Key("dataset.path", "FILE", "file of the data set, if it has moved"),
    Key("dataset.KEY", "VALUE", "any other setting of the data set"),
    Key("device", "NAME", "auto, cpu or cuda", ("auto", "cpu", "cuda")),
    Key("threads", "N", "number of threads on the CPU"),
    Key("memory_budget", "MIB", "size of the largest table that is read, if more than 1024 MiB"),
)


def configure(parser: CommandParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("path", metavar="PATH", help=f"{MODEL}; further ones may follow")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each PATH, not a table")
    parser.add_keys("overrides", KEYS)
    parser.add_plugins()


def evaluate(options: argparse.Namespace) -> None:
    """Print the scores of the models, as a table or as JSON. Writes no file."""
    further = [word for word in options.words if Path(word).exists()]
    overrides = _overrides([word for word in options.words if word not in further])
    name = overrides.pop("dataset", None)
    changes = {
        key.removeprefix("dataset."): overrides.pop(key) for key in [*overrides] if key.startswith("dataset.")
    }

    from nsvm_cli.artifacts.evaluation import evaluate_model
    from nsvm_cli.datasets import SampleCache
    from nsvm_cli.runs.open_model import open_model
    from nsvm_cli.terminal.console import show_evaluation, show_evaluations

    dataset = None if name is None else _dataset(name)
    root = changes.get("root") if dataset is None else None
    split = overrides.pop("split", None)
    samples, rows = SampleCache(), []
    for path in (options.path, *further):
        file, model = open_model(path, overrides, say, samples, root)
        rows.append(figures := evaluate_model(file, model, split, dataset, changes, say, samples))
        if options.json:
            answer(json.dumps(figures, allow_nan=False))
    if not options.json:
        show_evaluations(rows) if further else show_evaluation(*rows)


def _dataset(name: str) -> dict[str, Any]:
    from nsvm_cli.compose.composition import compose_section  # Hydra is needed only here

    return compose_section("dataset", name)


def _overrides(words: Sequence[str]) -> dict[str, Any]:
    """Return ``dataset.root=x split=all`` as values; text stays text, to be converted by the settings."""
    dataset_keys = (key for key in (word.partition("=")[0] for word in words) if key.startswith("dataset."))
    given = split_words(words, [*(key.name for key in KEYS), *dataset_keys])
    try:
        values = {
            key: yaml.safe_load(value) if value.startswith("[") or value == "null" else value
            for key, value in given.items()
        }
    except yaml.YAMLError:
        raise InputError("cannot read a value: expected null or a list such as [0,1]") from None
    if values.get("split", "test") not in SPLITS:
        raise InputError(
            f"split={values['split']}: there is no such split; {did_you_mean(values['split'], SPLITS)}"
        )
    if not isinstance(values.get("dataset", ""), str):
        raise InputError(f"dataset={values['dataset']}: expected the name of a data set")
    return values
