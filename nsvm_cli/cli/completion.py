"""``nsvm completion``, and the answers to the shells that have loaded its script."""

from __future__ import annotations

import argparse
import os
import sys

from nsvm_cli.cli.parser import CommandParser, build_parser

SHELLS = ("bash", "zsh", "fish")


def completion_arguments(parser: CommandParser) -> None:
    parser.add("shell", "SHELL", "bash, zsh or fish", choices=SHELLS)


def completion(options: argparse.Namespace) -> None:
    """Print a script that completes commands, flags, groups, options and keys. To have
    it in every new shell:

      bash   eval "$(nsvm completion bash)"    in ~/.bashrc
      zsh    eval "$(nsvm completion zsh)"     in ~/.zshrc, after compinit
      fish   nsvm completion fish | source     in ~/.config/fish/config.fish
    """
    from argcomplete.shell_integration import shellcode

    sys.stdout.write(shellcode(["nsvm"], shell=options.shell))


def complete() -> None:
    """Answer the script, which has put the command line into the environment, and exit."""
    import argcomplete

    command = [*os.environ["COMP_LINE"].split(), ""][1]
    argcomplete.autocomplete(build_parser(command), always_complete_options=False)
