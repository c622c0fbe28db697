"""Hydra: compose configurations, start jobs, and report errors as one line."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.version import VersionBase
from omegaconf import MISSING, DictConfig, ListConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

import nsvm_cli
from nsvm_cli.compose.hydra_private import (
    COMPOSE_OPTIONS,
    MAIN_OPTIONS,
    composed_so_far,
    composing_once,
    flags_first,
    register_resolver,
    writing_any_name,
)
from nsvm_cli.errors import InputError, did_you_mean

CONFIG_NAME = "train"
FULL_ERROR = "HYDRA_FULL_ERROR"
REFERRED_TO = ("experiment", "values")
"""Sections that are not settings, but values that the sections of the parts refer to."""
COMPOSING = (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError, RecursionError)
"""Hydra's errors about arguments and configurations."""


def _two_or_more(classes: object) -> str:
    """Return which values of ``conf/values/images.yaml`` are for these ``dataset.classes``; None is all."""
    return "two" if isinstance(classes, ListConfig) and len(classes) == 2 else "more"


register_resolver("nsvm.two_or_more", _two_or_more)


def conf_folder() -> Path:
    """Return conf/, which is inside the installed package, or next to the package in a checkout."""
    package = Path(nsvm_cli.__file__).parent
    return next(folder for folder in (package / "conf", package.parent / "conf") if folder.is_dir())


def run_app(task: Callable[[DictConfig], float | None], arguments: list[str]) -> None:
    """Hand the arguments to Hydra, which composes each job's configuration and calls ``task`` with it.

    Args:
        task: called in this process, or by a launcher in another one: it must be picklable.

    Raises:
        InputError: an unknown flag, group, option or key, or an override that cannot be read.
    """
    arguments = flags_first(arguments)
    app = hydra.main(config_path=str(conf_folder()), config_name=CONFIG_NAME, **MAIN_OPTIONS)(task)
    argv, sys.argv = sys.argv, ["nsvm train", *arguments]
    wish = os.environ.get(FULL_ERROR)
    os.environ[FULL_ERROR] = "1"  # Hydra then raises its errors instead of printing them
    try:
        with _in_one_line(arguments), composing_once(), writing_any_name():
            app()
    finally:
        sys.argv = argv
        del os.environ[FULL_ERROR]
        if wish is not None:
            os.environ[FULL_ERROR] = wish


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
    with _in_one_line(overrides), _initialized():
        return plain_values(hydra.compose(CONFIG_NAME, overrides))


def plain_values(config: DictConfig, complete: bool = True) -> dict[str, Any]:
    """Return the configuration as plain values, every interpolation resolved.

    The sections that the interpolations refer to, ``REFERRED_TO``, are left out.

    Args:
        complete: whether every mandatory value must be there.

    Raises:
        InputError: a value is missing or refers to one that does not exist.
    """
    with _in_one_line([]):
        values = OmegaConf.to_container(config, resolve=True, throw_on_missing=complete)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items() if key not in REFERRED_TO}


def compose(overrides: list[str]) -> DictConfig:
    """Return the configuration of ``nsvm train`` with these overrides, its interpolations unresolved."""
    with _initialized():
        return hydra.compose(CONFIG_NAME, overrides)


COMPOSING_LOCK = threading.RLock()
"""Hydra has one state for all threads of a process."""


@contextlib.contextmanager
def _initialized() -> Iterator[None]:
    """Initialise Hydra with conf/, for one thread at a time, and leave it as it was: the caller's program may
    use Hydra as well.
    """
    with COMPOSING_LOCK:
        before = {kind: {**vars(kind.instance())} for kind in (GlobalHydra, VersionBase)}
        GlobalHydra.instance().clear()
        try:
            with hydra.initialize_config_dir(str(conf_folder()), **COMPOSE_OPTIONS):
                yield
        finally:
            for kind, values in before.items():
                vars(kind.instance()).update(values)


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


SENTENCES = {
    r"(?:Ambiguous value for argument|Sweep parameters) '(.+)'": "{0} has several values: to train with all, "
    "add -m to nsvm train; a list is written KEY=[A,B], and text with a comma \"KEY='A,B'\"",
    r"An item is already at '(.+)'\.": "{0} is there already: it is changed without a +",
    r"(.+) appears more than once in the final defaults": "{0} is there already: it is chosen without a +",
    r"Multiple values for (.+?)\.": "{0} is there already: it is chosen without a +",
    r"force-add of config groups is not supported: '\++(.+)'": "{0}: an option is chosen without a +",
    r"raised while resolving interpolation: (.+)": "{0}",
    r"Could not override ''": "cannot read an override that begins with =: expected KEY=VALUE",
    r"integer string conversion": "a number has thousands of digits: expected one that fits into 64 bits",
}
"""Messages in place of Hydra's, by a pattern in their first line."""


EXTRAS = {"joblib": "joblib", "ray": "ray", "submitit": "slurm"}
LAUNCHERS = {name: f"'nsvm[{extra}]'" for name, extra in EXTRAS.items()}
SWEEPERS = {name: f"hydra-{name}-sweeper" for name in ("ax", "nevergrad", "optuna")}
PLUGINS = {"hydra/launcher": LAUNCHERS, "hydra/sweeper": SWEEPERS}
"""The options that Hydra's plugins add, and the package for each."""

