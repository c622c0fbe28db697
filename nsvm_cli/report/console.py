"""Console output: progress during training, and tables of results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from nsvm_cli.runs.loop import Record


class Progress:
    """A bar with the live figures on a terminal, and about ten plain lines elsewhere; on stderr.

    With a ``label``, the output is always plain lines that begin with it: several processes share the
    terminal.
    """

    def __init__(self, title: str, total: int, label: str = "") -> None:
        self.total, self.label = total, label
        self.console = Console(stderr=True)
        self.live = self.console.is_terminal and not label
        self.next_line = 0.0
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=10),
            MofNCompleteColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
        )
        self.bar = Bar(*columns, console=self.console, disable=not self.live)
        self.task = self.bar.add_task(escape(title), total=total, figures="")
        if not self.live:
            self.say(f"{title}: {total} steps")

    def __enter__(self) -> Progress:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def say(self, line: str) -> None:
        """Print a line to stderr."""
        self.console.print(self.label + line, markup=False, highlight=False, soft_wrap=True)

    def show(self, record: Record) -> None:
        """Show a record of the training loop."""
        step, violations, vectors = record["step"], record["violations"], record["support_vectors"]
        objective = "" if record["objective"] is None else f"{record['objective']:.3g}"
        if self.live:  # short enough for 80 columns
            self.bar.update(
                self.task, completed=step, figures=f"viol {violations} SV {vectors} obj {objective}"
            )
        elif step >= self.next_line or step == self.total:
            self.next_line = step + self.total / 10
            line = f"step {step}/{self.total}  violations {violations}  support vectors {vectors}"
            line += f"  objective {objective}" if objective else ""
            self.say(line)


def show_result(result: Mapping[str, Any], directory: Path) -> None:
    """Print the result of a run as a table."""
    held_out = "test" if result["test_accuracy"] is not None else "validation"
    _print_table(
        f"{result['algorithm']} on {result['dataset']}, seed {result['seed']}",
        {
            f"{held_out} accuracy": _percent(result[f"{held_out}_accuracy"]),
            f"{held_out} errors": _errors(result, held_out),
            "train accuracy": _percent(result["train_accuracy"]),
            "train errors": _errors(result, "train"),
            "steps": result["steps"],
            "violations": result["violations"],
            "support vectors": result["support_vectors"],
            "kernel alignment": "undefined" if result["alignment"] is None else f"{result['alignment']:.4f}",
            "training time": f"{result['train_seconds']:.1f} s",
        },
    )
    Console().print(f"Run directory: {directory}", markup=False, highlight=False, soft_wrap=True)


def show_evaluation(figures: Mapping[str, Any]) -> None:
    """Print the result of ``nsvm evaluate`` as a table."""
    _print_table(
        str(figures["checkpoint"]),
        {
            "data": figures["source"],
            "same data as in training": "yes" if figures["same_data"] else "no",
            "split": figures["split"],
            "accuracy": _percent(figures["accuracy"]),
            "errors": f"{figures['errors']} of {figures['samples']}",
            "algorithm": figures["algorithm"],
            "support vectors": figures["support_vectors"],
        },
    )


def _print_table(title: str, rows: Mapping[str, object]) -> None:
    table = Table(title=escape(title), title_justify="left", show_header=False)
    for name, value in rows.items():
        table.add_row(name, escape(str(value)))
    Console().print(table)


def _percent(accuracy: float) -> str:
    return f"{100 * accuracy:.2f} %"


def _errors(result: Mapping[str, Any], split: str) -> str:
    return f"{result[f'{split}_errors']} of {result['data']['samples'][split]}"
