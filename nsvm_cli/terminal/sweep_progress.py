"""Progress of a sweep: a line for each job that ends, and on a terminal a bar over all."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence

from nsvm_cli.terminal.console import Console, progress_bar

INTERVAL, SHARE = 0.5, 0.02
"""Seconds between two looks at the jobs, and the most of a core that these may take."""


class SweepProgress:
    """Shows the jobs of a sweep within the context, on stderr, from a thread of its own.

    Args:
        look: returns the lines to print about what is new, and the number of jobs that have ended.
        total: the number of jobs, None if it is up to a sweeper.
    """

    def __init__(self, look: Callable[[], tuple[Sequence[str], int]], total: int | None) -> None:
        self.look = look
        self.console = Console(sys.stderr)
        self.bar = progress_bar(self.console)
        self.task = self.bar.add_task("jobs", total=total)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> SweepProgress:
        self.bar.start()
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        try:
            self.thread.join()
        finally:
            self.bar.stop()  # which shows the cursor again

    def _watch(self) -> None:
        took = self._show()
        while not self.over.wait(max(INTERVAL, took / SHARE)):
            took = self._show()
        self._show()

    def _show(self) -> float:
        """Show what is new, and return the seconds that it took to find it."""
        began = time.monotonic()
        try:
            lines, ended = self.look()
        except OSError:  # a directory was removed while it was read: there is a next time
            return time.monotonic() - began
        for line in lines:
            self.console.print(line, soft_wrap=True)
        self.bar.update(self.task, completed=ended)
        return time.monotonic() - began
