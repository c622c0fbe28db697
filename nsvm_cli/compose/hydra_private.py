"""Uses of Hydra that are private or differ between its versions (except its messages, see ``hydra_app``)."""

from __future__ import annotations

import argparse
import contextlib
import copy
import os
import traceback
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NoReturn

import hydra
import hydra.utils
from hydra._internal import hydra as hydra_application
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import get_args_parser
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.plugins.config_source import ConfigResult
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf._utils import get_omega_conf_dumper

from nsvm_cli.errors import InputError, did_you_mean

OLD = hydra.__version__.startswith("1.3.")
if OLD:
    # later versions have these defaults, and warn if they are given
    COMPOSE_OPTIONS: dict[str, Any] = {"version_base": "1.3"}
    MAIN_OPTIONS = COMPOSE_OPTIONS
else:
    COMPOSE_OPTIONS = {}
    # the configuration is the user's own, and so are the callbacks and log handlers that it names
    trust = hydra.utils.UNSAFE_DISABLE_EXECUTION_CHECKS  # type: ignore[attr-defined, unused-ignore]
    MAIN_OPTIONS = {"execution_whitelist": trust}

ESTIMATE = "--estimate"
"""The flag of ``nsvm train`` that Hydra does not know."""

INFO = ("--info", "-i")

ONE_RUN = "hydra.mode=RUN"
"""The override that Hydra adds if no other sets the mode."""


def register_resolver(name: str, resolver: Callable[..., object]) -> None:
    """Register a resolver for interpolations; in OmegaConf 2.4 the function for this has another name."""
    register: Any = OmegaConf.register_new_resolver if OLD else OmegaConf.register_resolver
    register(name, resolver, replace=True)


def flag_actions() -> list[argparse.Action]:
    """Return Hydra's flags, as argparse describes them."""
    return [action for action in get_args_parser()._actions if action.option_strings]


def flags_first(arguments: list[str]) -> list[str]:
    """Return the arguments with the flags in front, since Hydra's parser accepts none after an override.

    Raises:
        InputError: an unknown flag, or one with a wrong value.
    """
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


def jobs_of(overrides: list[Override]) -> list[list[str]]:
    """Return the words of each job that Hydra's own sweeper makes of the overrides of a sweep."""
    (jobs,) = BasicSweeper.split_arguments(overrides, None)
    return jobs


def parsed(arguments: list[str]) -> argparse.Namespace:
    """Return the flags and the ``overrides`` of the command line.

    Raises:
        InputError: an unknown flag, or one with a wrong value.
    """
    return get_args_parser().parse_args(flags_first(arguments))


def asks_for_sweep(arguments: list[str]) -> bool:
    """Return whether the command line asks for a sweep; the user's configuration may do so too.

    Raises:
        InputError: an unknown flag, or one with a wrong value.
    """
    options = parsed(arguments)
    modes = (word.lstrip("+").replace("'", "").replace('"', "") for word in options.overrides)
    return options.multirun or f"hydra.mode={RunMode.MULTIRUN.name}" in modes


def completion_query(line: str) -> list[str]:
    """Return the arguments with which Hydra prints its completions of a command line, as its scripts do."""
    os.environ["COMP_LINE"] = line  # Hydra reads it there
    return ["-sc", "query=bash"]


NOT_CHOSEN = ("baseline", "tune", "values")
"""Groups that users do not choose from: within ``experiment``, of another command, and for data sets."""

MOST_PARTS = 200
"""The most choices of parts whose configurations are cached: each takes a few hundred kilobytes."""


class _Files(ConfigRepository):
    """Reads each file once: parsing YAML takes a third of the time of composing."""

    read: ClassVar[dict[tuple[str, ...], ConfigResult | None]] = {}

    def load_config(self, config_path: str) -> ConfigResult | None:
        key = *map(repr, self.get_sources()), config_path
        if key not in self.read:
            self.read[key] = super().load_config(config_path)
        return copy.deepcopy(self.read[key])  # Hydra modifies it


class _Groups(ConfigLoaderImpl):
    """Lists, in the help and for completion, only the groups from which a user chooses options."""

    def get_group_options(
        self, group_name: str, results_filter: ObjectType | None = ObjectType.CONFIG, *rest: Any, **how: Any
    ) -> list[str]:
        options = super().get_group_options(group_name, results_filter, *rest, **how)
        hidden = NOT_CHOSEN if results_filter == ObjectType.GROUP else ()
        return [name for name in options if name not in hidden]


