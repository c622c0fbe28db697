"""Signals during training. Most signals stop the run between two steps; SIGUSR1 requests a checkpoint."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

from nsvm_cli.output import printable

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU)
INSISTING = (signal.SIGINT, signal.SIGTERM)
"""Signals that end the process if sent a second time. SIGHUP may be sent twice when a terminal closes, and
SIGXCPU is sent every second."""

ONE_REQUEST = 0.1
"""Number of seconds within which a repeated signal counts once. timeout(1) sends a signal twice."""


class Signals(contextlib.ExitStack):
    """Context manager that records signals, so that the run can react to them between two steps.

    No signals are recorded outside the main thread, where Python allows no signal handlers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.noted: int | None = None
        self._checkpoint_wanted = False
        self._last_words: str | None = None

    def __enter__(self) -> Signals:
        if threading.current_thread() is not threading.main_thread():
            return self
        listening, writing = os.pipe()
        os.set_blocking(writing, False)  # set_wakeup_fd requires it
        self.callback(os.close, writing)
        before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        self.callback(signal.set_wakeup_fd, before)
        # nohup and a shell's & ignore some signals, which must remain ignored
        handled = [signum for signum in STOPPING if signal.getsignal(signum) is not signal.SIG_IGN]
        if signal.getsignal(signal.SIGUSR1) in (signal.SIG_DFL, signal.SIG_IGN):  # no launcher handles it
            handled.append(signal.SIGUSR1)
        for signum in handled:  # Python writes a signal to the pipe only if the signal has a Python handler
            self.callback(signal.signal, signum, signal.signal(signum, lambda *_: None))
        # a thread can react while the main thread is in native code, which may take minutes
        threading.Thread(target=self._listen, args=(listening,), daemon=True).start()
        return self

    def take_checkpoint_request(self) -> bool:
        """Return whether a checkpoint has been requested since the last call."""
        if not self._checkpoint_wanted:  # the next call returns a request that arrives after this line
            return False
        self._checkpoint_wanted = False
        return True

    def end_at_once(self, last_words: str) -> None:
        """From now on, end the process with the message ``last_words`` at the first signal."""
        self._last_words = last_words
        if self.noted is not None:
            self._leave(self.noted)

    def _listen(self, listening: int) -> None:
        first: dict[int, float] = {}
        with os.fdopen(listening, "rb", buffering=0) as pipe:
            while byte := pipe.read(1):
                signum, now = byte[0], time.monotonic()
                if signum == signal.SIGUSR1:
                    self._checkpoint_wanted = True
                if signum not in STOPPING:
                    continue
                # a launcher sends SIGTERM after Ctrl-C; both together are a single request
                again = now - first.setdefault(signum, now) > ONE_REQUEST
                if self._last_words is not None or (again and signum in INSISTING):
                    self._leave(signum)
                self.noted = self.noted or signum

    def _leave(self, signum: int) -> None:
        show_cursor = "\x1b[?25h" if os.isatty(2) else ""
        line = f"nsvm: {printable(self._last_words or 'interrupted at once')}\n"
        with contextlib.suppress(OSError):  # standard error may be closed
            os.write(2, f"{show_cursor}{line}".encode())
        os._exit(128 + signum)
