"""Progress of a run: a bar on a terminal, and plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import zip_longest
from typing import Any

import rich.console
from rich.console import ConsoleOptions, RenderableType, RenderResult
from rich.progress import Progress as Tasks
from rich.progress import Task
from rich.progress_bar import ProgressBar
from rich.table import Table

from nsvm_cli.report.console import Console, Form, clock, forms
from nsvm_cli.runs.loop import Callback, Record
from nsvm_cli.trainers import State

SHORTEST_BAR = 10
USUAL_BAR = 5
"""A bar takes this part of the width before figures are named in full."""

GAP = 2

STYLES = ("progress.download", "progress.remaining")
"""Those of the first figures of a line."""


class Progress(Callback):
    """A bar with the live figures on a terminal, and about ten plain lines elsewhere; on stderr.

    Args:
        title: what is trained, in full and in short.
        total: the number of steps.
    """

    def __init__(self, title: Form, total: int) -> None:
        self.total = total
        self.next_line = 0.0
        self.figures: dict[str, Any] = {}
        self.console = Console(sys.stderr)
        self.live = self.console.is_terminal
        self.bar = _Bar(console=self.console, disable=not self.live, speed_estimate_period=float("inf"))
        self.task = self.bar.add_task("", total=total, title=title, figures=[])
        if not self.live:
            self.say(f"{title[0]}: {total} steps")

    def __enter__(self) -> Progress:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def say(self, line: str) -> None:
        """Print a line to stderr."""
        self.console.print(line, soft_wrap=True)

    def on_step_end(self, state: State) -> None:
        self.bar.update(self.task, completed=state.t)

    def on_log(self, state: State, record: Record) -> None:
        if record.get("part") != self.figures.get("part"):  # the objective of Part 1 is not one of Part 2
            self.figures = {}
        self.figures |= {name: value for name, value in record.items() if value is not None}
        step = record["step"]
        self.bar.update(self.task, completed=step, figures=(figures := forms(self.figures)))
        if not self.live and (step >= self.next_line or step == self.total):
            self.next_line = step + self.total / 10
            (count, _), (time, _) = _count(self.bar.tasks[0]), _time(self.bar.tasks[0])
            self.say("  ".join([f"step {count}", time, *(name for name, _ in figures)]))


class _Bar(Tasks):
    """Shows each task in one line."""

    def get_renderables(self) -> Iterable[RenderableType]:
        return map(_Line, self.tasks)


class _Line:
    """A line about a run: as much as the terminal has room for, and a bar that takes the rest."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def __rich_console__(self, console: rich.console.Console, options: ConsoleOptions) -> RenderResult:
        title, figures = self._fitting(options.max_width)
        line = Table.grid(padding=(0, GAP, 0, 0), expand=True, pad_edge=False)
        line.add_column(no_wrap=True)
        line.add_column(ratio=1)
        for _, style in zip_longest(figures, STYLES[: len(figures)], fillvalue=""):
            line.add_column(no_wrap=True, style=style)
        bar = ProgressBar(self.task.total, self.task.completed)
        line.add_row(title, bar, *figures)
        yield line

    def _fitting(self, width: int) -> tuple[str, list[str]]:
        """Return title and figures: as many as leave room for a bar, in full as long as it is not short."""
        pieces = [
            self.task.fields["title"],
            _count(self.task),
            _time(self.task),
            *self.task.fields["figures"],
        ]
        in_full, in_short = ([piece[form] for piece in pieces] for form in (0, 1))
        for shown in range(len(pieces), 1, -1):
            if _length(in_short[:shown]) + SHORTEST_BAR <= width:
                break
        for full in range(shown, -1, -1):
            forms = in_full[:full] + in_short[full:shown]
            if _length(forms) + width // USUAL_BAR <= width:
                break
        return forms[0], forms[1:]


def _length(texts: Iterable[str]) -> int:
    return sum(len(text) + GAP for text in texts)


def _count(task: Task) -> Form:
    count = f"{task.completed:.0f}/{task.total:.0f}"
    return count, count


def _time(task: Task) -> Form:
    elapsed, left = clock(task.elapsed), clock(task.time_remaining)
    return f"{elapsed} elapsed, {left} left", f"{elapsed}<{left}"
