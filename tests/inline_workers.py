"""Worker processes that are none."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from copy import copy
from typing import Any, TypeVar

from nsvm_cli.parallel import workers

T = TypeVar("T")


class InlineWorkers(workers.Workers):
    """Does the work in this process, at once; when it is stopped, nothing is left to do."""

    def __init__(self, count: int, begin: Callable[[], object] = int) -> None:
        begin()

    def __exit__(self, *_: object) -> None:
        pass

    def stop(self) -> None:
        pass

    def submit(self, work: Callable[..., T], *arguments: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(workers._work(work, *arguments))
        except BaseException as error:
            future.set_exception(copy(error))  # as from another process, without its traceback
        return future
