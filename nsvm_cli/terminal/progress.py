"""Progress of a run: a bar on a terminal, and plain lines elsewhere."""

from __future__ import annotations

import sys
from typing import Any

from rich.progress import TextColumn
from rich.table import Column

from nsvm_cli.runs.loop import Callback, Record
from nsvm_cli.terminal.console import Console, progress_bar
from nsvm_cli.trainers import State
from nsvm_cli.words import clock, figures_of


class Progress(Callback):
    """A bar with the live figures on a terminal, and about ten plain lines elsewhere; on stderr."""

    def __init__(self, title: str, total: int) -> None:
        self.total = total
        self.next_line = 0.0
        self.figures: dict[str, Any] = {}
        self.console = Console(sys.stderr)
        figures = TextColumn("{task.fields[figures]}", table_column=Column(no_wrap=True, ratio=2))
        self.bar = progress_bar(self.console, figures)
        self.task = self.bar.add_task(title, total=total, figures="")
        if not self.console.is_terminal:
            self.say(f"{title}: {total} steps")

    def __enter__(self) -> Progress:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def say(self, line: str) -> None:
        self.console.print(line, soft_wrap=True)

    def on_step_end(self, state: State) -> None:
        self.bar.update(self.task, completed=state.t)

    def on_log(self, state: State, record: Record) -> None:
        if record.get("part") != self.figures.get("part"):  # the objective of Part 1 is not one of Part 2
            self.figures = {}
        self.figures |= {name: value for name, value in record.items() if value is not None}
        step, figures = record["step"], figures_of(self.figures)
        self.bar.update(self.task, completed=step, figures=" ".join(figures))
        if not self.console.is_terminal and (step >= self.next_line or step == self.total):
            self.next_line = step + self.total / 10
            task = self.bar.tasks[0]
            times = f"{clock(task.elapsed)} elapsed, {clock(task.time_remaining)} left"
            self.say("  ".join([f"step {step}/{self.total}", times, *figures]))
