"""Composing from the files of nsvm and Hydra once for each choice of parts: half of the time that it takes.

A test that asks for other settings of the same parts gets a copy, to which Hydra applies the settings. What
lies in a folder of the test's own is composed anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any
from unittest import mock

from hydra._internal import config_loader_impl
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.defaults_list import DefaultsList, Overrides
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig

from nsvm_cli.cli.hydra_app import conf_folder

OURS = {str(conf_folder())}


def lasting(repository: Any) -> tuple[str, ...] | None:
    """Return what is composed from, or None if a file there may change."""
    sources = repository.get_sources()
    files = {source.path for source in sources if source.scheme() == "file"}
    return tuple(map(repr, sources)) if files <= OURS else None


@contextmanager
def composed_once() -> Iterator[None]:
    """Remember which files a choice of parts consists of, and what they compose."""
    lists: dict[tuple[Any, ...], DefaultsList] = {}
    configs: dict[tuple[Any, ...], DictConfig] = {}
    choose = config_loader_impl.create_defaults_list
    merge = ConfigLoaderImpl._compose_config_from_defaults_list

    def chosen(
        repo: Any, config_name: str, overrides_list: list[Override], prepend_hydra: bool, skip_missing: bool
    ) -> DefaultsList:
        how = prepend_hydra, skip_missing
        if (sources := lasting(repo)) is None:
            return choose(repo, config_name, overrides_list, *how)
        settings = Overrides(repo, overrides_list).config_overrides
        parts = [override for override in overrides_list if override not in settings]
        key = (*sources, config_name, *how, *(override.input_line for override in parts))
        if key not in lists:
            lists[key] = choose(repo, config_name, parts, *how)
        return replace(lists[key], config_overrides=settings)

    def merged(loader: ConfigLoaderImpl, defaults: list[Any], repo: Any) -> DictConfig:
        if (sources := lasting(repo)) is None:
            return merge(loader, defaults, repo)
        key = (*sources, *map(repr, defaults))
        if key not in configs:
            configs[key] = merge(loader, defaults, repo)
        return deepcopy(configs[key])

    with (
        mock.patch.object(config_loader_impl, "create_defaults_list", chosen),
        mock.patch.object(ConfigLoaderImpl, "_compose_config_from_defaults_list", merged),
    ):
        yield
