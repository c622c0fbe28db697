"""The ``nsvm`` command. Only what every command needs is imported here: help answers at once."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from nsvm_cli.cli.parser import build_parser
from nsvm_cli.errors import InputError, Interrupted, RunError, message_of
from nsvm_cli.output import flash, say, say_details, standard_streams
from nsvm_cli.plugins import explain, is_of_plugin

LONGEST = 1500
"""Characters of a line about an error."""

NEW_OBJECTS = 50_000
"""So many make Python look for garbage; importing torch makes 260,000, and none of these is garbage."""

ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU)
LASTING = ("train", "tune", "reproduce")
"""The commands whose results are files: what they print may be lost."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit: 0 done, 1 the run failed, 2 bad input, 128 plus its number for a signal."""
    words = list(sys.argv[1:] if argv is None else argv)
    with standard_streams() as lost:
        code = _main(words)
        sys.stdout.flush()
        if lost and not code and words[0] not in LASTING:
            code = 1
            if not isinstance(lost[0], BrokenPipeError):  # who reads no further wants to hear no more
                _complain(f"standard output: {lost[0].strerror}", code)
    sys.exit(code)


def _main(argv: list[str]) -> int:
    if "_ARGCOMPLETE" in os.environ:  # a shell asks for completions
        from nsvm_cli.cli.completion import complete

        complete()
    os.environ["PYTHONSAFEPATH"] = "1"  # for worker processes, which import nothing from the current folder
    if not argv or argv[0] == "help":
        build_parser().print_help()
        return 0 if argv else 2
    gc.set_threshold(NEW_OBJECTS)
    for signum in ENDING:
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, _end)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # there is nothing to save but in training
    try:
        _run(argv)
    except Interrupted as error:
        return _complain(error, 128 + error.signum)
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except Exception as error:
        known = error if isinstance(error, (InputError, RunError)) else explain(error)
        if not isinstance(known, (InputError, RunError, OSError)):
            raise
        return _complain(known, 2 if isinstance(known, InputError) else 1)
    return 0


def _run(argv: list[str]) -> None:
    flash("starting")
    if argv[0] == "train":  # Hydra parses its arguments
        from nsvm_cli.cli.train import train

        train(argv[1:])
        return
    options = build_parser(argv[0]).parse_args(argv)
    options.run(options)


def _end(signum: int, frame: FrameType | None) -> NoReturn:
    raise Interrupted(signum)


def _complain(what: object, code: int) -> int:
    line = str(what)
    if isinstance(what, Exception):
        say_details(what, full := os.environ.get("HYDRA_FULL_ERROR") == "1")
        line = message_of(what)
        if not full and is_of_plugin(what.__cause__):
            line += "; HYDRA_FULL_ERROR=1 shows the traceback"
    line = " ".join(line.split())
    if len(line) > LONGEST:  # the reason is at the end
        line = f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"
    say(f"nsvm: {line}")
    return code
