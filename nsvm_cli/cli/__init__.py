"""The ``nsvm`` command. It imports the libraries of a command only to run it: help appears at once."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from nsvm_cli.cli.parser import COMMANDS, build_parser, complete, module_of, parse
from nsvm_cli.errors import InputError, Interrupted, RunError, message_of
from nsvm_cli.output import details, flash, say, standard_streams
from nsvm_cli.plugins import load_plugins, plugin_errors

ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU)


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit: 0 done, 1 the run failed, 2 bad input, 128 plus its number for a signal."""
    words = list(sys.argv[1:] if argv is None else argv)
    with standard_streams() as lost:
        code = _main(words)
        sys.stdout.flush()
        if lost and not code and words[0] not in ("train", "tune", "reproduce"):  # whose results are files
            code = 1
            if not isinstance(lost[0], BrokenPipeError):  # a closed pipe needs no message
                _complain(f"standard output: {lost[0].strerror}", code)
    sys.exit(code)


def _main(argv: list[str]) -> int:
    if "_ARGCOMPLETE" in os.environ:  # a shell asks for completions
        complete()
    os.environ["PYTHONSAFEPATH"] = "1"  # for worker processes, which import nothing from the current folder
    if not argv or argv[0] == "help":
        build_parser().print_help()
        return 0 if argv else 2
    gc.set_threshold(50_000)  # importing torch creates 260,000 objects, none of them garbage
    atexit.register(gc.freeze)  # skips the collection at exit
    for signum in ENDING:
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, _end)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # only training can write a checkpoint
    try:
        with plugin_errors():
            _run(*argv)
    except Interrupted as error:
        return _complain(error, 128 + error.signum)
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except (InputError, RunError, OSError) as error:
        return _complain(error, 2 if isinstance(error, InputError) else 1)
    return 0


def _run(name: str, *words: str) -> None:
    flash("starting")
    if name not in COMMANDS:
        build_parser().parse_args([name, *words])  # an unknown command, or a flag such as --version
    command = getattr(module_of(name), name)
    if name == "train":
        command([*words])  # which hands them to Hydra
    else:
        options = parse(name, words)
        load_plugins(getattr(options, "plugins", ()))
        command(options)


def _end(signum: int, frame: FrameType | None) -> NoReturn:
    raise Interrupted(signum)


def _complain(problem: object, code: int) -> int:
    """Print an error or a message in one line, and return the exit code."""
    if isinstance(problem, Exception):
        for line in details(problem) if os.environ.get("HYDRA_FULL_ERROR") == "1" else ():
            say(line)
        problem = message_of(problem)
    say(f"nsvm: {' '.join(str(problem).split())}")
    return code
