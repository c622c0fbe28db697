"""Where signals cannot be handled, and how the end by one gets from one process to another."""

from __future__ import annotations

import pickle
import signal
from concurrent.futures import ThreadPoolExecutor

from nsvm_cli.errors import Interrupted
from nsvm_cli.parallel.signals import Signals


def test_outside_the_main_thread_none_is_noted() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def work() -> int | None:
        with Signals() as signals:
            assert signal.getsignal(signal.SIGTERM) is before
            signals.end_at_once("nothing to save")
            return signals.noted

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(work).result() is None


def test_an_interruption_crosses_processes() -> None:
    copy = pickle.loads(pickle.dumps(Interrupted(15, "interrupted after step 3")))
    assert (type(copy), copy.signum, str(copy)) == (Interrupted, 15, "interrupted after step 3")
