"""``nsvm train``, and ``nsvm reproduce``, which runs a suite of its sweeps."""

from __future__ import annotations

import argparse
import contextlib
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from nsvm_cli.cli.job import NO_JOB, Job, Run, expect_flag
from nsvm_cli.cli.parser import CommandParser, parse
from nsvm_cli.cli.sweep import Sweep
from nsvm_cli.compose.composition import (
    complete_overrides,
    compose_settings,
    conf_folder,
    run_app,
    search_folder,
)
from nsvm_cli.config.overrides import quoted
from nsvm_cli.config.settings import flat, parse_settings, with_values
from nsvm_cli.errors import InputError, RunError, did_you_mean
from nsvm_cli.memory import MEMORY_BUDGET
from nsvm_cli.output import answer, flash, say
from nsvm_cli.plugins import load_plugins
from nsvm_cli.storage.run_directory import CONFIG, RESULT, command_in, read_config, read_status

FLAGS = ("--help -h", "--hydra-help", "--version", "--resolve", "--run -r", "--multirun -m")
WITH_VALUE = (
    *("--cfg -c", "--info -i", "--package -p", "--config-path -cp", "--config-name -cn", "--config-dir -cd"),
    "--experimental-rerun",
)
"""The flags that Hydra documents."""


def train_arguments(parser: CommandParser) -> None:
    """Add the flags, most of which are Hydra's, and the overrides."""
    for names in (*FLAGS, "--estimate"):
        parser.add_argument(*names.split(), action="store_true")
    for names in WITH_VALUE:
        choices = ("job", "hydra", "all") if names.startswith("--cfg") else None
        parser.add_argument(*names.split(), choices=choices)
    parser.add_keys("overrides", {"resume=RUN": ""}, more=complete_overrides)


def train(arguments: list[str]) -> None:
    """Train one model, or with ``-m`` one for each combination of overrides."""
    # the value of --info is optional, and would be the next override
    words = [f"{word}=all" if word in ("--info", "-i") else word for word in arguments]
    line = parse("train", words)
    given = {f"--{name.replace('_', '-')}": value for name, value in vars(line).items() if name != "words"}
    flags = [flag if value is True else f"{flag}={value}" for flag, value in given.items() if value]
    for key, _, value in (word.partition("=") for word in line.words):
        if key in ("hydra.run.dir", "hydra.sweep.dir") and value.strip("'\"") in ("", "null"):
            raise InputError(f"{key}={value}: expected a folder; without {key} nsvm makes one in outputs")
    resumed = [word.partition("=")[2] for word in line.words if word.startswith("resume=")]
    if line.multirun and resumed:
        raise InputError("resume=RUN is for one run: the same sweep, started again, resumes by itself")
    if line.multirun and line.estimate:
        raise InputError("--estimate is for one run: leave out -m, and try one job")
    if line.estimate:
        estimate(line.words, line.config_dir)
    elif resumed:
        words = [word for word in line.words if not word.startswith("resume=")]
        if flags:
            raise InputError(f"{flags[0]} does not go with resume=RUN, whose settings are in its config.yaml")
        resume(resumed[-1], words)
    else:
        sweep = Sweep(arguments)
        job = Job(sweep.mark, line.config_dir)
        with sweep.reported():
            run_app(job, [*flags, *line.words])  # Hydra's parser accepts no flag after an override
        if job.error:
            raise job.error


def resume(name: str, words: Sequence[str]) -> None:
    """Go on with a run, with its own settings but for those that the words change."""
    run = Path(name if Path(name).is_dir() else name.strip("'\"")).absolute()
    if not name or not (run / CONFIG).is_file():
        raise InputError(f"resume={name}: expected the directory of a run, with its config.yaml")
    changes = _changes(words, recorded := read_config(run))
    allow_mismatch = expect_flag("allow_mismatch", changes.pop("allow_mismatch", False))
    changed = [word for word in words if not word.startswith("allow_mismatch=")]
    job = Run(run, {**NO_JOB, **command_in(read_status(run))}, changes=changed)
    with job.recorded():
        settings = parse_settings(with_values(recorded, changes))
        load_plugins(changes.get("plugins", ()))  # never those of a run directory, which may be a stranger's
        asked, logger = [], settings.logger.get("name", "none")
        if settings.memory_budget > changes.get("memory_budget", MEMORY_BUDGET):
            asked.append(f"memory_budget={settings.memory_budget}")
        if logger != "none" and "logger" not in changes:  # it may write or send data anywhere
            asked.append(f"logger={logger}")
        if asked:
            raise InputError(f"{run} asks for {' '.join(asked)}: if that is intended, add {' '.join(asked)}")
        job.train(settings, "resume", allow_mismatch)


def _changes(words: Sequence[str], recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of words by their keys; InputError if one is no setting, or chooses a part."""
    for word in words:
        key, equals, _ = word.lstrip("+").partition("=")
        is_part = isinstance(recorded.get(key), dict) and key != "logger"
        if is_part or not equals or key.startswith(("~", "hydra")) or key in ("experiment", "overwrite"):
            raise InputError(f"{word} does not go with resume=RUN: name what changes, as in optimizer.lr=0.1")
    given: Any = OmegaConf.to_container(OmegaConf.from_dotlist([word.lstrip("+") for word in words]))
    values = flat(given)
    if name := values.get("logger"):  # the run's own, with its settings, or another
        own = recorded.get("logger")
        values["logger"] = own if isinstance(own, dict) and own.get("name") == name else {"name": name}
    return values


def estimate(words: Sequence[str], config_dir: str | None) -> None:
    """Train for some seconds, and print an estimate for the whole run. Writes no file."""
    settings = parse_settings(compose_settings([*search_folder(config_dir), *words]))
    load_plugins(settings.plugins)
    flash("loading PyTorch and the data")
    from nsvm_cli.runs import estimate as trial
    from nsvm_cli.runs.experiment import prepare
    from nsvm_cli.terminal.console import show_rows

    experiment = prepare(settings)
    parts = trial.estimate(experiment, say)
    show_rows([*trial.rows_of(experiment, parts)])
    if any(part.tried < part.steps for part in parts):
        answer("Beyond the steps that were tried, support vectors and seconds follow from a power law.")


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
