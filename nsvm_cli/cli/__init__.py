"""The ``nsvm`` command. Only what every command needs is imported here: help answers at once."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from nsvm_cli.cli.parser import build_parser
from nsvm_cli.errors import InputError, Interrupted, RunError, out_of_memory, plainly

LONGEST = 1500
"""Characters of a line about an error."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit: 0 done, 1 the run failed, 2 bad input, 130 SIGINT, 143 SIGTERM."""
    sys.exit(_main(list(sys.argv[1:] if argv is None else argv)))


def _main(argv: list[str]) -> int:
    if "_ARGCOMPLETE" in os.environ:  # a shell asks for completions
        from nsvm_cli.cli.completion import complete

        complete()
    if not argv or argv[0] == "help":
        build_parser().print_help()
        return 0 if argv else 2
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        signal.signal(signal.SIGTERM, _end)
    try:
        _run(argv)
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
    except Exception as error:
        if (shortage := out_of_memory(error)) is None:
            raise
        return _complain(shortage, 1)
    return 0


def _run(argv: list[str]) -> None:
    if argv[0] == "train":  # Hydra parses its arguments
        from nsvm_cli.cli.train import train

        train(argv[1:])
        return
    options = build_parser(argv[0]).parse_args(argv)
    options.run(options)


def _end(signum: int, frame: FrameType | None) -> NoReturn:
    raise Interrupted(signum)


def _complain(what: object, code: int) -> int:
    line = textwrap.shorten(str(what), LONGEST, placeholder=" ...")
    # names may come from a file, and a terminal obeys control characters
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
    print(f"nsvm: {shown}", file=sys.stderr)
    return code
