"""The argument parser of ``nsvm``, with its help and completions."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from nsvm_cli import __version__
from nsvm_cli.errors import InputError, did_you_mean

COMMANDS = {
    "train": ("train", "train a model"),
    "tune": ("tune", "choose hyperparameters on validation data"),
    "reproduce": ("run_commands", "run a suite, such as the paper's experiments, and compare its runs"),
    "columns": ("model_commands", "show how the columns of a table are read"),
    "evaluate": ("model_commands", "evaluate a trained model"),
    "predict": ("model_commands", "predict with a trained model"),
    "export": ("model_commands", "write a trained model as an ONNX graph"),
    "diagnose": ("model_commands", "find out what limits the score of a trained model"),
    "runs": ("run_commands", "list runs with their settings and metrics"),
    "compare": ("run_commands", "compare settings by the mean scores of their runs"),
    "report": ("run_commands", "write a report of runs as one HTML file"),
    "completion": ("parser", "print a completion script for bash, zsh or fish"),
}
"""Maps each command to its module in this package and to its summary."""

DESCRIPTION = "Train and evaluate neural support vector machines (Simon & Radons 2023)."
EPILOG = """\
examples:
  nsvm train algorithm=alg3 dataset=mnist hydra.run.dir=run
  nsvm evaluate run
  nsvm train -m algorithm=alg3,alg4 seed=0,1,2

Every command has its own help: nsvm COMMAND --help
"""

MODEL_HELP = "run directory, model file or checkpoint"


def output_file(text: str) -> Path:
    """Convert an argument to the path of a file to write."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"expected a file in an existing folder, got {text}")
    return path


def expect_other(output: Path | None, *read: Path) -> None:
    """Raise an InputError if the file to write is one of the files that a command reads."""
    for path in read:
        if output is not None and output.exists() and path.exists() and output.samefile(path):
            raise InputError(f"{output} is a file that this command reads: choose another file to write")


