"""Console output: tables of results."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rich.console
from rich.table import Table
from rich.text import Text

from nsvm_cli.output import answer, printable


class Console(rich.console.Console):
    """A rich console that prints strings as they are: without markup, emoji codes or control characters.

    What the encoding of the stream lacks is written as an escape.
    """

    def __init__(self, file: Any = None) -> None:
        # rich asks a stream for its encoding only if it is given one
        super().__init__(file=file or sys.stdout, highlight=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Convert a string; rich calls this for each one that it is given."""
        shown = printable(text).encode(self.encoding, "backslashreplace").decode(self.encoding)
        return super().render_str(shown, **{**options, "markup": False, "emoji": False})


def show_result(result: Mapping[str, Any], directory: Path) -> None:
    """Print the result of a run as a table."""
    held_out = "test" if result["test_accuracy"] is not None else "validation"
    _print_table(
        f"{result['algorithm']} on {result['dataset']}, seed {result['seed']}",
        {
            f"{held_out} accuracy": percent(result[f"{held_out}_accuracy"]),
            f"{held_out} errors": _errors(result, held_out),
            "train accuracy": percent(result["train_accuracy"]),
            "train errors": _errors(result, "train"),
            "steps": result["steps"],
            "violations": result["violations"],
            "support vectors": result["support_vectors"],
            "kernel alignment": "undefined" if result["alignment"] is None else f"{result['alignment']:.4f}",
            "training time": f"{result['train_seconds']:.1f} s",
        },
    )
    answer(f"Run directory: {directory}")


def show_evaluation(figures: Mapping[str, Any]) -> None:
    """Print the result of ``nsvm evaluate`` as a table."""
    _print_table(
        str(figures["checkpoint"]),
        {
            "data": figures["source"],
            "same data as in training": "yes" if figures["same_data"] else "no",
            "split": figures["split"],
            "accuracy": percent(figures["accuracy"]),
            "errors": f"{figures['errors']} of {figures['samples']}",
            "algorithm": figures["algorithm"],
            "support vectors": figures["support_vectors"],
        },
    )


def _print_table(title: str, rows: Mapping[str, object]) -> None:
    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in rows.items():
        table.add_row(name, str(value))
    Console().print(table)


def percent(accuracy: float) -> str:
    return f"{100 * accuracy:.2f} %"


def _errors(result: Mapping[str, Any], split: str) -> str:
    return f"{result[f'{split}_errors']} of {result['data']['samples'][split]}"
