"""``nsvm compile``: compile the steps of all experiments ahead."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from nsvm_cli.cli.parser import CommandParser
from nsvm_cli.compose.composition import compose_settings, conf_folder
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.output import answer, say

DESCRIPTION = """\
Compile what takes the steps of small networks, for the settings of all
experiments and on all cores, so that no run has to: for a cluster, or an image
of a container. Without it, the first run with other settings compiles what it
needs, in some fifteen seconds. Needs the extra "fast".
"""
EPILOG = """\
examples:
  nsvm compile
"""


def configure(parser: CommandParser) -> None:
    """Add the arguments of the command, of which there are none."""


def compile(options: argparse.Namespace) -> None:  # the command is called so
    """Compile, with a line for each unit."""
    from nsvm_cli.engines.numba.code import code_folder

    warmup(lambda unit: say(f"compiling {unit}"))
    answer(f"compiled: {code_folder()}")


def warmup(say: Callable[[str], None] = lambda unit: None) -> None:
    """Compile what takes the steps of all experiments, unless that is done.

    Args:
        say: is told the name of what is compiled next.

    Raises:
        InputError: Numba is not installed.
        RunError: there is no folder to keep the code in, or it cannot be compiled.
    """
    from nsvm_cli.config.settings import parse_settings
    from nsvm_cli.engines import numba
    from nsvm_cli.engines.numba.code import can_keep_code, compile_once, lasting_folder
    from nsvm_cli.runs.warmup import units_of

    if not numba.is_usable():
        raise InputError("compiling needs Numba: pip install 'nsvm[fast]'")
    if not can_keep_code():
        raise RunError(f"{lasting_folder()} is not a writable folder of your own, with mode 0700")
    names = sorted(file.stem for file in (conf_folder() / "experiment").glob("*.yaml"))
    experiments = [parse_settings(compose_settings([f"experiment={name}"])) for name in names]
    compile_once([unit for settings in experiments for unit in units_of(settings)], say)
