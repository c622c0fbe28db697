"""The parser of the ``nsvm`` command, which its help and its completion derive from."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from nsvm_cli import __version__
from nsvm_cli.errors import InputError, did_you_mean

COMMANDS = {
    "train": "train a model",
    "tune": "choose hyperparameters on validation data",
    "reproduce": "run the paper's experiments and baselines over many seeds",
    "evaluate": "evaluate a trained model",
    "predict": "predict with a trained model",
    "export": "write a trained model as an ONNX graph",
    "diagnose": "look inside a trained model",
    "runs": "list runs, with their settings and figures",
    "compare": "compare settings over the seeds of their runs",
    "report": "write a report of runs as one HTML file",
    "completion": "print a completion script for bash, zsh or fish",
}
DESCRIPTION = "Train and evaluate neural support vector machines (Simon & Radons 2023)."
EPILOG = """\
examples:
  nsvm train algorithm=alg3 dataset=mnist hydra.run.dir=run
  nsvm evaluate run
  nsvm train -m algorithm=alg3,alg4 seed=0,1,2

Every command has its own help: nsvm COMMAND --help
"""

Completer = Callable[..., Iterable[str]]
"""Gets ``prefix`` and ``parsed_args`` by keyword, as argcomplete calls it."""

MODEL = "run directory, model file or checkpoint"

PLUGINS = "plugins="
"""The beginning of the word that names the user's own modules, in every command that takes any."""


@dataclass(frozen=True)
class Key:
    """A word ``KEY=VALUE`` that a command takes, described once for help, parsing and completion.

    ``metavar`` stands for the value in the help; ``values`` are those that completion offers.
    """

    name: str
    metavar: str
    help: str
    values: Sequence[str] = ()

    @property
    def words(self) -> list[str]:
        """Return the word as completion offers it: with each of its values, or up to the ``=``."""
        return [f"{self.name}={value}" for value in self.values or ("",)]


def described(metavar: str, help: str, default: Any = None, values: Sequence[str] = ()) -> Any:
    """Return a dataclass field that documents the key of its name."""
    return field(default=default, metadata={"metavar": metavar, "help": help, "values": values})


def keys_of(settings: type) -> list[Key]:
    """Return the keys that a dataclass documents, see ``described``."""
    return [Key(f.name, **f.metadata) for f in fields(settings)]


