"""The commands that read one table or one model: columns, evaluate, predict, export and diagnose."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from nsvm_cli.cli.parser import (
    DIALECT,
    MODEL_HELP,
    RUNTIME,
    CommandParser,
    expect_other,
    output_file,
    specified,
)
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.output import answer, answer_lines, say
from nsvm_cli.storage.files import csv_lines, write_atomically, writing


def columns_arguments(parser: CommandParser) -> None:
    parser.add("file", "FILE", "table to read (CSV, .xlsx, .parquet or .jsonl)")
    parser.add("--label", "NAME", "label column (default: the column label, if it exists)")
    parser.add_dialect()
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def columns(options: argparse.Namespace) -> None:
    """Show how nsvm train would read a table. For each column, print its kind and its
    first cells. Below the columns, print the format of the file, cells with a
    doubtful meaning and the settings that clarify them, and the command that
    trains a model. No file is written.

    examples:
      nsvm columns customers.csv --label churned
      nsvm columns customers.csv --separator ";" --decimal , --json
    """
    from nsvm_cli.datasets.columns import survey
    from nsvm_cli.terminal.console import show_columns
    from nsvm_cli.words import column_rows

    table = survey(options.file, specified(options, DIALECT), options.label)
    if options.json:
        answer(json.dumps({**asdict(table), "classes": [*table.classes]}))
        return
    answer(f"{table.rows} rows")
    show_columns(column_rows(table.columns))
    for line in table.lines:
        answer(line)


KEYS = {
    "dataset=NAME": "evaluate on another data set",
    "dataset.root=FOLDER": "new folder of a data set that has moved",
    "dataset.path=FILE": "new path of a data file that has moved",
    "dataset.KEY=VALUE": "override another setting of the data set",
}


def evaluate_arguments(parser: CommandParser) -> None:
    parser.add("path", "PATH", f"{MODEL_HELP}; can be repeated")
    splits = ("test", "train", "validation", "all")
    parser.add("--split", "NAME", "split to evaluate on: test, train, validation or all", choices=splits)
    as_json = "print a JSON object for each PATH instead of a table"
    parser.add_argument("--json", action="store_true", help=as_json)
    parser.add_keys("overrides", KEYS)
    parser.add_runtime()


def evaluate(options: argparse.Namespace) -> None:
    """Evaluate a trained model on its test set, or on its validation set if it was
    trained with dataset.validation. For several models, such as the checkpoints of
    a run, print one table with a row for each model. No file is written.

    examples:
      nsvm evaluate run
      nsvm evaluate run/final.safetensors dataset.root=data --split train --json
      nsvm evaluate run dataset.path=new.csv --split all
      nsvm evaluate run/step-*.safetensors
    """
    further = [word for word in options.words if Path(word).exists()]
    changes = _changes([word for word in options.words if word not in further])
    name = changes.pop("dataset", None)
    changes = {key.removeprefix("dataset."): value for key, value in changes.items()}

    from nsvm_cli.runs.open_model import NoModelYetError, evaluate_model, open_model
    from nsvm_cli.terminal.console import show_evaluation, show_evaluations

    dataset, runtime = None, specified(options, RUNTIME)
    if name is not None:
        from nsvm_cli.compose.composition import compose_settings  # Hydra is needed only here

        dataset = compose_settings([f"dataset={name}"], complete=False)["dataset"]
    elif "root" in changes:
        runtime["dataset.root"] = changes["root"]
    rows, paths = list[dict[str, Any]](), [options.path, *further]
    for path in paths:
        try:
            file, model = open_model(path, runtime)
        except NoModelYetError as error:
            if path == paths[-1] and not rows:
                raise
            say(error)
            continue
        rows.append(figures := evaluate_model(file, model, options.split, dataset, changes))
        if options.json:
            answer(json.dumps(figures, allow_nan=False))
    if not options.json:
        show_evaluations(rows) if further else show_evaluation(*rows)


def _changes(words: Sequence[str]) -> dict[str, Any]:
    """Return the values of overrides such as ``dataset.root=x``, by key."""
    changes: dict[str, Any] = {}
    for word in words:
        key, _, value = word.partition("=")
        if not value or not re.fullmatch(r"dataset(\.\w+)?", key):
            hint = did_you_mean(key, (example.partition("=")[0] for example in KEYS))
            raise InputError(f"{word}: expected an existing file, or an override of the data set; {hint}")
        try:
            changes[key] = yaml.safe_load(value) if value.startswith("[") or value == "null" else value
        except yaml.YAMLError:
            raise InputError(f"{word}: expected null or a list such as [0,1]") from None
    return changes


def predict_arguments(parser: CommandParser) -> None:
    parser.add("model", "MODEL", MODEL_HELP)
    parser.add("file", "FILE", "table, image or folder of images", type=Path)
    parser.add("--output", "FILE", "CSV or .parquet file to write (default: print CSV)", type=output_file)
    parser.add("--keep", "COLUMN", "columns of the table to copy to the output", nargs="+", default=[])
    parser.add_dialect()
    parser.add_escape()
    parser.add_runtime()


def predict(options: argparse.Namespace) -> None:
    """Predict with a trained model. Print a class or a target for each sample, and the
    score of each class. If the model is calibrated, also print the probability of
    each class. By default, a model is calibrated if it was trained with a
    validation set.

    The samples are the rows of a CSV or Parquet file, an image, or the images in a
    folder. A CSV file must have a header. It can be compressed and can have any
    size. Columns are matched by name. Columns that the model does not use, such as
    a label, are ignored.

    examples:
      nsvm predict run new.csv --output predictions.csv --keep id name
      nsvm predict run/final.safetensors images/
    """
    from nsvm_cli.artifacts.prediction import predictions
    from nsvm_cli.datasets.csv import kind_of, write_parquet
    from nsvm_cli.runs.open_model import open_model

    source, model = open_model(options.model, specified(options, RUNTIME))
    expect_other(options.output, source, options.file)
    if options.output and (kind := kind_of(options.output)) not in ("CSV", "Parquet"):
        raise InputError(f"{options.output}: expected a file of the type .csv or .parquet, got {kind}")
    blocks = predictions(model, options.file, specified(options, DIALECT), options.keep)
    if options.output is None:
        for number, columns in enumerate(blocks):
            answer_lines(_csv_text(columns, number == 0, options.escape_formulas))
        return
    count = 0
    with writing(options.output, named=True) as file:
        if kind_of(options.output) == "Parquet":
            count = write_parquet(file, blocks)
        else:
            for columns in blocks:
                text = _csv_text(columns, count == 0, options.escape_formulas)
                file.write(text.encode(errors="backslashreplace"))  # file names may not be valid Unicode
                count += len(columns["prediction"])
    say(f"{count} {'prediction' if count == 1 else 'predictions'} in {options.output}")


def _csv_text(columns: Mapping[str, Sequence[Any]], header: bool, escape: bool) -> str:
    return csv_lines(chain([columns] if header else [], zip(*columns.values(), strict=True)), escape)


def export_arguments(parser: CommandParser) -> None:
    parser.add("model", "MODEL", MODEL_HELP)
    target = "file to write (default: the path of the model file, ending in .onnx)"
    parser.add("file", "FILE", target, type=output_file, nargs="?")
    parser.add_argument("--onnx", action="store_true", required=True, help="write an ONNX graph (required)")
    parser.add_plugins()


def export(options: argparse.Namespace) -> None:
    """Write a trained model as one ONNX graph that contains the scaling, the network
    and the kernel expansion. The input x is a batch of raw samples or, for a table,
    of encoded features. The outputs are the scores and the prediction. A prediction
    is a target or the index of a class.

    examples:
      nsvm export run --onnx
      nsvm export run/best.safetensors --onnx model.onnx
    """
    from nsvm_cli.artifacts.onnx_graph import onnx_graph
    from nsvm_cli.runs.open_model import open_model

    source, model = open_model(options.model, {"device": "cpu"})
    target = options.file or source.with_suffix(".onnx")
    expect_other(target, source)
    write_atomically(target, onnx_graph(model), named=options.file is not None)
    answer(f"ONNX graph: {target}")


def diagnose_arguments(parser: CommandParser) -> None:
    parser.add("path", "RUN", MODEL_HELP, type=Path)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_runtime()


def diagnose(options: argparse.Namespace) -> None:
    """Measure the kernel matrix, the SVM and the features of a trained model. For
    comparison, an exact SVM is trained on the same features: its score shows how
    much the solver loses. A second exact SVM is trained on the features of the
    initial network: its score shows how much training the network gains. The last
    line is a verdict with its reason. No file is written.

    examples:
      nsvm diagnose run
      nsvm diagnose run --json
    """
    from nsvm_cli.artifacts import diagnosis
    from nsvm_cli.runs.open_model import load_trained
    from nsvm_cli.terminal.console import show_rows
    from nsvm_cli.words import diagnosis_rows

    runtime = {"device": "auto", **specified(options, RUNTIME)}
    figures = diagnosis.diagnose(*load_trained(options.path, runtime))
    if options.json:
        answer(json.dumps(figures, allow_nan=False))
    else:
        show_rows(diagnosis_rows(figures))
        answer(f"{figures['verdict']}: {figures['why']}")