class _Loader(_Groups):
    """Composes no more often than necessary, like later versions of Hydra.

    Hydra 1.3 composes the configuration of a single run first as if for a sweep, only to read ``hydra.mode``
    in it, and then for one run. This class first tries to compose it for one run, and returns the same when
    Hydra asks for that.

    The configuration of each job of a sweep is composed before the sweep, to check it, and again where the
    job runs. That takes longer than a short run, though most jobs differ in values alone. So this class
    composes from files once for each choice of parts, in each process, and applies a job's values to a copy.
    """

    composed: tuple[list[str], DictConfig] | None = None
    by_parts: ClassVar[dict[tuple[str, ...], DictConfig]] = {}

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        super().__init__(config_search_path)
        self.repository = _Files(config_search_path)

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        from hydra._internal.config_loader_impl import get_overrides_dirname  # Hydra 1.4 does not have it

        overrides = OverridesParser.create().parse_overrides(sweep_overrides)
        values = [override for override in overrides if _is_value(override, master_config)]
        words = [str(override.input_line) for override in overrides if override not in values]
        key = str(self.config_search_path), *map(str, master_config.hydra.overrides.hydra), *words
        if key not in self.by_parts:
            if len(self.by_parts) >= MOST_PARTS:
                self.by_parts.clear()
            self.by_parts[key] = super().load_sweep_config(master_config, words)
        config = copy.deepcopy(self.by_parts[key])
        self._apply_overrides_to_config(values, config)
        task = [override for override in overrides if not override.is_hydra_override()]
        config.hydra.overrides.task = [override.input_line for override in task]
        how = config.hydra.job.config.override_dirname
        config.hydra.job.override_dirname = get_overrides_dirname(
            task, exclude_keys=how.exclude_keys, item_sep=how.item_sep, kv_sep=how.kv_sep
        )
        OmegaConf.copy_cache(from_config=master_config, to_config=config)
        return config

    def load_configuration(
        self, config_name: str | None, overrides: list[str], *rest: Any, **how: Any
    ) -> DictConfig:
        before, self.composed = self.composed, None
        if how.get("validate_sweep_overrides") is False:  # Hydra wants to read hydra.mode
            single = {**how, "run_mode": RunMode.RUN, "validate_sweep_overrides": True}
            with contextlib.suppress(Exception):  # an error for one run may be none for a sweep
                config = super().load_configuration(config_name, overrides, *rest, **single)
                self.composed = [*overrides], config
                return config
        elif before and overrides == [*before[0], ONE_RUN]:
            config = before[1]
            config.hydra.mode = RunMode.RUN
            config.hydra.overrides.hydra.append(ONE_RUN)
            return config
        return super().load_configuration(config_name, overrides, *rest, **how)


def _is_value(override: Override, config: DictConfig) -> bool:
    """Return whether an override sets a value: it neither chooses a part nor configures Hydra."""
    key = override.key_or_group
    value = "." in key or (key in config and key not in config.hydra.runtime.choices)
    return value and "/" not in key and override.package is None and not override.is_hydra_override()


def composed_so_far(error: Exception) -> DictConfig | None:
    """Return the configuration of the chosen parts to which Hydra could not apply an override."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    applying = (f.f_locals for f in frames if f.f_code.co_name == "_apply_overrides_to_config")
    return next((names["cfg"] for names in applying), None)


@contextlib.contextmanager
def composing_once() -> Iterator[None]:
    """Let Hydra compose no more often than necessary within the context, see ``_Loader``."""
    if OLD:
        _Loader.by_parts.clear()
        _Files.read.clear()
    hydra_application.ConfigLoaderImpl = _Loader if OLD else _Groups  # type: ignore[attr-defined]
    try:
        yield
    finally:
        hydra_application.ConfigLoaderImpl = ConfigLoaderImpl  # type: ignore[attr-defined]


@contextlib.contextmanager
def writing_any_name() -> Iterator[None]:
    """Let Hydra write names that are not UTF-8 into a sweep's multirun.yaml, with the bytes escaped.

    OmegaConf 2.4 writes YAML with libyaml, which refuses them.
    """
    if OLD:
        yield
        return
    dumper = get_omega_conf_dumper()
    represent = dumper.yaml_representers[str]
    dumper.add_representer(
        str, lambda to, text: represent(to, text.encode(errors="backslashreplace").decode())
    )
    try:
        yield
    finally:
        dumper.add_representer(str, represent)


def _value(parser: argparse.ArgumentParser, flag: str, rest: Iterator[str]) -> list[str]:
    """Return the word after a flag that takes one, such as ``--config-dir FOLDER``."""
    name, has_value, _ = flag.partition("=")
    actions = parser._option_string_actions
    matching = (
        [actions[name]]
        if name in actions
        else [actions[o] for o in actions if o.startswith(name) and name[1:2] == "-"]
    )
    if not matching:
        flags = [ESTIMATE, *(o for o in actions if o.startswith("--"))]
        raise InputError(
            f"there is no flag {flag}; {did_you_mean(flag, flags)}; a setting is written KEY=VALUE"
        )
    takes_value = matching[0].nargs is None and not has_value
    return [word for word in [next(rest, None)] if word is not None] if takes_value else []


def _refuse(message: str) -> NoReturn:
    raise InputError(message)
