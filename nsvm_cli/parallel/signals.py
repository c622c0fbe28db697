"""SIGINT and SIGTERM during training: the first signal stops the run cleanly, the second one at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SHOW_CURSOR = "\x1b[?25h"


class Signals:
    """Context manager that records a signal, for the run to act on between two steps.

    A thread listens for signals, because Python runs its handlers only once the main thread returns from
    native code, which may take minutes. Outside the main thread, where Python allows no handlers, it records
    nothing: signals are up to whoever owns the main thread.
    """

    def __init__(self) -> None:
        self.noted: int | None = None
        self._last_words: str | None = None

    def __enter__(self) -> Signals:
        self._handling = threading.current_thread() is threading.main_thread()
        if not self._handling:
            return self
        listening, self._writing = os.pipe()
        os.set_blocking(self._writing, False)  # as set_wakeup_fd asks
        # signals that nohup or a shell's & had ignored stay ignored
        heeded = [signum for signum in SIGNALS if signal.getsignal(signum) is not signal.SIG_IGN]
        self._wakeup_before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        self._before = {signum: signal.signal(signum, _do_nothing) for signum in heeded}
        threading.Thread(target=self._listen, args=(listening,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._handling:
            return
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._writing)

    def end_at_once(self, last_words: str) -> None:
        """Let the first signal end the process too, printing this line: nothing is left to save."""
        self._last_words = last_words
        if self.noted is not None:
            self._leave(self.noted)

    def _listen(self, listening: int) -> None:
        seen: set[int] = set()
        with os.fdopen(listening, "rb", buffering=0) as pipe:
            while byte := pipe.read(1):
                signum = byte[0]
                if signum not in SIGNALS:
                    continue
                # after Ctrl-C a launcher also forwards its own SIGTERM: together they are one request to stop
                if self._last_words is not None or signum in seen:
                    self._leave(signum)
                seen.add(signum)
                self.noted = self.noted or signum

    def _leave(self, signum: int) -> None:
        if sys.stderr.isatty():
            os.write(2, SHOW_CURSOR.encode())
        os.write(2, f"nsvm: {self._last_words or 'interrupted at once'}\n".encode())
        os._exit(128 + signum)


def _do_nothing(signum: int, frame: FrameType | None) -> None:
    """Ignore the signal. Python writes a signal to the wakeup pipe only if a Python handler is set."""
