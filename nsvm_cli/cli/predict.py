"""``nsvm predict``: predict with a trained model for samples without labels."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from nsvm_cli.cli.parser import DIALECT, MODEL, RUNTIME, CommandParser, given, output_file
from nsvm_cli.output import answer_lines, say
from nsvm_cli.storage.files import csv_lines, writing


def configure(parser: CommandParser) -> None:
    parser.add("model", "MODEL", MODEL)
    parser.add("file", "FILE", "table, image or folder of images", type=Path)
    parser.add("--output", "FILE", "CSV or .parquet file, not the terminal", type=output_file)
    parser.add("--keep", "COLUMN", "copy these columns of the table, too", nargs="+", default=[])
    parser.add_dialect()
    parser.add_escape()
    parser.add_runtime()


def predict(options: argparse.Namespace) -> None:
    """Predict with a trained model: a class or a target for each sample, and the score
    of each class, with its probability if the model is calibrated, as it is where a
    run has a validation set. Samples are the rows of a CSV file with a header,
    which may be compressed and of any size, or of a Parquet file; an image, or the
    images in a folder.
    Columns are matched by name; others, such as a label, are ignored.

    examples:
      nsvm predict run new.csv --output predictions.csv --keep id name
      nsvm predict run/final.safetensors images/
    """
    from nsvm_cli.artifacts.prediction import predictions
    from nsvm_cli.datasets.csv import kind_of, write_parquet
    from nsvm_cli.runs.open_model import open_model

    _, model = open_model(options.model, given(options, RUNTIME), say)
    blocks = predictions(model, options.file, given(options, DIALECT), options.keep, say)
    if options.output is None:
        for number, columns in enumerate(blocks):
            answer_lines(_text(columns, number == 0, options.escape_formulas))
        return
    count = 0
    with writing(options.output, named=True) as file:
        if kind_of(options.output) == "Parquet":
            count = write_parquet(file, blocks)
        else:
            for columns in blocks:
                text = _text(columns, count == 0, options.escape_formulas)
                file.write(text.encode(errors="backslashreplace"))  # file names may be no Unicode
                count += len(columns["prediction"])
    say(f"{count} {'prediction' if count == 1 else 'predictions'} in {options.output}")


def _text(columns: Mapping[str, Sequence[Any]], header: bool, escape: bool) -> str:
    """Return the part of a CSV file that holds these columns, with or without the header."""
    return csv_lines(chain([columns] if header else [], zip(*columns.values(), strict=True)), escape)
