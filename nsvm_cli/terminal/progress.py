"""Progress of a run: a bar on a terminal, and plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
from datetime import timedelta
from typing import Any

from rich.progress import TextColumn
from rich.table import Column

from nsvm_cli.runs.loop import Callback, Record
from nsvm_cli.terminal.console import Console, progress_bar
from nsvm_cli.trainers import State
from nsvm_cli.words import figures_of


class Progress(Callback):
    """Shows a bar with metrics for each part in a terminal or notebook, and about ten lines elsewhere."""

    seconds = 10.0  # interval of the first lines with the elapsed time; later intervals are longer

    def __init__(self, title: str) -> None:
        self.next_line, self.has_ended = 0.0, threading.Event()
        self.figures: dict[str, Any] = {}
        self.console = Console(sys.stderr)
        figures = TextColumn("{task.fields[figures]}", table_column=Column(no_wrap=True, ratio=2))
        self.bar = progress_bar(self.console, figures)
        self.task = self.bar.add_task(title, total=None, figures="")  # an algorithm may first choose settings
        self.draw: Any = str  # in a notebook, replaces the bars that are shown
        self.has_bars = self.console.is_terminal or self.console.is_jupyter

    def __enter__(self) -> Progress:
        self.bar.start()
        if self.console.is_jupyter:
            from IPython.display import display

            self.draw = display(self.bar, display_id=True).update
        if not self.has_bars:
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, error: object, *_: object) -> None:
        self.has_ended.set()
        if error is None:
            self._end()
        self.bar.stop()
        self.draw(self.bar)

    def _watch(self) -> None:
        while not self.has_ended.wait(max(self.seconds, (self.bar.tasks[-1].elapsed or 0) / 10)):
            if (task := self.bar.tasks[-1]).total is None:
                self.say(f"{task.description}: {_clock(task.elapsed)} elapsed")

    def say(self, line: str) -> None:
        self.console.print(line, soft_wrap=True)

    def on_train_start(self) -> None:
        self.steps, self.total = self.trainer.part_steps, self.trainer.total
        parts = zip(self.trainer.parts, self.steps, strict=False)
        self.totals = [None if part.chooses_steps else steps for part, steps in parts]
        self.bar.update(self.task, total=self.totals[0])
        if not self.has_bars:
            self.say(f"{self.bar.tasks[0].description}: {self.total} steps")

    def on_step_end(self, state: State) -> None:
        self._move(state.t, state.part)
        self.draw(self.bar)

    def on_train_end(self, state: State, stopped: str | None) -> None:
        self._begin("model and scores")

    def _begin(self, title: str, total: int | None = None) -> None:
        """Fill the last bar, and add a bar, by default for work whose number of steps is unknown."""
        self._end()
        self.task = self.bar.add_task(title, total=total, figures="")

    def _end(self) -> None:
        """Fill the last bar. Work without steps counts as one step."""
        done = self.bar.tasks[-1].completed or 1
        self.bar.update(self.task, completed=done, total=done)

    def _move(self, t: int, part: int | None) -> None:
        number = part or 1
        if len(self.bar.tasks) < number:
            self._begin(f"Part {number}", self.totals[number - 1])
        self.bar.update(self.task, completed=t - sum(self.steps[: number - 1]))

    def on_log(self, state: State, record: Record) -> None:
        if record.get("part") != self.figures.get("part"):  # each part has its own objective
            self.figures = {}
        self.figures |= {name: value for name, value in record.items() if value is not None}
        step, figures = record["step"], figures_of(self.figures)
        self._move(step, state.part)
        self.bar.update(self.task, figures=" ".join(figures))
        if not self.has_bars and (step >= self.next_line or step == self.total):
            self.next_line = step + self.total / 10
            elapsed, remaining = self.bar.tasks[0].elapsed, self.bar.tasks[-1].time_remaining
            left = "" if remaining is None else f", {_clock(remaining)} left"
            self.say("  ".join([f"step {step}/{self.total}", f"{_clock(elapsed)} elapsed{left}", *figures]))


def _clock(seconds: float | None) -> timedelta:
    return timedelta(seconds=int(seconds or 0))
