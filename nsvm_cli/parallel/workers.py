"""A pool of worker processes for independent tasks."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from nsvm_cli.errors import RunError
from nsvm_cli.plugins import plugin_errors

T = TypeVar("T")


class Workers:
    """A pool of processes that run one task at a time.

    They exit as soon as their parent does, even if it is killed, so that no orphan keeps writing files.
    """

    def __init__(self, count: int, begin: Callable[[], object] = int) -> None:
        """Start ``count`` processes, each of which first calls ``begin``; it must be picklable."""
        context = multiprocessing.get_context("spawn")
        theirs, self._lifeline = context.Pipe(duplex=False)
        self._pool = ProcessPoolExecutor(count, context, initializer=_begin, initargs=(theirs, begin))
        with _interrupts_ignored():  # inherited: only the parent acts on Ctrl-C, even while they start
            for _ in range(count):
                self._pool.submit(int)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if failed is not None:
            self.stop()
        self._pool.shutdown(cancel_futures=True)
        self._lifeline.close()

    def stop(self) -> None:
        """Terminate the processes at once, whatever they are doing."""
        self._lifeline.close()

    def submit(self, work: Callable[..., T], *arguments: Any) -> Future[T]:
        """Run ``work``, a module-level function, in a worker process; the arguments must be picklable."""
        return self._pool.submit(_work, work, *arguments)


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


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _begin(lifeline: Connection, begin: Callable[[], object]) -> None:
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
    begin()


def _work(work: Callable[..., T], *arguments: Any) -> T:
    with plugin_errors():  # here, because an error reaches the parent without its traceback
        return work(*arguments)


def _end_with(lifeline: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        lifeline.recv()  # nothing is ever sent; this returns once the other end is closed
    os._exit(1)
