"""Hydra: compose configurations, start jobs, and report errors as one line."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

import nsvm_cli
from nsvm_cli.cli.hydra_private import COMPOSE_OPTIONS, MAIN_OPTIONS, flags_first
from nsvm_cli.errors import InputError, did_you_mean

CONFIG_NAME = "train"
COMPOSING = (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError, RecursionError)
"""What Hydra raises about arguments and configurations."""


def conf_folder() -> Path:
    """Return conf/, which is inside the installed package, or beside the package in a checkout."""
    package = Path(nsvm_cli.__file__).parent
    return next(folder for folder in (package / "conf", package.parent / "conf") if folder.is_dir())


def run_app(task: Callable[[DictConfig], None], arguments: list[str]) -> None:
    """Hand the arguments to Hydra, which composes each job's configuration and calls ``task`` with it.

    Args:
        task: called in this process, or by a launcher in another one: it must be picklable.
        arguments: the words of the command line.

    Raises:
        InputError: an unknown flag, group, option or key, or an override that cannot be read.
    """
    arguments = flags_first(arguments)
    app = hydra.main(config_path=str(conf_folder()), config_name=CONFIG_NAME, **MAIN_OPTIONS)(task)
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises its errors instead of printing them
    argv, sys.argv = sys.argv, ["nsvm train", *arguments]
    try:
        with _in_one_line(arguments):
            app()
    finally:
        sys.argv = argv


def compose_section(group: str, option: str) -> dict[str, Any]:
    """Return one section as conf/ composes it, without the keys that still need a value."""
    arguments = [f"{group}={option}"]
    with _in_one_line(arguments):
        section = OmegaConf.to_container(compose(arguments)[group], resolve=True)
    assert isinstance(section, dict)
    return {str(key): value for key, value in section.items() if value != MISSING}


def compose_settings(overrides: list[str]) -> dict[str, Any]:
    """Return the settings that ``nsvm train`` with these overrides would run, as plain values.

    Raises:
        InputError: an unknown group, option or key, or an override that cannot be read.
    """
    with _in_one_line(overrides):
        return plain_values(compose(overrides))


def plain_values(config: DictConfig, complete: bool = True) -> dict[str, Any]:
    """Return the configuration as plain values, every interpolation resolved.

    ``experiment``, which the interpolations refer to, is left out.

    Args:
        config: what Hydra composed.
        complete: whether every mandatory value must be there.

    Raises:
        InputError: a value is missing or refers to one that does not exist.
    """
    with _in_one_line([]):
        values = OmegaConf.to_container(config, resolve=True, throw_on_missing=complete)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items() if key != "experiment"}


def compose(overrides: list[str]) -> DictConfig:
    """Return the configuration of ``nsvm train`` with these overrides, its interpolations unresolved."""
    GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(str(conf_folder()), **COMPOSE_OPTIONS):
        return hydra.compose(CONFIG_NAME, overrides)


def search_folder(folder: str) -> str:
    """Return the override that does what ``--config-dir`` does.

    Raises:
        InputError: there is no such folder.
    """
    if not Path(folder).is_dir():
        raise InputError(f"--config-dir: there is no folder {folder!r}")
    return f"hydra.searchpath=[{quoted(f'file://{Path(folder).absolute()}')}]"


def quoted(text: str) -> str:
    """Return text with special characters as the value of an override."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


@contextlib.contextmanager
def _in_one_line(arguments: list[str]) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except COMPOSING as error:
        raise InputError(_sentence(error, arguments)) from None


def _sentence(error: Exception, arguments: list[str]) -> str:
    text = str(error) or str(error.__cause__ or "")
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options is not None:
        group, _, option = error.missing_cfg_file.rpartition("/")
        return f"{group}={option}: there is no such {group}; {did_you_mean(option, error.options)}"
    if isinstance(error, MissingMandatoryValue) or "Missing mandatory value" in text:
        return f"{getattr(error, 'full_key', None) or text.split()[-1]} needs a value"
    if isinstance(error, OverrideParseException):
        what = "expected KEY=VALUE, with quotes around special characters"
        return f"cannot read the override {error.override!r}: {what}"
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"{error.problem_mark.name}, line {error.problem_mark.line + 1}: {error.problem}"
    if found := re.search(r"Could not (?:override|delete from config\.?) '([^']+)'", text):
        key = found[1].split("@")[0]
        return f"{key}: there is no such setting; {did_you_mean(key, _keys_beside(key, arguments))}"
    if isinstance(error, RecursionError):
        return "the configurations lead back to themselves, or too deep"
    lines = text.splitlines() or [type(error).__name__]
    key = getattr(error, "full_key", None)
    return " ".join(lines[:2] if lines[0].endswith(":") else lines[:1]) + (f" (in {key})" if key else "")


def _keys_beside(key: str, arguments: list[str]) -> set[str]:
    """Return what could have been meant: the keys of the same section, given the groups that were chosen."""
    groups = {folder.name for folder in conf_folder().iterdir() if folder.is_dir()}
    choices = [a for a in arguments if re.fullmatch(r"\w+=[\w-]+", a) and a.partition("=")[0] in groups]
    try:
        config = compose(choices)
    except COMPOSING:
        config = compose([])
    section, _, _ = key.rpartition(".")
    node = OmegaConf.select(config, section) if section else config
    if not isinstance(node, DictConfig):
        return groups
    return {f"{section}.{name!s}".strip(".") for name in node} | (set() if section else groups)
