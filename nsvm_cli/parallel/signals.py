"""SIGINT and SIGTERM while a run trains: the first one ends it in order, the second one at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SHOW_CURSOR = "\x1b[?25h"


class Signals:
    """Notes a signal for the run to act on between two steps.

    A thread listens, because Python's own handlers wait for the main thread to come back from whatever
    library it is in, which may take minutes. Outside the main thread, where Python allows no handlers, no
    signal is noted: whoever owns the main thread acts on them.
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
        # what nohup or a shell's & has had ignored stays ignored
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
        """From now on a first signal ends the process too, with this line: nothing would be lost."""
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
                # a launcher passes its own SIGTERM on after the terminal's SIGINT: that is one wish, not two
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
    """Python passes signals on to the pipe only where there is a handler."""
