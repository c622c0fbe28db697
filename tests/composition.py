"""Reading the files of nsvm and Hydra once, and composing once for each choice of parts: most of the time.

A test that asks for other settings of the same parts gets a copy, to which Hydra applies the settings. What
lies in a folder of the test's own is composed anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any
from unittest import mock

from hydra._internal import config_loader_impl
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra._internal.defaults_list import DefaultsList, Overrides
from hydra.core.override_parser.types import Override
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig

from nsvm_cli.compose.composition import conf_folder

OURS = {str(conf_folder())}
HYDRAS: list[tuple[Any, str, Any]] = [
    (where, name, getattr(where, name))
    for where, name in (
        (ConfigRepository, "load_config"),
        (config_loader_impl, "create_defaults_list"),
        (ConfigLoaderImpl, "_compose_config_from_defaults_list"),
    )
]
"""What reads, chooses and merges, as it is in Hydra."""


def lasting(repository: Any) -> tuple[str, ...] | None:
    """Return what is composed from, or None if a file there may change."""
    sources = repository.get_sources()
    files = {source.path for source in sources if source.scheme() == "file"}
    return tuple(map(repr, sources)) if files <= OURS else None


@contextmanager
def composed_once() -> Iterator[None]:
    """Remember what the files hold, which of them a choice of parts consists of, and what these compose."""
    files: dict[tuple[str, ...], ConfigResult | None] = {}
    lists: dict[tuple[Any, ...], DefaultsList] = {}
    configs: dict[tuple[Any, ...], DictConfig] = {}
    read, choose, merge = (function for _, _, function in HYDRAS)

    def remembered(repo: ConfigRepository, config_path: str) -> ConfigResult | None:
        if (sources := lasting(repo)) is None:
            return read(repo, config_path)
        key = (*sources, config_path)
        if key not in files:
            files[key] = read(repo, config_path)
        return deepcopy(files[key])  # Hydra changes it

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

    with ExitStack() as afterwards:
        for (where, name, _), ours in zip(HYDRAS, (remembered, chosen, merged), strict=True):
            afterwards.enter_context(mock.patch.object(where, name, ours))
        yield
