"""``nsvm train``: compose a configuration, train, write a run directory."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from nsvm_cli.cli.job import Job, RunOptions
from nsvm_cli.cli.parser import CommandParser, Key
from nsvm_cli.cli.sweep import Sweep
from nsvm_cli.compose.composition import REFERRED_TO, complete_overrides, quoted, run_app
from nsvm_cli.errors import InputError
from nsvm_cli.storage.run_directory import read_config

KEYS = [
    Key("resume", "RUN", ""),
    *(Key(name, "true", "", ["true"]) for name in ("allow_mismatch", "overwrite")),
]
SWITCHES = {
    "--help": "-h",
    "--hydra-help": "",
    "--version": "",
    "--resolve": "",
    "--run": "-r",
    "--multirun": "-m",
}
WITH_VALUE = {
    "--cfg": "-c",
    "--info": "-i",
    "--package": "-p",
    "--config-path": "-cp",
    "--config-name": "-cn",
}
WITH_VALUE |= {"--config-dir": "-cd", "--experimental-rerun": ""}
"""The flags that Hydra documents."""

CHOICES = {"--cfg": ("job", "hydra", "all")}
ESTIMATE = "--estimate"
"""The flag that Hydra does not know."""

WHERE_AND_HOW = ("hydra/launcher", "hydra.launcher", "hydra.sweep.", "hydra.job.")
"""Words that may differ when a sweep is started again without making it another sweep."""


def configure(parser: CommandParser) -> None:
    """Add the flags, most of which are Hydra's, and the overrides."""
    for flag, short in SWITCHES.items():
        parser.add_argument(*filter(None, (flag, short)), action="store_true")
    for flag, short in WITH_VALUE.items():
        parser.add_argument(*filter(None, (flag, short)), choices=CHOICES.get(flag), metavar=flag[2:].upper())
    parser.add_argument(ESTIMATE, action="store_true")
    parser.add_keys("overrides", KEYS, more=complete_overrides)


def train(arguments: list[str]) -> None:
    """Train one model, or with ``-m`` one for each combination of overrides."""
    parser = CommandParser("nsvm train", add_help=False)
    configure(parser)
    # the value of --info is optional, and would be the next override
    line = parser.parse_words([f"{word}=all" if word in ("--info", "-i") else word for word in arguments])
    options, words = _options(line)
    sweep = _sweep_name([*filter(None, (line.config_dir, line.config_name)), *words])
    several = line.multirun or any(re.match(r"\+*hydra.mode=['\"]?MULTIRUN", word) for word in words)
    if several and options.resume:
        raise InputError("resume=RUN is for one run: the same sweep, started again, resumes by itself")
    if line.estimate:
        if several or options.resume:
            raise InputError(
                "--estimate is for one run from its start: leave out -m and resume=, try one job"
            )
        from nsvm_cli.cli.estimate import estimate  # which imports this module

        estimate(options)
        return
    if several and not _names(words, "hydra.job.name"):
        words.append(f"hydra.job.name={quoted(sweep)}")
    elif options.resume:
        words = _composed_like(options.resume, words)
    job = Job(options, sweep)
    with Sweep(sweep, arguments, options.overwrite).reported():
        run_app(job, [*_flags(line), *words])
    if job.error:
        raise job.error


def _flags(line: argparse.Namespace) -> list[str]:
    """Return the flags for Hydra, whose parser accepts none after an override."""
    given = {flag: getattr(line, flag[2:].replace("-", "_")) for flag in (*SWITCHES, *WITH_VALUE)}
    return [flag if value is True else f"{flag}={value}" for flag, value in given.items() if value]


def _options(line: argparse.Namespace) -> tuple[RunOptions, list[str]]:
    """Return the options about run directories, and the other words."""
    values: dict[str, Any] = {}
    words = []
    for word in line.words:
        key, _, value = word.partition("=")
        if key in ("allow_mismatch", "overwrite"):
            if value.lower() not in ("true", "false"):
                raise InputError(f"{key}: expected true or false, got {value!r}")
            values[key] = value.lower() == "true"
        elif key in ("hydra.run.dir", "hydra.sweep.dir") and value.strip("'\"") in ("", "null"):
            raise InputError(f"{word}: expected a folder; without {key} nsvm makes one in outputs")
        elif key == "resume":
            values[key] = Path(value if Path(value).is_dir() else value.strip("'\"")).absolute()
            if not value or not (values[key] / "config.yaml").is_file():
                raise InputError(f"resume={value}: expected the directory of a run, with its config.yaml")
        else:
            words.append(word)
    options = RunOptions(**values, changes=tuple(words), config_dir=line.config_dir)
    if options.resume and options.overwrite:
        raise InputError("resume=RUN resumes a run, overwrite=true starts it over: expected one of them")
    return options, words


def _composed_like(run: Path, words: list[str]) -> list[str]:
    """Return words that compose the settings to change in a run, along with others that are not used."""
    parts = {group: part for group, part in read_config(run).items() if isinstance(part, dict)}
    composing = []
    for word in words:
        key = word.lstrip("+").partition("=")[0]
        if word.startswith(("~", "hydra")):
            raise InputError(f"{word} does not go with resume=RUN, whose settings are in its config.yaml")
        if key.partition(".")[0] in REFERRED_TO:
            raise InputError(f"{word} does not go with resume=RUN: name what changes, as in optimizer.lr=0.1")
        # the usual part may lack a setting that the run's has
        composing.append(f"++{word.lstrip('+')}" if "." in key else word)
    if any(_names(words, group) for group in parts):
        # the settings of another part depend on the run's data set, its classes and algorithm
        for group in ("dataset", "algorithm"):
            name = parts.get(group, {}).get("name")
            if name is None or _names(words, group):
                continue
            # the run may come from someone else, and Hydra would follow a path or an interpolation
            if not re.fullmatch(r"\w[\w-]*", str(name)):
                raise InputError(f"{run / 'config.yaml'}: {group}.name: expected a name, got {name!r}")
            composing.append(f"{group}={name}")
        classes = parts.get("dataset", {}).get("classes", ())
        if classes != () and not _names(words, "dataset.classes"):
            two = isinstance(classes, list) and len(classes) == 2
            composing.append(f"++dataset.classes={'[0,1]' if two else 'null'}")
    return [*composing, "hydra.run.dir=."]


def _names(words: Sequence[str], key: str) -> bool:
    return any(word.lstrip("+").startswith(f"{key}=") for word in words)


def _sweep_name(words: Iterable[str]) -> str:
    """Return the same name for the same words, so that a sweep started again resumes in its directory."""
    named = [word for word in words if not word.startswith(WHERE_AND_HOW)]
    readable = re.sub(r"[^\w.=,-]+", "_", " ".join(named))[:60].strip("_=,.") or "sweep"
    mark = hashlib.sha256(os.fsencode("\0".join(named))).hexdigest()[:8]
    return f"{readable.replace('=', '_').replace(',', '_')}-{mark}"
