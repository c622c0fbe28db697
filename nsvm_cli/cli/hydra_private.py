"""What is private to Hydra, or differs between its versions (but its messages, see ``hydra_app``)."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from typing import Any, NoReturn

import hydra
import hydra.utils
from hydra._internal import hydra as hydra_application
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import get_args_parser
from hydra.types import RunMode
from omegaconf import DictConfig

from nsvm_cli.errors import InputError, did_you_mean

OLD = hydra.__version__.startswith("1.3.")
if OLD:
    # later versions have these defaults, and warn of being told
    COMPOSE_OPTIONS: dict[str, Any] = {"version_base": "1.3"}
    MAIN_OPTIONS = COMPOSE_OPTIONS
else:
    COMPOSE_OPTIONS = {}
    # the configuration is the user's own, and so are the callbacks and log handlers that it names
    trust = hydra.utils.UNSAFE_DISABLE_EXECUTION_CHECKS  # type: ignore[attr-defined, unused-ignore]
    MAIN_OPTIONS = {"execution_whitelist": trust}

INFO = ("--info", "-i")

ONE_RUN = "hydra.mode=RUN"
"""What Hydra adds to the overrides if nothing says what the mode is."""


def flag_actions() -> list[argparse.Action]:
    """Return Hydra's flags, as argparse describes them."""
    return [action for action in get_args_parser()._actions if action.option_strings]


def flags_first(arguments: list[str]) -> list[str]:
    """Return the arguments with the flags in front, since Hydra's parser takes none after an override.

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


def completion_query(line: str) -> list[str]:
    """Return the arguments with which Hydra prints its completions of a command line, as its scripts do."""
    os.environ["COMP_LINE"] = line  # Hydra reads it there
    return ["-sc", "query=bash"]


class _Loader(ConfigLoaderImpl):
    """Composes the configuration of a single run once.

    Hydra 1.3 composes it first as if for a sweep, only to read ``hydra.mode`` in it, and then for one run.
    This composes it for one run at first, if it can be, and has it ready when Hydra asks for that.
    """

    composed: tuple[list[str], DictConfig] | None = None

    def load_configuration(
        self, config_name: str | None, overrides: list[str], *rest: Any, **how: Any
    ) -> DictConfig:
        before, self.composed = self.composed, None
        if how.get("validate_sweep_overrides") is False:  # then it is about hydra.mode
            of_one = {**how, "run_mode": RunMode.RUN, "validate_sweep_overrides": True}
            with contextlib.suppress(Exception):  # what is wrong for one run need not be for a sweep
                config = super().load_configuration(config_name, overrides, *rest, **of_one)
                self.composed = [*overrides], config
                return config
        elif before and overrides == [*before[0], ONE_RUN]:
            config = before[1]
            config.hydra.mode = RunMode.RUN
            config.hydra.overrides.hydra.append(ONE_RUN)
            return config
        return super().load_configuration(config_name, overrides, *rest, **how)


@contextlib.contextmanager
def composing_once() -> Iterator[None]:
    """Let Hydra compose the configuration of a single run once within the context, as later versions do."""
    if OLD:
        hydra_application.ConfigLoaderImpl = _Loader  # type: ignore[attr-defined]
    try:
        yield
    finally:
        hydra_application.ConfigLoaderImpl = ConfigLoaderImpl  # type: ignore[attr-defined]


def _value(parser: argparse.ArgumentParser, flag: str, rest: Iterator[str]) -> list[str]:
    """Return the word after a flag that takes one, such as ``--config-dir FOLDER``."""
    name, has_value, _ = flag.partition("=")
    known = parser._option_string_actions
    matching = (
        [known[name]]
        if name in known
        else [known[o] for o in known if o.startswith(name) and name[1:2] == "-"]
    )
    if not matching:
        raise InputError(
            f"there is no flag {flag}; {did_you_mean(flag, [o for o in known if o.startswith('--')])}; "
            "a setting is written KEY=VALUE"
        )
    takes_value = matching[0].nargs is None and not has_value
    return [word for word in [next(rest, None)] if word is not None] if takes_value else []


def _refuse(message: str) -> NoReturn:
    raise InputError(message)
