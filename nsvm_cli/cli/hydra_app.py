"""Hydra, started on our arguments, its errors turned into one line each."""

from __future__ import annotations

import argparse
import contextlib
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
from omegaconf import MISSING, DictConfig, ListConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

import nsvm_cli
from nsvm_cli.cli.guard import check_words, guard
from nsvm_cli.errors import InputError, RunError, did_you_mean

CONFIG_NAME = "train"
COMPOSING = (HydraException, OmegaConfBaseException, ValueError, RecursionError)
"""What Hydra raises about arguments and configurations."""
INFO = ("--info", "-i")
NOT_TAKEN = ("config_path", "config_name", "experimental_rerun")
"""Flags of Hydra that put something in the place of conf/; the last one unpickles a file."""
MOST = 20_000
"""Values of a configuration, its references resolved."""


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
    _check_arguments(arguments)
    sys.argv = ["nsvm train", *arguments]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # so that errors come to us, who say them in one line
    guard(conf_folder())
    app = hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name=CONFIG_NAME)(job)
    try:
        app()
    except COMPOSING as error:
        if started and not isinstance(error, (HydraException, OmegaConfBaseException)):
            raise
        raise InputError(_sentence(error, arguments)) from None
    if failures:
        raise failures[0]


def compose_section(group: str, option: str) -> dict[str, Any]:
    """One section as conf/ composes it, without the keys that still need a value."""
    arguments = [f"{group}={option}"]
    with _in_one_line(arguments):
        section = OmegaConf.to_container(compose(arguments)[group], resolve=True)
    assert isinstance(section, dict)
    return {str(key): value for key, value in section.items() if value != MISSING}


def compose_settings(overrides: list[str]) -> dict[str, Any]:
    """What ``nsvm train`` with these overrides would run, as plain values.

    Raises:
        InputError: an unknown group, option or key, or an override that cannot be read.
    """
    with _in_one_line(overrides):
        return plain_values(compose(overrides))


def plain_values(config: DictConfig) -> dict[str, Any]:
    """The configuration as plain Python values, every interpolation resolved; without ``experiment``,
    which has served its purpose then.

    Raises:
        InputError: a value is missing or refers to one that does not exist.
    """
    with _in_one_line([]):
        values = _resolved(config, iter(range(MOST)))
    return {str(key): value for key, value in values.items() if key != "experiment"}


def _resolved(value: Any, room: Iterator[int]) -> Any:
    """Plain values, with every interpolation resolved; references that multiply do not get far."""
    if next(room, None) is None:
        raise InputError(f"too many values: expected at most {MOST}, the references resolved")
    if isinstance(value, DictConfig):
        return {key: _resolved(value[key], room) for key in value}
    if isinstance(value, ListConfig):
        return [_resolved(value[i], room) for i in range(len(value))]
    return value


def compose(overrides: list[str]) -> DictConfig:
    """What ``nsvm train`` with these overrides would run, its interpolations unresolved."""
    check_words(overrides)
    guard(conf_folder())
    GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(str(conf_folder()), version_base="1.3"):
        return hydra.compose(CONFIG_NAME, overrides)


def search_folder(folder: str) -> str:
    """The override that does what ``--config-dir`` does.

    Raises:
        InputError: there is no such folder.
    """
    if not Path(folder).is_dir():
        raise InputError(f"--config-dir: there is no folder {folder!r}")
    quoted = str(Path(folder).absolute()).replace("\\", "\\\\").replace("'", "\\'")
    return f"hydra.searchpath=['file://{quoted}']"


def _check_arguments(arguments: list[str]) -> None:
    """Refuses flags that would leave conf/ out, and what can be known of configurations before a run."""
    known = get_args_parser().parse_args(arguments)
    for flag in NOT_TAKEN:
        if getattr(known, flag) is not None:
            instead = "expected --config-dir FOLDER, which adds to nsvm's own configurations"
            raise InputError(f"nsvm takes no --{flag.replace('_', '-')}; {instead}")
    check_words(known.overrides)
    if known.config_dir is not None and Path(known.config_dir).is_dir():
        # whatever else is wrong has its own sentence later on
        with _in_one_line([]), contextlib.suppress(HydraException, OmegaConfBaseException):
            _resolved(compose([search_folder(known.config_dir), *known.overrides]), iter(range(MOST)))


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


@contextlib.contextmanager
def _in_one_line(arguments: list[str]) -> Iterator[None]:
    try:
        yield
    except COMPOSING as error:
        raise InputError(_sentence(error, arguments)) from None


def _refuse(message: str) -> NoReturn:
    raise InputError(message)


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
    if found := re.search(r"Could not (?:override|delete from config\.?) '([^']+)'", text):
        key = found[1].split("@")[0]
        return f"{key}: there is no such setting; {did_you_mean(key, _keys_beside(key, arguments))}"
    if isinstance(error, RecursionError):
        return "the configurations lead back to themselves, or too deep"
    return text.splitlines()[0] if text else type(error).__name__


def _keys_beside(key: str, arguments: list[str]) -> set[str]:
    """What could have been meant: the keys of the same section, given the groups that were chosen."""
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
