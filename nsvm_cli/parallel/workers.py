"""A pool of worker processes for independent tasks."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from nsvm_cli.errors import RunError
from nsvm_cli.plugins import plugin_errors

T = TypeVar("T")


class Workers(ProcessPoolExecutor):
    """A pool of processes that run one task at a time.

    They exit as soon as their parent does, even if it is killed, so that no orphan keeps writing files.
    """

    def __init__(self, count: int, begin: Callable[[], object] = int) -> None:
        """Start ``count`` processes, each of which first calls ``begin``; it must be picklable."""
        spawn = multiprocessing.get_context("spawn")
        super().__init__(count, spawn, initializer=_begin, initargs=(begin,))
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited: only the parent acts on Ctrl-C
        for _ in range(count):
            self.submit(int)
        signal.signal(signal.SIGINT, before)

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        for process in multiprocessing.active_children() if failed is not None else ():
            process.kill()
        self.shutdown(cancel_futures=True)

    def submit(self, work: Callable[..., T], /, *arguments: Any, **options: Any) -> Future[T]:
        """Run ``work``, a module-level function, in a worker process; the arguments must be picklable."""
        return super().submit(_work, work, *arguments, **options)


def outcome(future: Future[T]) -> T:
    """Return the result of a task, or raise what it raised.

    Raises:
        RunError: its process died.
    """
    try:
        return future.result()
    except BrokenProcessPool:
        raise RunError(
            "a worker process died (out of memory?); fewer jobs at a time need less memory"
        ) from None


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _begin(begin: Callable[[], object]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    begin()


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
    os._exit(1)


def _work(work: Callable[..., T], *arguments: Any, **options: Any) -> T:
    with plugin_errors():  # here, because an error reaches the parent without its traceback
        return work(*arguments, **options)
