"""Hydra, started on our arguments, its errors turned into one line each."""

from __future__ import annotations

import argparse
import functools
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

import nsvm_cli
from nsvm_cli.errors import InputError, RunError, did_you_mean

CONFIG_NAME = "train"
INFO = ("--info", "-i")


def conf_folder() -> Path:
    """conf/, inside the installed package or beside the package in a checkout."""
    package = Path(nsvm_cli.__file__).parent
    return next(folder for folder in (package / "conf", package.parent / "conf") if folder.is_dir())


def run_app(task: Callable[[DictConfig], None], arguments: list[str]) -> None:
    """Hands the arguments to Hydra, which composes the configuration and calls ``task`` for each job.

    A job of a sweep that fails does not keep the others from running.

    Raises:
        InputError: an unknown flag, group, option or key, or an override that cannot be read.
        InputError, RunError: what the first job that failed raised.
    """
    failures: list[InputError | RunError] = []
    started = False

    @functools.wraps(task)
    def job(config: DictConfig) -> None:
        nonlocal started
        started = True
        try:
            task(config)
        except (InputError, RunError) as error:  # Hydra would add lines of its own
            failures.append(error)

    arguments = flags_first(arguments)
    sys.argv = ["nsvm train", *arguments]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # so that errors come to us, who say them in one line
    app = hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name=CONFIG_NAME)(job)
    try:
        app()
    except (HydraException, OmegaConfBaseException) as error:
        raise InputError(_sentence(error, arguments)) from None
    except ValueError as error:
        if started:
            raise
        raise InputError(str(error)) from None  # Hydra's word on flags that do not go together
    if failures:
        raise failures[0]


def compose_section(group: str, option: str) -> dict[str, Any]:
    """One section as conf/ composes it, without the keys that still need a value."""
    arguments = [f"{group}={option}"]
    try:
        section = OmegaConf.to_container(compose(arguments)[group], resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise InputError(_sentence(error, arguments)) from None
    assert isinstance(section, dict)
    return {str(key): value for key, value in section.items() if value != MISSING}


def compose_settings(overrides: list[str]) -> dict[str, Any]:
    """What ``nsvm train`` with these overrides would run, as plain values.

    Raises:
        InputError: an unknown group, option or key, or an override that cannot be read.
    """
    try:
        return plain_values(compose(overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise InputError(_sentence(error, overrides)) from None


def plain_values(config: DictConfig) -> dict[str, Any]:
    """The configuration as plain Python values, every interpolation resolved; without ``experiment``,
    which has served its purpose then.

    Raises:
        InputError: a value is missing or refers to one that does not exist.
    """
    try:
        values = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise InputError(_sentence(error, [])) from None
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items() if key != "experiment"}


def compose(overrides: list[str]) -> DictConfig:
    """What ``nsvm train`` with these overrides would run, its interpolations unresolved."""
    GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(str(conf_folder()), version_base="1.3"):
        return hydra.compose(CONFIG_NAME, overrides)


def flags_first(arguments: list[str]) -> list[str]:
    """The same arguments with Hydra's flags in front: its parser takes none after an override."""
    parser = get_args_parser()
    parser.error = _refuse  # type: ignore[method-assign]
    flags, overrides = [], []
    rest = iter(arguments)
    for word in rest:
        if word in INFO:  # its value is optional, and would be the next override
            flags.append("--info=all")
        elif word.startswith("-"):
            flags += [word, *_value(parser, word, rest)]
        else:
            overrides.append(word)
    parser.parse_args(ordered := [*flags, *overrides])
    return ordered


def _value(parser: argparse.ArgumentParser, flag: str, rest: Iterator[str]) -> list[str]:
    """The word after a flag that takes one (``--config-dir FOLDER``)."""
    name, has_value, _ = flag.partition("=")
    known = parser._option_string_actions
    matching = (
        [known[name]]
        if name in known
        else [known[o] for o in known if o.startswith(name) and name[1:2] == "-"]
    )
    if not matching:
        raise InputError(
            f"there is no flag {flag}; {did_you_mean(flag, [o for o in known if o.startswith('--')])}"
        )
    takes_value = matching[0].nargs is None and not has_value
    return [word for word in [next(rest, None)] if word is not None] if takes_value else []


def _refuse(message: str) -> NoReturn:
    raise InputError(message)


def _sentence(error: Exception, arguments: list[str]) -> str:
    text = str(error)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options is not None:
        group, _, option = error.missing_cfg_file.rpartition("/")
        return f"{group}={option}: there is no such {group}; {did_you_mean(option, error.options)}"
    if isinstance(error, MissingMandatoryValue) or "Missing mandatory value" in text:
        return f"{getattr(error, 'full_key', None) or text.split()[-1]} needs a value"
    if isinstance(error, OverrideParseException):
        what = "expected KEY=VALUE, with quotes around special characters"
        return f"cannot read the override {error.override!r}: {what}"
    if found := re.search(r"Could not (?:override|delete from config\.?) '([^']+)'", text):
        key = found[1].split("@")[0]
        return f"{key}: there is no such setting; {did_you_mean(key, _keys_beside(key, arguments))}"
    return text.splitlines()[0] if text else type(error).__name__


def _keys_beside(key: str, arguments: list[str]) -> set[str]:
    """What could have been meant: the keys of the same section, given the groups that were chosen."""
    groups = {folder.name for folder in conf_folder().iterdir() if folder.is_dir()}
    choices = [a for a in arguments if re.fullmatch(r"\w+=[\w-]+", a) and a.partition("=")[0] in groups]
    try:
        config = compose(choices)
    except (HydraException, OmegaConfBaseException):
        config = compose([])
    section, _, _ = key.rpartition(".")
    node = OmegaConf.select(config, section) if section else config
    if not isinstance(node, DictConfig):
        return groups
    return {f"{section}.{name!s}".strip(".") for name in node} | (set() if section else groups)