class CommandParser(argparse.ArgumentParser):
    """A parser that raises an InputError for an invalid command line instead of exiting."""

    commands: dict[str, CommandParser]

    def __init__(self, prog: str, **options: Any) -> None:
        options["formatter_class"] = argparse.RawDescriptionHelpFormatter
        super().__init__(prog, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        name = self.prog.removeprefix("nsvm ")
        if choice := re.search(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)", message):
            hint = did_you_mean(choice[2], re.findall(r"[\w-]+", choice[3]))
            noun = choice[1].partition("/")[0].lstrip("-").lower()
            raise InputError(f"there is no {noun} {choice[2]!r}; {hint}")
        if flag := re.search(r"unrecognized arguments: (-\S+)", message):
            hint = did_you_mean(flag[1], {*re.findall(r"--[a-z-]+", self.format_help())})
            raise InputError(f"there is no flag {flag[1]}; {hint}; write settings as KEY=VALUE")
        message = message.replace("unrecognized arguments:", f"{name}: unexpected arguments")
        message = message.replace("the following arguments are required:", f"{name} requires")
        raise InputError(f"{message}; see {self.prog} --help")

    def add(self, name: str, metavar: str, meaning: str, **options: Any) -> argparse.Action:
        """Add an argument, or a flag with a value."""
        return self.add_argument(name, metavar=metavar, help=meaning, **options)

    def add_keys(
        self,
        title: str,
        keys: Mapping[str, str],
        metavar: str = "KEY=VALUE",
        completer: Callable[..., list[str]] | None = None,
    ) -> None:
        """Add an argument ``words`` for any number of overrides ``KEY=VALUE``.

        The help has a section ``title`` with the ``keys`` and their meanings. Keys with capitals, which are
        placeholders, are not completed.
        """
        names = [f"{key.partition('=')[0]}=" for key in keys]
        fixed = [name for name in names if name.islower()]
        group = self.add_argument_group(title)
        words = group.add_argument("words", nargs="*", default=[], metavar=metavar)
        words.completer = lambda **line: [*(completer(**line) if completer else []), *fixed]  # type: ignore[attr-defined]
        # argparse has no public way to show one argument as several lines of the help
        group._group_actions = [
            argparse.Action([], "", metavar=key, help=text.replace("%", "%%")) for key, text in keys.items()
        ]

    def add_runs(self) -> None:
        """Add the arguments ``paths`` and ``filter``, which select runs."""
        self.add("paths", "PATH", "run directory, or a folder that contains runs", nargs="+", type=Path)
        condition = (
            "include only runs with KEY=VALUE or KEY!=VALUE, for a setting or a metric; can be repeated"
        )
        self.add("--filter", "CONDITION", condition, action="append", default=[])

    def add_dialect(self) -> None:
        """Add the options in ``DIALECT``, which are the settings of ``dataset`` on the format of a table."""
        separator = "separator of cells: a character such as ; or \\t, or the word whitespace"
        self.add("--separator", "C", separator)
        self.add("--encoding", "NAME", "encoding of the file, such as latin-1 or utf-16")
        self.add("--header", "LINE", "number of the line with the column names, or false", type=json.loads)
        self.add("--comment", "C", "character that begins a comment, such as #")
        self.add("--decimal", "C", "decimal separator: . or ,")
        self.add("--thousands", "C", "thousands separator, such as ,")
        self.add("--missing", "CODE", "code for missing values; can be repeated", action="append")
        self.add("--sheet", "NAME", "sheet of an Excel file (default: the first sheet)")

    def add_escape(self) -> None:
        meaning = "put ' before CSV cells that a spreadsheet would read as formulas"
        self.add_argument("--escape-formulas", action="store_true", help=meaning)

    def add_plugins(self) -> None:
        modules = "modules with your own parts, such as kernels, separated by commas"
        self.add("--plugins", "MODULES", modules, type=lambda names: names.split(","), default=[])

    def add_runtime(self) -> None:
        """Add the options for the device, threads and memory (``RUNTIME``), and ``plugins``."""
        devices = ("auto", "cpu", "cuda")
        self.add("--device", "NAME", "device to compute on: auto, cpu or cuda", choices=devices)
        self.add("--threads", "N", "number of CPU threads", type=int)
        moved = "new path of the kernel matrix, if its file has moved"
        self.add("--kernel-path", "FILE", moved, dest="kernel.path")
        budget = "maximum MiB for kernel values in memory and, if above 1024, for the file of a table"
        self.add("--memory-budget", "MIB", budget, type=int)
        self.add_plugins()


RUNTIME = ("device", "threads", "kernel.path", "memory_budget")
"""The options of ``add_runtime`` that are also settings."""

DIALECT = ("separator", "encoding", "header", "comment", "decimal", "thousands", "missing", "sheet")


def parse(command: str, words: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments of a command."""
    return build_parser(command).commands[command].parse_intermixed_args(words)


def specified(options: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    """Return the options in ``names`` that are not None."""
    return {name: value for name in names if (value := getattr(options, name)) is not None}


def module_of(command: str) -> ModuleType:
    """Import and return the module of a command."""
    return import_module(f"nsvm_cli.cli.{COMMANDS[command][0]}")


def build_parser(command: str | None = None) -> CommandParser:
    """Return the parser of ``nsvm``, with the arguments of one command.

    The command's module defines ``COMMAND``, whose docstring is the help, and ``COMMAND_arguments``.
    """
    parser = CommandParser("nsvm", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"nsvm {__version__}", help="show the version")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, (_, summary) in COMMANDS.items():
        commands.add_parser(name, help=summary, add_help=name != "train")  # Hydra shows the help of train
    parser.commands = commands.choices
    if command in COMMANDS:
        module, chosen = module_of(command), parser.commands[command]
        help_text = inspect.cleandoc(getattr(module, command).__doc__ or "")  # python -OO removes docstrings
        text, title, examples = help_text.partition("examples:")
        chosen.description, chosen.epilog = text, title + examples
        getattr(module, f"{command}_arguments")(chosen)
    return parser


SHELLS = ("bash", "zsh", "fish")


def completion_arguments(parser: CommandParser) -> None:
    parser.add("shell", "SHELL", "shell of the script: bash, zsh or fish", choices=SHELLS)


def completion(options: argparse.Namespace) -> None:
    """Print a script that completes commands, flags, groups, options and keys. To use
    the script in every new shell:

      bash   eval "$(nsvm completion bash)"    in ~/.bashrc
      zsh    eval "$(nsvm completion zsh)"     in ~/.zshrc, after compinit
      fish   nsvm completion fish | source     in ~/.config/fish/config.fish
    """
    from argcomplete.shell_integration import shellcode

    sys.stdout.write(shellcode(["nsvm"], shell=options.shell))


def complete() -> None:
    """Print completions for the command line in ``COMP_LINE``, and exit."""
    import argcomplete

    command = [*os.environ["COMP_LINE"].split(), ""][1]
    argcomplete.autocomplete(build_parser(command), always_complete_options=False)
