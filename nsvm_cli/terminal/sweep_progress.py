"""Progress of a sweep: a table that is redrawn on a terminal, and a line for each job that ends elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table

from nsvm_cli.terminal.console import GAP, METRIC_FORMATS, Console, clock, forms, score_of

MIN_INTERVAL = 0.5
"""Seconds between two looks at the jobs."""

MAX_LOOK_SHARE = 0.02
"""The share of the time that looking may take."""

QUIET = 60.0
"""Seconds after which a line says how far the jobs are, where there is no terminal."""


@dataclass(frozen=True)
class JobView:
    """One job of a sweep as it is now.

    Attributes:
        settings: its overrides, without those that all jobs share.
        steps: the steps that it takes in all, if it is known.
        record: the last record of its metrics while it runs.
        result: its result once it has finished.
        earlier: whether it had finished before the command started.
        notices: what it has had to say, a line each.
    """

    number: int
    settings: str
    status: str
    steps: int | None = None
    record: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)
    earlier: bool = False
    notices: Sequence[str] = ()

    def __str__(self) -> str:
        return f"job {self.number} ({self.settings})" if self.settings else f"job {self.number}"


class SweepProgress:
    """Shows the jobs of a sweep within the context, on stderr, from a thread of its own.

    Args:
        total: the number of jobs, None if it is up to a sweeper.
    """

    def __init__(self, look: Callable[[], Sequence[JobView]], total: int | None) -> None:
        self.look, self.total = look, total
        self.console = Console(sys.stderr)
        self.live = Live(console=self.console, auto_refresh=False, transient=True)
        self.began = self.spoke = time.monotonic()
        self.told: set[int] = set()
        self.noticed: Counter[int] = Counter()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> SweepProgress:
        if self.console.is_terminal:
            self.live.start()
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        try:
            self.thread.join()
        finally:
            self.live.stop()  # which shows the cursor again

    def _watch(self) -> None:
        pause = 0.0
        while not self.over.wait(pause):
            pause = max(MIN_INTERVAL, self._show() / MAX_LOOK_SHARE)
        self._show()

    def _show(self) -> float:
        """Show the jobs, and return the seconds that it took to look at them."""
        began = time.monotonic()
        try:
            jobs = self.look()
        except OSError:  # a directory that goes while it is read; there is a next time
            return 0.0
        took = time.monotonic() - began
        for job in jobs:
            if not job.earlier:
                self._print_notices(job)
        if self.console.is_terminal:
            self.live.update(self._table(jobs), refresh=True)
        else:
            self._say(jobs)
        return took

    def _say(self, jobs: Sequence[JobView]) -> None:
        ended = [job for job in jobs if _has_ended(job)]
        for job in ended:
            if job.number not in self.told and not job.earlier:
                count = f"{len(ended)}/{self.total}" if self.total else str(len(ended))
                self._print(f"{job}: {_outcome(job)}; {count} ended")
        self.told |= {job.number for job in ended}
        if time.monotonic() - self.spoke > QUIET:
            running = [f"{job}: step {_step(job)}" for job in jobs if job.status == "running"]
            self._print("; ".join([self._summary(jobs), *running]))

    def _print_notices(self, job: JobView) -> None:
        """Print what is new of what a job has to say, above the table: only this process writes there."""
        for line in job.notices[self.noticed[job.number] :]:
            self._print(f"{job}: {line}")
        self.noticed[job.number] = len(job.notices)

    def _print(self, line: str) -> None:
        self.console.print(line, soft_wrap=True)
        self.spoke = time.monotonic()

    def _table(self, jobs: Sequence[JobView]) -> RenderableType:
        """Return a row for each running job; what a narrow terminal lacks room for are figures, and then
        settings.
        """
        running, best = [job for job in jobs if job.status == "running"], best_of(jobs)
        shown = running[: max(1, self.console.height - 4)]
        table = Table.grid(padding=(0, GAP, 0, 0), expand=True)
        table.add_column(justify="right")
        table.add_column(justify="right")
        table.add_column(no_wrap=True, ratio=1)
        longest = max((len(job.settings) for job in shown), default=0)
        for job in shown:
            figures = " ".join(short for _, short in forms(job.record))
            table.add_row(str(job.number), _step(job), f"{job.settings:{longest + GAP}}{figures}")
        more = [f"and {len(running) - len(shown)} more"] if len(running) > len(shown) else []
        last = [f"best so far: {best}: {_figure(best)}"] if best else []
        return Group(self._summary(jobs), table, *more, *last)

    def _summary(self, jobs: Sequence[JobView]) -> str:
        """Return how many jobs there are of each status, and how long the sweep has taken and may take."""
        count = Counter(job.status for job in jobs)
        rare = [status for status in ("failed", "interrupted") if count[status]]
        words = [f"{count[status]} {status}" for status in ("finished", *rare, "running")]
        elapsed = time.monotonic() - self.began
        times = [f"{clock(elapsed)} elapsed"]
        if self.total is not None:
            words.append(f"{self.total - len(jobs)} waiting")
            if here := sum(_has_ended(job) and not job.earlier for job in jobs):
                left = self.total - len(jobs) + count["running"]
                times.append(f"about {clock(elapsed * left / here)} left")
        return f"{', '.join(words)}; {', '.join(times)}"


def best_of(jobs: Sequence[JobView]) -> JobView | None:
    """Return the job with the best score; None unless all have the same metric on the same data set."""
    scored = [(score, job) for job in jobs if (score := score_of(job.result))]
    kinds = {(split, metric, job.result.get("dataset")) for (split, metric, _), job in scored}
    return max(scored, key=lambda of_job: of_job[0][2])[1] if len(kinds) == 1 else None


def _has_ended(job: JobView) -> bool:
    return job.status in ("finished", "failed", "interrupted")


def _outcome(job: JobView) -> str:
    return ", ".join(filter(None, (job.status, _figure(job))))


def _figure(job: JobView) -> str:
    if (score := score_of(job.result)) is None:
        return ""
    split, metric, value = score
    name, shown = METRIC_FORMATS[metric]
    return f"{split} {name} {shown(value)}"


def _step(job: JobView) -> str:
    return f"{job.record.get('step', 0)}/{job.steps or '?'}"
