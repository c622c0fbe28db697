"""A pool of worker processes for independent tasks."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from nsvm_cli.errors import RunError


class Workers(ProcessPoolExecutor):
    """A pool of worker processes, which exit with their parent, even if the parent is killed."""

    def __init__(self, count: int) -> None:
        super().__init__(count, multiprocessing.get_context("spawn"), initializer=_follow_parent)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the workers inherit this and ignore Ctrl-C
        for _ in range(count):
            self.submit(int)
        signal.signal(signal.SIGINT, before)

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        """Wait for the processes or, after an error, kill them. Raise a RunError if a process has died."""
        for process in multiprocessing.active_children() if failed is not None else ():
            process.kill()
        self.shutdown(cancel_futures=True)
        if failed is BrokenProcessPool:
            advice = "run fewer jobs at a time, to use less memory"
            raise RunError(f"a worker process died, possibly out of memory: {advice}") from None


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _follow_parent() -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
    os._exit(1)
