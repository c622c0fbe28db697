"""``nsvm completion``, and the answers to the shells that have loaded its script."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import argcomplete
from argcomplete.shell_integration import shellcode

from nsvm_cli.cli.parser import CommandParser, Key, Parser, build_parser

SHELLS = ("bash", "zsh", "fish")
DESCRIPTION = """\
Print a script that completes commands, flags, groups, options and keys. To have
it in every new shell:

  bash   eval "$(nsvm completion bash)"    in ~/.bashrc
  zsh    eval "$(nsvm completion zsh)"     in ~/.zshrc
  fish   nsvm completion fish | source     in ~/.config/fish/config.fish
"""
COMPINIT = "(( $+functions[compdef] )) || { autoload -U compinit && compinit -u; }\n"
"""For a zsh whose start-up file does not turn completion on."""


def configure(parser: CommandParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or fish")


def completion(options: argparse.Namespace) -> None:
    """Print the script for a shell."""
    script = shellcode(["nsvm"], shell=options.shell)
    sys.stdout.write((COMPINIT if options.shell == "zsh" else "") + script)


def complete() -> None:
    """Answer the script, which has put the command line into the environment, and exit."""
    line = os.environ["COMP_LINE"]
    argcomplete.autocomplete(parser_for(line), always_complete_options=False)


def parser_for(line: str) -> Parser:
    """Return the parser of everything that may follow on a command line."""
    command = [*line.split(), ""][1]
    parser = build_parser(command)
    if command == "train":
        _configure_train(parser.commands.choices["train"])
    return parser


def _configure_train(parser: CommandParser) -> None:
    """Add the arguments that Hydra and ``nsvm train`` itself would parse."""
    from nsvm_cli.cli.job import RunOptions
    from nsvm_cli.compose.hydra_private import ESTIMATE, flag_actions

    for action in flag_actions():
        parser._add_action(action)
    parser.add_argument(ESTIMATE, action="store_true")
    defaults = {field.name: field.default for field in fields(RunOptions)}
    keys = [Key(name, "true", "", ["true"]) for name, default in defaults.items() if default is False]
    keys += [Key(name, "PATH", "") for name, default in defaults.items() if default is None]
    parser.add_keys("overrides", keys, more=partial(complete_overrides, []))


def complete_overrides(
    given: Sequence[str], prefix: str, parsed_args: argparse.Namespace, **_: Any
) -> list[str]:
    """Return Hydra's completions after given overrides and those on the line."""
    from nsvm_cli.cli.train import train  # imports Hydra
    from nsvm_cli.compose.hydra_private import completion_query

    folder = parsed_args.config_dir
    query = completion_query(" ".join(["nsvm", *given, *parsed_args.words, prefix]))
    with contextlib.redirect_stdout(io.StringIO()) as answer:
        train([*query, *([] if folder is None else ["--config-dir", folder])])
    found = answer.getvalue().split()
    if len(found) == 1 and found[0].endswith(".") and found[0] != prefix:
        return complete_overrides(given, found[0], parsed_args)  # or the shell would end the word there
    return found