def output_file(text: str) -> Path:
    """Return a file to write, as a type of argparse."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"expected a file in a folder that exists, got {text}")
    return path


def split_words(words: Iterable[str], keys: Iterable[str]) -> dict[str, str]:
    """Return the values of words ``KEY=VALUE``.

    Raises:
        InputError: a word has no ``=`` or nothing after it, or its key is not one of ``keys``.
    """
    values = {}
    keys = list(keys)
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise InputError(
                f"expected KEY=VALUE, got {word!r}; {did_you_mean(f'{word}=', (f'{key}=' for key in keys))}"
            )
        if key not in keys:
            raise InputError(f"{key}: there is no such setting; {did_you_mean(key, keys)}")
        if not value:
            raise InputError(f"{word} needs a value")
        values[key] = value
    return values


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises an InputError of one line where argparse would print and exit."""

    commands: argparse._SubParsersAction[CommandParser]

    def __init__(self, *args: Any, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        options.setdefault("allow_abbrev", False)
        super().__init__(*args, **options)

    @property
    def name(self) -> str:
        """Return the name of the command, without the program's."""
        return self.prog.removeprefix("nsvm ")

    def error(self, message: str) -> NoReturn:
        message = message.replace("the following arguments are required:", f"{self.name} needs")
        raise InputError(f"{message}; see {self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            hint = did_you_mean(value, action.choices)
            raise InputError(f"there is no {str(action.metavar).lower()} {value!r}; {hint}")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse as argparse does, but refuse unknown arguments."""
        namespace, unknown = super().parse_known_args(args, namespace)
        if unknown and unknown[0].startswith("-"):
            hint = did_you_mean(unknown[0], (flag for flag in self._option_string_actions if "--" in flag))
            raise InputError(f"there is no flag {unknown[0]}; {hint}; a setting is written KEY=VALUE")
        if unknown:
            raise InputError(f"{self.name} takes no {unknown[0]!r} here; see {self.prog} --help")
        return namespace, unknown


class CommandParser(Parser):
    """The parser of one command. Its flags may stand anywhere among its other arguments."""

    def add_keys(
        self, title: str, keys: Sequence[Key], metavar: str = "KEY=VALUE", more: Completer | None = None
    ) -> None:
        """Take any number of words ``KEY=VALUE``, as ``words``; the help lists the keys in a section.

        ``more`` returns further words for completion.
        """
        group = self.add_argument_group(title)
        words = group.add_argument("words", nargs="*", default=[], metavar=metavar)
        words.completer = partial(_complete_key, keys, more)  # type: ignore[attr-defined]
        _list(group, {f"{key.name}={key.metavar}": key.help for key in keys})

    def add_runs(self) -> None:
        """Take folders with runs as ``paths``, and conditions on the runs as ``filter``."""
        self.add_argument(
            "paths", metavar="PATH", nargs="+", type=Path, help="run directory, or a folder above"
        )
        self.add_argument(
            "--filter",
            metavar="CONDITION",
            action="append",
            default=[],
            help="only runs with KEY=VALUE, or KEY!=VALUE; KEY is a setting or a figure",
        )

    def add_escape(self) -> None:
        """Take whether CSV is for a spreadsheet, as ``escape_formulas``."""
        self.add_argument(
            "--escape-formulas",
            action="store_true",
            help="CSV for a spreadsheet: a quote before cells that it would take for formulas",
        )

    def add_memory_budget(self) -> None:
        """Take ``--memory-budget``, as ``memory_budget``; None leaves it to the model."""
        self.add_argument(
            "--memory-budget",
            metavar="MIB",
            type=_mebibytes,
            help="size of the largest table that is read, if more than 1024 MiB",
        )

    def add_plugins(self) -> None:
        """Take ``plugins=[MODULE]`` among the arguments, as ``nsvm train`` does, as the list ``plugins``."""
        self.set_defaults(plugins=[])
        group = self.add_argument_group("your own parts")
        _list(group, {f"{PLUGINS}[MODULE]": "modules of yours that the model's parts come from"})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse the arguments with the flags in front, because for argparse a flag ends the list of words."""
        args = list(args or [])
        plugins = [word for word in args if word.startswith(PLUGINS) and "plugins" in self._defaults]
        rest = [word for word in args if word not in plugins]
        namespace, unknown = super().parse_known_args(self._flags_first(rest), namespace)
        for word in plugins:
            if not (names := re.fullmatch(r"\[(.*)\]", word.removeprefix(PLUGINS))):
                self.error(f"{word}: expected a list, such as {PLUGINS}[my_parts]")
            namespace.plugins = [name.strip() for name in names[1].split(",") if name.strip()]
        return namespace, unknown

    def _flags_first(self, args: Sequence[str]) -> list[str]:
        flags: list[str] = []
        others: list[str] = []
        rest = iter(args)
        for word in rest:
            action = self._option_string_actions.get(word)
            if action is None or action.nargs is not None:
                (flags if word.startswith("-") else others).append(word)
            elif (value := next(rest, None)) is not None:
                flags += [word, value]
            else:
                others.append(word)  # its value is missing: at the end, argparse reports that
        return flags + others


def _list(group: argparse._ArgumentGroup, entries: Mapping[str, str]) -> None:
    """Let the help of a group list these instead of the one argument that takes them all."""
    group._group_actions = [
        argparse.Action([], "", metavar=name, help=text.replace("%", "%%")) for name, text in entries.items()
    ]


def _complete_key(keys: Sequence[Key], more: Completer | None, prefix: str, **context: Any) -> dict[str, str]:
    """Return the words that begin with a prefix, with their descriptions; or files, if there are none."""
    words = dict.fromkeys(more(prefix=prefix, **context) if more else [], "")
    # a name in capitals is a placeholder
    words |= {word: key.help for key in keys if key.name.islower() for word in key.words}
    matching = {word: help for word, help in words.items() if word.startswith(prefix) and word != prefix}
    key, equals, value = prefix.partition("=")
    if equals and not matching:
        from argcomplete.completers import FilesCompleter

        return {f"{key}={file}": "" for file in FilesCompleter()(value)}
    return matching


def build_parser(command: str | None = None) -> Parser:
    """Return the parser of ``nsvm``.

    A command is a module of its name, with a function of this name, and ``configure``, which adds arguments.

    Args:
        command: the command whose arguments are wanted: only its module is imported. ``train`` has none
            here, because Hydra parses its arguments.
    """
    parser = Parser("nsvm", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"nsvm {__version__}", help="show the version")
    parser.commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=CommandParser)
    for name, summary in COMMANDS.items():
        parser.commands.add_parser(name, help=summary, add_help=name != "train")
    assert parser._subparsers is not None
    _list(parser._subparsers, COMMANDS)
    if command in COMMANDS and command != "train":
        module, chosen = import_module(f"nsvm_cli.cli.{command}"), parser.commands.choices[command]
        chosen.description, chosen.epilog = module.DESCRIPTION, vars(module).get("EPILOG")
        chosen.set_defaults(run=getattr(module, command))
        module.configure(chosen)
    return parser


def _mebibytes(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a positive integer, got {text}")
    return int(text)
