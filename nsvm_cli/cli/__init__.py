"""The ``nsvm`` command. Only what every command needs is imported here: help answers at once."""

from __future__ import annotations

import signal
import sys
import textwrap
from collections.abc import Callable, Sequence
from importlib import import_module
from types import FrameType
from typing import NoReturn

from nsvm_cli import __version__
from nsvm_cli.errors import InputError, Interrupted, RunError, did_you_mean, plainly

HELP = """\
usage: nsvm COMMAND [ARGUMENTS]

Train and evaluate neural support vector machines (Simon & Radons 2023).

commands:
  train [OVERRIDE ...]          train a model:  nsvm train algorithm=alg3 dataset=mnist
  reproduce [KEY=VALUE ...]     run the paper's experiments over many seeds, beside peers
  tune [OVERRIDE ...]           choose hyperparameters on validation data
  evaluate PATH [OVERRIDE ...]  evaluate a trained model, given its run directory or checkpoint file
  curves RUN ...                draw the training curves of runs
  completion SHELL              print completion for bash, zsh or fish

options:
  -h, --help                    this text; nsvm COMMAND --help tells more
  --version                     the version
"""

COMMANDS = {name: name for name in ("train", "tune", "reproduce", "evaluate", "curves", "completion")}
LONGEST = 1500
"""Characters of a line about an error."""

COMMANDS["__complete"] = "completion"


def main(argv: Sequence[str] | None = None) -> None:
    """Runs one command and exits: 0 done, 1 the run failed, 2 bad input, 130 SIGINT, 143 SIGTERM."""
    sys.exit(_main(list(sys.argv[1:] if argv is None else argv)))


def _main(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0 if argv else 2
    if argv[0] == "--version":
        print(f"nsvm {__version__}")
        return 0
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        signal.signal(signal.SIGTERM, _end)
    try:
        _command(argv[0])(argv[1:])
    except InputError as error:
        return _complain(error, 2)
    except RunError as error:
        return _complain(error, 1)
    except Interrupted as error:
        return _complain(error, 128 + error.signum)
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except BrokenPipeError:
        sys.stderr.close()  # nobody reads on; without this the interpreter complains at exit
        return 1
    except OSError as error:
        return _complain(plainly(error), 1)
    return 0


def _end(signum: int, frame: FrameType | None) -> NoReturn:
    raise Interrupted(signum)


def _command(name: str) -> Callable[[list[str]], None]:
    if name not in COMMANDS:
        shown = [command for command in COMMANDS if not command.startswith("_")]
        raise InputError(f"there is no command {name!r}; {did_you_mean(name, shown)}; see nsvm --help")
    module = import_module(f"nsvm_cli.cli.{COMMANDS[name]}")
    command: Callable[[list[str]], None] = getattr(module, name.strip("_"))
    return command


def _complain(what: object, code: int) -> int:
    line = textwrap.shorten(str(what), LONGEST, placeholder=" ...")
    # names may come from a file, and a terminal obeys control characters
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
    print(f"nsvm: {shown}", file=sys.stderr)
    return code
