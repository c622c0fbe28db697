"""What signals ask for, where they cannot be handled, and how the end by one crosses processes."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable

import pytest

from nsvm_cli.errors import Interrupted, NotFiniteError
from nsvm_cli.parallel.signals import Signals

Noted = Callable[..., tuple[int | None, list[int]]]


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Noted:
    """Return a function that sends signals, and returns which is noted and which end this process at once."""
    at_once: list[int] = []
    monkeypatch.setattr(Signals, "_leave", lambda self, signum: at_once.append(signum))

    def send(*signums: int) -> tuple[int | None, list[int]]:
        before = {*threading.enumerate()}
        with Signals() as signals:
            (listener,) = {*threading.enumerate()} - before
            for signum in signums:
                os.kill(os.getpid(), signum)
        listener.join(60)
        return signals.noted, at_once

    return send


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU])
def test_a_request_to_stop_may_be_sent_twice(signum: int, noted: Noted) -> None:
    """timeout(1) signals its child and then the group; a terminal that closes sends two SIGHUPs."""
    assert noted(signum, signum) == (signum, [])


def test_only_what_a_person_repeats_stops_at_once(noted: Noted, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel sends SIGXCPU every second from the limit on."""
    monkeypatch.setattr("nsvm_cli.parallel.signals.ONE_REQUEST", -1)
    again = (signal.SIGXCPU, signal.SIGXCPU, signal.SIGHUP, signal.SIGHUP)
    assert noted(*again) == (signal.SIGXCPU, [])
    assert noted(*again, signal.SIGINT) == (signal.SIGXCPU, [signal.SIGINT])


def test_what_ends_a_job_crosses_processes() -> None:
    copy = pickle.loads(pickle.dumps(Interrupted(15, "interrupted after step 3")))
    assert (type(copy), copy.signum, str(copy)) == (Interrupted, 15, "interrupted after step 3")
    copy = pickle.loads(pickle.dumps(NotFiniteError("g", 3)))
    assert (type(copy), str(copy)) == (NotFiniteError, "g is not finite at step 3")
