"""The ``nsvm`` command. It imports a command's libraries only to run the command, so that help is fast."""

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

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU)


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit with 0 (success), 1 (failed run), 2 (invalid input) or 128 + signal number."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    with standard_streams() as errors:
        code = _main(arguments)
        sys.stdout.flush()
        writes_files = ("train", "tune", "reproduce")  # these commands succeed without standard output
        if errors and not code and arguments[0] not in writes_files:
            code = 1
            if not isinstance(errors[0], BrokenPipeError):  # a closed pipe needs no message
                _complain(f"standard output: {errors[0].strerror}", code)
    sys.exit(code)


def _main(argv: list[str]) -> int:
    if "_ARGCOMPLETE" in os.environ:  # a shell requests completions
        complete()
    os.environ["PYTHONSAFEPATH"] = "1"  # keeps the current folder off the path of worker processes
    if not argv or argv[0] == "help":
        build_parser().print_help()
        return 0 if argv else 2
    gc.set_threshold(50_000)  # importing torch creates 260,000 objects, none of them garbage
    atexit.register(gc.freeze)  # skips the collection at exit
    for signum in ENDING:
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, _end)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # only training handles a signal, by writing a checkpoint
    try:
        with plugin_errors():
            _run(*argv)
    except Interrupted as error:
        return _complain(error, 128 + error.signum)
    except (InputError, RunError, OSError) as error:
        return _complain(error, 2 if isinstance(error, InputError) else 1)
    return 0


def _run(name: str, *arguments: str) -> None:
    flash("starting")
    if name not in COMMANDS:
        build_parser().parse_args([name, *arguments])  # handles --version, and raises for an unknown command
    command = getattr(module_of(name), name)
    if name == "train":
        command([*arguments])  # train passes them to Hydra
    else:
        options = parse(name, arguments)
        load_plugins(getattr(options, "plugins", ()))
        command(options)


def _end(signum: int, frame: FrameType | None) -> NoReturn:
    raise Interrupted(signum)


def _complain(problem: object, code: int) -> int:
    """Print an error or a message as one line, and return ``code``."""
    if isinstance(problem, Exception):
        for line in details(problem) if os.environ.get("HYDRA_FULL_ERROR") == "1" else ():
            say(line)
        problem = message_of(problem)
    say(f"nsvm: {' '.join(str(problem).split())}")
    return code
