"""``nsvm completion``, and the answers to the shells that have loaded its script."""

from __future__ import annotations

import argparse
import os
import sys

from nsvm_cli.cli.parser import CommandParser, build_parser

SHELLS = ("bash", "zsh", "fish")
DESCRIPTION = """\
Print a script that completes commands, flags, groups, options and keys. To have
it in every new shell:

  bash   eval "$(nsvm completion bash)"    in ~/.bashrc
  zsh    eval "$(nsvm completion zsh)"     in ~/.zshrc, after compinit
  fish   nsvm completion fish | source     in ~/.config/fish/config.fish
"""


def configure(parser: CommandParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or fish")


def completion(options: argparse.Namespace) -> None:
    """Print the script for a shell."""
    from argcomplete.shell_integration import shellcode

    sys.stdout.write(shellcode(["nsvm"], shell=options.shell))


def complete() -> None:
    """Answer the script, which has put the command line into the environment, and exit."""
    import argcomplete

    argcomplete.autocomplete(parser_for(os.environ["COMP_LINE"]), always_complete_options=False)


def parser_for(line: str) -> CommandParser:
    """Return the parser of everything that may follow on a command line."""
    command = [*line.split(), ""][1]
    parser = build_parser(command)
    if command == "train":
        from nsvm_cli.cli.train import configure  # imports Hydra

        configure(parser.commands.choices["train"])
    return parser
