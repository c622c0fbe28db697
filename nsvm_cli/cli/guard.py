"""What is read from a configuration folder that may be a stranger's, and what of it is refused.

Such a file holds settings and nothing else: it says neither how Hydra runs (which would run code) nor which
modules are imported, it does not look into the environment, and reading it takes little time and memory.
Hydra reads every file through ``GuardedSource``, for every job of a sweep too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import yaml
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf

from nsvm_cli.errors import InputError

CHARACTERS, VALUES, LENGTH, DEPTH = 2**16, 2000, 1000, 20
"""The most that the files of a folder come to: characters and values of all that are composed; characters
of a value, and how deep one is nested."""

REFERENCE = re.compile(r"\$\{[\w.]+\}")
RESERVED = re.compile(r"\b(hydra|plugins)\b")
PIECE = r"[\w-][\w.-]*"
NAME = re.compile(rf"/?{PIECE}(/{PIECE})*")
GROUP = re.compile(rf"((optional|override) )*{NAME.pattern}(@[\w.]+)?")


def guard(own: Path) -> None:
    """From now on Hydra reads files as ``GuardedSource`` does; those of the folder ``own`` are ours."""
    GuardedSource.own = own.resolve()
    Plugins.instance()  # registers Hydra's own sources, of which ours takes one's place
    SourcesRegistry.instance().types[GuardedSource.scheme()] = GuardedSource


def check_words(words: Iterable[str]) -> None:
    """Raises InputError for a setting that asks a resolver, such as ``seed=${oc.env:SEED}``.

    Its answer would end up in the run directory, and the shell can give it: ``seed=$SEED``. The words about
    Hydra are the user's own affair.
    """
    for word in words:
        if not re.match(r"[+~]*hydra[./]", word) and asks_resolver(word):
            raise InputError(f"{word}: expected a value, or a reference to one such as ${{algorithm.steps}}")


def asks_resolver(text: str) -> bool:
    """Whether there is more to interpolate than plain references."""
    return "${" in REFERENCE.sub("", text)


class GuardedSource(FileConfigSource):
    """A folder of configurations, of which a composition has one instance."""

    own: ClassVar[Path]

    def __init__(self, provider: str, path: str) -> None:
        super().__init__(provider, path)
        self.characters = self.values = 0

    def is_group(self, config_path: str) -> bool:
        _check_path(config_path)
        return super().is_group(config_path)

    def is_config(self, config_path: str) -> bool:
        _check_path(config_path)
        return super().is_config(config_path)

    def load_config(self, config_path: str) -> ConfigResult:
        if Path(self.path).resolve() == self.own:
            return super().load_config(config_path)
        file = Path(self.path, self._normalize_file_name(config_path))
        try:
            self._check_text(file)
            result = super().load_config(config_path)
            _check_place(f"{config_path} {result.header['package']}")
            _check_keys(result.config)
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise InputError(f"{file}: {error}") from None
        return result

    def _check_text(self, file: Path) -> None:
        """Before the text is made into values, for that can take forever."""
        with file.open(encoding="utf-8") as stream:
            text = stream.read(CHARACTERS + 1)
        self.characters += len(text)
        if self.characters > CHARACTERS:
            raise ValueError(f"too long: expected at most {CHARACTERS} characters in all that is composed")
        depth = 0
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            self.values += isinstance(event, yaml.NodeEvent)
            if self.values > VALUES:
                raise ValueError(f"too many values: expected at most {VALUES} in all that is composed")
            if depth > DEPTH:
                raise ValueError(f"nested too deeply: expected at most {DEPTH} levels")
            if isinstance(event, yaml.AliasEvent):
                raise ValueError(f"the alias *{event.anchor}: expected the value itself")
            if tag := getattr(event, "tag", None):
                raise ValueError(f"the tag {tag}: expected plain values")
            if isinstance(event, yaml.ScalarEvent):
                _check_value(event.value)


def _check_path(config_path: str) -> None:
    """For ours too: a choice becomes a part of the name of the run directory."""
    if config_path.startswith("/") or ".." in PurePosixPath(config_path).parts:
        raise InputError(f"{config_path}: expected the name of a configuration, without ..")


def _check_place(names: str) -> None:
    if found := RESERVED.search(names):
        raise ValueError(f"{found[0]}: set on the command line only")


def _check_value(value: str) -> None:
    if len(value) > LENGTH:
        raise ValueError(f"too long a value: expected at most {LENGTH} characters, got {value[:20]}...")
    if not re.sub(r"\s", "", value).isprintable():
        raise ValueError(f"expected printable characters, got {value!r}")
    if asks_resolver(value):
        raise ValueError(f"{value}: expected a value, or a reference to one such as ${{algorithm.steps}}")
    if len(REFERENCE.findall(value)) > 1:  # text that doubles with each reference has no end
        raise ValueError(f"{value}: expected one reference")


def _check_keys(config: Any) -> None:
    if not isinstance(config, DictConfig):
        raise ValueError("expected KEY: VALUE")
    values = OmegaConf.to_container(config)
    assert isinstance(values, dict)
    if "hydra" in values:
        keys = values["hydra"] if isinstance(values["hydra"], dict) else []
        raise ValueError(f"{'.'.join(['hydra', *list(keys)[:1]])}: set on the command line only")
    if "plugins" in values:
        raise ValueError("plugins: name modules on the command line, as in plugins=[my_parts]")
    _check_defaults(values.get("defaults", []))


def _check_defaults(entries: Any) -> None:
    """A file takes in one other at most: were it two, and those two each, composing would have no end."""
    taken = 0
    for entry in entries if isinstance(entries, list) else [entries]:
        pairs = entry.items() if isinstance(entry, dict) else [(entry, None)]
        for group, option in pairs:
            name = "null" if option is None else str(option)
            named = isinstance(group, str) and GROUP.fullmatch(group)
            if not named or not NAME.fullmatch(REFERENCE.sub("x", name)):
                raise ValueError(f"defaults: expected the name of a configuration, got {entry!r}")
            _check_place(f"{group} {name}")
            taken += group != "_self_" and "override" not in group.split()[:-1]
    if taken > 1:
        raise ValueError("defaults: expected one entry at most that is not an override")