PLUGIN_GROUPS = tuple(f"{group}/" for group in PLUGINS)


def _sentence(error: Exception, arguments: list[str]) -> str:
    text = str(error) or str(error.__cause__ or "")
    if isinstance(error, MissingConfigException):
        file, options = error.missing_cfg_file or "", error.options
        if file and (options is not None or file.startswith(PLUGIN_GROUPS)):
            return _no_such_option(file, options or (), arguments)
    if isinstance(error, MissingMandatoryValue) or "Missing mandatory value" in text:
        return f"{getattr(error, 'full_key', None) or text.split()[-1]} needs a value"
    if isinstance(error, OverrideParseException):
        what = "expected KEY=VALUE, with quotes around special characters: \"dataset.path='my data.csv'\""
        return f"cannot read the override {error.override!r}: {what}"
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"{error.problem_mark.name}, line {error.problem_mark.line + 1}: {error.problem}"
    if text.startswith("Error merging override ") and error.__cause__:
        return f"{text.split()[3]}: {str(error.__cause__).splitlines()[0]}"
    if "Config group override must be" in text:
        words = [word for word in arguments if word.partition("=")[0] in _groups()]
        return f"{' '.join(words)}: expected the name of an option for each, such as kernel=rbf"
    if match := re.search(r"Could not (?:override|delete from config\.?) '([^']+)'", text):
        key, at, _ = match[1].partition("@")
        if at and key in _groups():
            return f"{key}: a defaults list names what chooses parts, as an experiment does, without @PACKAGE"
        return _no_such_setting(key, composed_so_far(error))
    if isinstance(error, RecursionError):
        return "the configurations lead back to themselves, or too deep"
    lines = text.splitlines() or [type(error).__name__]
    line = " ".join(lines[:2] if lines[0].endswith(":") else lines[:1])
    for pattern, saying in SENTENCES.items():
        if match := re.search(pattern, line):
            line = saying.format(*match.groups())
    key = getattr(error, "full_key", None)
    return line + (f" (in {key})" if key else "")


def _groups() -> set[str]:
    return {folder.name for folder in conf_folder().iterdir() if folder.is_dir()}


def _no_such_option(file: str, options: Iterable[str], arguments: Iterable[str] = ()) -> str:
    """Return the message about an option without a file, such as ``kernel/rbff``."""
    group, _, option = file.rpartition("/") if file.startswith("hydra/") else file.partition("/")
    plugins = PLUGINS.get(group, {})
    if (plugin := option.partition("_")[0]) in plugins:
        # an option of nsvm may build on one of the plugin: ray_local on ray
        typed = next((word for word in arguments if word.startswith(f"{group}=")), f"{group}={option}")
        return f"{typed} needs a plugin of Hydra: pip install {plugins[plugin]}"
    return f"{group}={option}: there is no such {group}; {did_you_mean(option, {*options, *plugins})}"


MEANT = {"learning_rate": "lr", "epochs": "steps", "iterations": "steps", "lambda": "lam", "model": "network"}
"""Names of settings in other programs, and their names here."""


def _no_such_setting(key: str, config: DictConfig | None) -> str:
    """Return the message about a setting that the configuration lacks; None if none was composed."""
    if "/" in key:
        return f"{key}: there is no such group; did you mean {key.replace('/', '.')}?"
    if key.startswith("hydra."):
        return f"{key}: Hydra has no such setting; nsvm train --cfg hydra shows what it has"
    options = _options_by_setting()
    if key in options:
        group = key.partition(".")[0]
        name = OmegaConf.select(config or OmegaConf.create(), f"{group}.name")
        if name and not (conf_folder() / group / f"{name}.yaml").exists():  # a part of the user's own
            return f"{key}: the YAML file of {group} {name} lacks it: add it there, or write +{key}=VALUE"
        return f"{key}: there is no such setting here, but with {' or '.join(options[key])}"
    here, elsewhere = _known_settings(key, compose([]) if config is None else config)
    meant = MEANT.get(key.rpartition(".")[2], key)
    return f"{key}: there is no such setting; {did_you_mean(meant, here, elsewhere | {*options})}"


def _known_settings(key: str, config: DictConfig) -> tuple[set[str], set[str]]:
    """Return the settings of a key's section, and those of the others."""
    groups, values = _groups(), OmegaConf.to_container(config)
    assert isinstance(values, dict)
    names = {str(name): value for name, value in values.items() if name != "hydra"}
    keys = {
        section: {f"{section}.{name}" for name in inner}
        for section, inner in names.items()
        if isinstance(inner, dict)
    }
    section = key.rpartition(".")[0]
    here = keys.get(section) or (groups if section else groups | {*names}) - {"values"}
    others = {other for name in keys.keys() - {*REFERRED_TO} for other in keys[name]}
    return here, {other for other in others if not other.endswith(".name")}


def _options_by_setting() -> dict[str, list[str]]:
    """Return which options of which group have a setting, for those that belong to one kind of part."""
    options: dict[str, list[str]] = {}
    for group in sorted(_groups() - {*REFERRED_TO, "tune"}):
        for file in sorted((conf_folder() / group).glob("*.yaml")):
            values = yaml.safe_load(file.read_text())
            for name in values.get(group, values).keys() - {"name", "defaults"}:
                options.setdefault(f"{group}.{name}", []).append(f"{group}={file.stem}")
    return options
