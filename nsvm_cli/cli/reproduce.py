"""``nsvm reproduce``: a suite of sweeps, and how their runs compare."""

from __future__ import annotations

import argparse
import contextlib
import shlex
from pathlib import Path

import yaml

from nsvm_cli.cli.parser import CommandParser, parse
from nsvm_cli.compose.composition import conf_folder
from nsvm_cli.config.overrides import quoted
from nsvm_cli.errors import InputError, RunError, did_you_mean
from nsvm_cli.output import say
from nsvm_cli.storage.run_directory import RESULT


def reproduce_arguments(parser: CommandParser) -> None:
    suites = sorted(file.stem for file in (conf_folder() / "suite").glob("*.yaml"))
    names = f"{', '.join(suites[:-1])} or {suites[-1]}"
    suite = parser.add(
        "suite", "SUITE", f"{names}; or a YAML file of your own, with a list of lines of words"
    )
    suite.completer = lambda **_: suites  # type: ignore[attr-defined]
    overrides = "overrides for every sweep; they replace its words with the same key"
    parser.add("words", "KEY=VALUE", overrides, nargs="*")
    parser.add("--output", "FOLDER", "where runs go (default: outputs/reproduce/SUITE)", type=Path)


def reproduce(options: argparse.Namespace) -> None:
    """Run a suite of sweeps, each as nsvm train -m does, and compare the runs: the
    paper's experiments, tables of classes and real targets, or MNIST with ten
    digits, with baselines on the same splits. Runs are ordinary ones, in a folder
    for each data set. To resume after an interruption, run the same command again.

    examples:
      nsvm reproduce quick
      nsvm reproduce tables seed=0 hydra/launcher=joblib
      nsvm reproduce my_suite.yaml --output outputs/mine
    """
    from nsvm_cli.cli.run_commands import compare
    from nsvm_cli.cli.train import train

    folder = options.output or Path("outputs/reproduce") / Path(options.suite).stem
    failures: list[InputError | RunError] = []
    for line in lines_of(options.suite):
        by_key = {word.partition("=")[0]: word for word in [*shlex.split(line), *options.words]}
        words = [*by_key.values()]  # options.words in place of the line's own with the same keys
        say(f"nsvm train -m {shlex.join(words)}")
        try:
            train(["-m", *words, f"hydra.sweep.dir={quoted(f'{folder}/${{dataset.name}}')}"])
        except (InputError, RunError) as error:  # the other sweeps may still succeed
            failures.append(error)
    if not failures or any(folder.rglob(RESULT)):
        compare(parse("compare", [str(folder)]))
    if failures:
        more = f"; {len(failures) - 1} more sweeps failed" if failures[1:] else ""
        raise type(failures[0])(f"{failures[0]}{more}")


def lines_of(suite: str) -> list[str]:
    """Return the lines of a suite in conf/, or of a file.

    Raises:
        InputError: there is no such suite, or it is no list of lines.
    """
    file = Path(suite) if Path(suite).suffix else conf_folder() / "suite" / f"{suite}.yaml"
    if not file.is_file():
        names = [other.stem for other in (conf_folder() / "suite").glob("*.yaml")]
        raise InputError(f"{suite}: there is no such suite; {did_you_mean(suite, names)}")
    lines = None
    with contextlib.suppress(OSError, ValueError, yaml.YAMLError):
        lines = yaml.safe_load(file.read_text())
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise InputError(f"{file}: expected a list of lines, such as '- dataset=digits seed=0,1'")
    return lines
