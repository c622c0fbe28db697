"""Signals during training, and errors that are passed between processes."""

from __future__ import annotations

import math
import os
import pickle
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nsvm_cli.errors import Interrupted, NotFiniteError
from nsvm_cli.parallel.signals import Signals
from tests.patience import PATIENCE


@contextmanager
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Signals, list[int]]]:
    """Context manager: yield a ``Signals``, and a list of the signals that would have ended this process."""
    at_once: list[int] = []
    monkeypatch.setattr(Signals, "_leave", lambda self, signum: at_once.append(signum))
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores this signal
    try:
        with Signals() as signals:
            yield signals, at_once
    finally:
        signal.signal(signal.SIGHUP, before)


def send(signals: Signals, *signums: int) -> None:
    """Send signals to this process, followed by SIGUSR1, and wait until the listener has read SIGUSR1."""
    for signum in (*signums, signal.SIGUSR1):
        os.kill(os.getpid(), signum)
    deadline = time.monotonic() + PATIENCE
    while not signals.take_checkpoint_request():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU])
def test_a_request_to_stop_may_be_sent_twice(signum: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """timeout(1) signals its child and then the process group. A closing terminal may send SIGHUP twice."""
    monkeypatch.setattr("nsvm_cli.parallel.signals.ONE_REQUEST", math.inf)  # however slow this machine is
    with ends(monkeypatch) as (signals, at_once):
        send(signals, signum, signum)
        assert (signals.noted, at_once) == (signum, [])


def test_only_what_a_person_repeats_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel sends SIGXCPU every second once the CPU time limit is reached."""
    monkeypatch.setattr("nsvm_cli.parallel.signals.ONE_REQUEST", -1)
    with ends(monkeypatch) as (signals, at_once):
        send(signals, signal.SIGXCPU, signal.SIGXCPU, signal.SIGHUP, signal.SIGHUP)
        assert (signals.noted, at_once) == (signal.SIGXCPU, [])
        send(signals, signal.SIGINT)
        assert at_once == [signal.SIGINT]


def test_a_request_for_a_checkpoint_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with ends(monkeypatch) as (signals, at_once):
        send(signals)
        assert (signals.noted, at_once) == (None, [])
        assert not signals.take_checkpoint_request(), "a request should be returned only once"


def test_what_ends_a_job_crosses_processes() -> None:
    copy = pickle.loads(pickle.dumps(Interrupted(15, "interrupted after step 3")))
    assert (type(copy), copy.signum, str(copy)) == (Interrupted, 15, "interrupted after step 3")
    copy = pickle.loads(pickle.dumps(NotFiniteError("g", 3)))
    assert (type(copy), str(copy)) == (NotFiniteError, "g is not finite at step 3")
