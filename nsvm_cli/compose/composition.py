"""Hydra: compose configurations, start jobs, and report errors in one line.

Hydra offers no public way to do four things, each of which is done in one place here: run an application
with given arguments (``sys.argv``), let its errors through (``HYDRA_FULL_ERROR``), compose in a program that
uses Hydra itself (``GlobalHydra``), and remove stored configurations again (``ConfigStore.repo``).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import io
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import hydra
import hydra.utils
import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import nsvm_cli
from nsvm_cli.config.overrides import quoted
from nsvm_cli.config.registry import OWN_PART, Registry
from nsvm_cli.config.settings import flat, with_effect
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.plugins import code_sha256, load_plugins

CONFIG_NAME = "train"
FULL_ERROR = "HYDRA_FULL_ERROR"
RUN_DIRECTORY_KEYS = ("overwrite", "allow_mismatch")
"""Keys that decide on an existing run in the directory; they are not settings of the run."""
OTHER_KEYS = ("hydra", "tuned", *RUN_DIRECTORY_KEYS)
"""Keys of a configuration that are not settings of a run."""

OTHER_FOLDERS = ("hydra", "suite", "tune", "tuned")
"""Folders in conf/ that are not groups to choose an option from."""

TUNED_BY = {"dataset", "network", "kernel", "algorithm"}
"""Groups whose parts an entry of a file in conf/tuned/ may name."""

COMPOSE_OPTIONS: dict[str, Any] = {}
MAIN_OPTIONS: dict[str, Any] = {}
register_resolver: Any
if hydra.__version__.startswith("1.3."):
    # the default of later versions, which warn if it is given
    COMPOSE_OPTIONS = MAIN_OPTIONS = {"version_base": "1.3"}
    register_resolver = OmegaConf.register_new_resolver
else:
    # the configuration is the user's own, and so are the callbacks and log handlers that it names
    trust = hydra.utils.UNSAFE_DISABLE_EXECUTION_CHECKS  # type: ignore[attr-defined, unused-ignore]
    MAIN_OPTIONS = {"execution_whitelist": trust}
    register_resolver = OmegaConf.register_resolver  # type: ignore[attr-defined, unused-ignore]


def _tuned(key: str, usual: object, *, _root_: DictConfig) -> Any:
    """Return the value of a key that suits the data and the parts of a configuration, or else the usual one.

    The file ``tuned/KIND.yaml``, where KIND is the value of ``tuned``, has entries such as ``alg4`` or
    ``alg4+mlp``. An entry applies to configurations with all of its parts, or with classes that plugins
    derive from these; later entries override earlier ones.
    """
    value = usual
    if (kind := _root_.get("tuned")) is not None:
        chosen = {group: OmegaConf.select(_root_, f"{group}.name") for group in TUNED_BY}
        names = {"all", *chosen.values()}
        for group in TUNED_BY & Registry.kinds.keys():
            names.update(Registry.kinds[group].names_of(Registry.kinds[group].get(chosen[group])))
        file = _tuned_file(kind, _root_)
        for entry, values in _entries(file, file.read_text()).items():
            if names.issuperset(entry.split("+")):
                value = values.get(key, value)
    return OmegaConf.create(value) if isinstance(value, list) else value


def _tuned_file(kind: object, root: DictConfig) -> Path:
    """Return the first file for a kind of data on Hydra's search path."""
    runtime = (root.hydra if "hydra" in root else HydraConfig.get()).runtime
    sources = [source.path for source in runtime.config_sources if source.schema == "file"]
    folders = [Path(runtime.cwd, path, "tuned") for path in [conf_folder(), *sources]]
    files = {file.stem: file for folder in reversed(folders) for file in folder.glob("*.yaml")}
    if str(kind) not in files:
        raise InputError(f"tuned={kind}: there is no such kind of data; {did_you_mean(str(kind), files)}")
    return files[str(kind)]


def _options() -> str:
    """Return a line for each group with its options, for the help."""
    words = [*HydraConfig.get().overrides.hydra]  # may include a search path
    options = GlobalHydra.instance().config_loader().get_group_options
    options_of = functools.partial(options, config_name=CONFIG_NAME, overrides=words)
    groups = (group for group in options_of("", ObjectType.GROUP) if group not in OTHER_FOLDERS)
    return "\n".join(f"{group}: {', '.join(options_of(group))}" for group in groups)


@functools.cache
def _entries(file: Path, text: str) -> dict[str, dict[str, Any]]:
    """Return the entries of a file in conf/tuned/, each with its values by dotted keys."""
    try:
        entries: Any = OmegaConf.to_container(OmegaConf.create(text))
        return {name: flat(values) for name, values in entries.items()}
    except (yaml.YAMLError, AttributeError, ValueError):
        raise InputError(f"{file}: expected entries such as alg4: {{optimizer: {{lr: 0.1}}}}") from None


def _two_or_more(classes: object) -> str:
    """Return ``two`` if ``dataset.classes`` lists two classes, else ``more``; None means all classes."""
    return "two" if isinstance(classes, ListConfig) and len(classes) == 2 else "more"


def _job(*, _root_: DictConfig) -> str:
    """Return the name of a sweep's job, which depends on its settings only."""
    values = plain_values(_root_, complete=False)
    mark = hashlib.sha256(json.dumps(with_effect(values), sort_keys=True).encode()).hexdigest()[:8]
    return re.sub(r"[^\w.-]+", "_", f"{values['algorithm']['name']}-{values['seed']}-{mark}")


register_resolver("tuned", _tuned, replace=True)
register_resolver("nsvm.two_or_more", _two_or_more, replace=True)
register_resolver("nsvm.job", _job, replace=True)
register_resolver("nsvm.options", _options, replace=True)


def conf_folder() -> Path:
    """Return conf/, which is inside the installed package, or next to the package in a checkout."""
    package = Path(nsvm_cli.__file__).parent
    return next(folder for folder in (package / "conf", package.parent / "conf") if folder.is_dir())


@contextlib.contextmanager
def _parts_known(words: Sequence[str]) -> Iterator[None]:
    """Import the plugins that words name, and store configurations for registered parts without a file in
    conf/ or in the user's folders. The end of the context removes them from Hydra's store.
    """
    load_plugins(_items(words, "plugins"))
    folders = [str(folder) for folder in (conf_folder(), *_items(words, "hydra.searchpath"))]
    folders += [word.removeprefix("--config-dir=") for word in words if word.startswith("--config-dir=")]
    store, kinds = ConfigStore.instance(), _groups() & Registry.kinds.keys()
    before, store.repo = store.repo, store.repo | {kind: {**store.repo.get(kind, {})} for kind in kinds}
    try:
        for kind in kinds:
            for name in Registry.kinds[kind]:
                if stored := _without_file(folders, kind, name):
                    store.store(name, group=kind, **stored)
        yield
    finally:
        store.repo = before


def _without_file(folders: Sequence[str], kind: str, name: str) -> dict[str, Any] | None:
    """Return the configuration of a part without a file, as arguments of ``ConfigStore.store``.

    It has the settings of the constructor and, if a base class has a file, the values there. None if the part
    itself has a file.
    """
    registry = Registry.kinds[kind]
    for base in (name, *registry.names_of(registry[name])):
        files = (Path(folder.removeprefix("file://"), kind, f"{base}.yaml") for folder in folders)
        if file := next(filter(Path.is_file, files), None):
            if base == name:
                return None
            values: Any = OmegaConf.to_container(OmegaConf.create(text := file.read_text()))
            if not re.search(r"^# *@package _global_", text, re.MULTILINE):
                return {"node": registry.derived(name, base, values)}
            part = registry.derived(name, base, values.get(kind, {}))
            return {"node": {**values, kind: part}, "package": "_global_"}
    return {"node": registry.section(name)}


def _items(words: Iterable[str], key: str) -> list[Any]:
    """Return the items of the lists in words ``KEY=[...]``; other values are refused elsewhere."""
    words = [word for word in words if word.lstrip("+").startswith(f"{key}=")]
    values = [override.value() for override in OverridesParser.create().parse_overrides(words)]
    return [item for value in values if isinstance(value, list) for item in value]


def _expect_options(words: Iterable[str]) -> None:
    """Raise an InputError for words that Hydra answers with a traceback, or with advice on YAML files."""
    overrides = [word for word in words if not word.startswith("--")]
    for override in OverridesParser.create().parse_overrides(overrides):
        word, group, value = str(override.input_line), override.key_or_group, override.value()
        if not group:
            raise OverrideParseException(word, "")
        chosen = [option for option in getattr(value, "list", [value]) if isinstance(option, list)]
        nested = any(not isinstance(name, str) for names in chosen for name in names)
        if group in _groups() and (nested or (override.is_add() and override.package is None)):
            names = ", ".join(sorted(file.stem for file in (conf_folder() / group).glob("*.yaml")))
            raise InputError(f"{word}: expected {group}=OPTION, without + or further lists (known: {names})")


@contextlib.contextmanager
def _in_one_line() -> Iterator[None]:
    """Raise errors of Hydra and OmegaConf within the context as an InputError."""
    try:
        yield
    except InputError:
        raise
    except RecursionError:
        raise InputError("the configurations lead back to themselves, or too deep") from None
    except (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError) as error:
        raise InputError(_line_of(error)) from None


def run_app(task: Callable[[DictConfig], float | None], arguments: Sequence[str]) -> None:
    """Run Hydra with flags and overrides. It calls ``task`` with the configuration of each job.

    ``task`` must be picklable, as launchers may call it in another process.

    Raises:
        InputError: an unknown group, option or key, or an override that cannot be read.
    """
    app = hydra.main(config_path=str(conf_folder()), config_name=CONFIG_NAME, **MAIN_OPTIONS)(task)
    sys.argv = ["nsvm train", *arguments]
    full_error = os.environ.get(FULL_ERROR, "0")
    os.environ[FULL_ERROR] = "1"  # Hydra then raises its errors instead of printing them
    try:
        with _in_one_line(), _parts_known(arguments):
            _expect_options(arguments)
            app()
    finally:
        os.environ[FULL_ERROR] = full_error


COMPOSING_LOCK = threading.RLock()
"""Protects the state of Hydra, which all threads of a process share."""


@_in_one_line()
def compose_settings(overrides: list[str], complete: bool = True) -> dict[str, Any]:
    """Return the settings of ``nsvm train`` with these overrides, as plain values.

    A missing value is an error if ``complete``, else ``???``, which ``build`` leaves out. The state of Hydra
    is restored, as the caller's program may use it as well.

    Raises:
        InputError: an unknown group, option or key, or an override that cannot be read.
    """
    with COMPOSING_LOCK:
        before = GlobalHydra.instance().hydra
        GlobalHydra.instance().clear()
        try:
            with hydra.initialize_config_dir(str(conf_folder()), **COMPOSE_OPTIONS), _parts_known(overrides):
                _expect_options(overrides)
                # Hydra's section has the search path, which ${tuned:...} needs
                config = hydra.compose(CONFIG_NAME, overrides, return_hydra_config=True)
        finally:
            GlobalHydra.instance().hydra = before
    return plain_values(config, complete)


@_in_one_line()
def plain_values(config: DictConfig, complete: bool = True) -> dict[str, Any]:
    """Return the settings as plain values, with interpolations resolved; see ``compose_settings``."""
    parts = {str(key): config[key] for key in config if key not in OTHER_KEYS}
    for key, part in parts.items():
        if OmegaConf.is_config(part):
            parts[key] = OmegaConf.to_container(part, resolve=True, throw_on_missing=complete)
    return parts


def settings_words(words: Iterable[str]) -> list[str]:
    """Return the words except for ``overwrite`` and ``allow_mismatch``, which are not settings."""
    return [word for word in words if word.partition("=")[0] not in RUN_DIRECTORY_KEYS]


def sources_sha256(hydra: Any) -> str | None:
    """Return the SHA-256 of the configurations and plugins of a sweep.

    Jobs with the same hash and the same words have the same settings and the same directory in the sweep's.
    None if that is not certain: configurations are in a package, or a file or word of the user's calls a
    resolver such as ``${oc.env:X}``.
    """
    sweep: Any = OmegaConf.to_container(hydra.sweep)
    overrides: Any = OmegaConf.to_container(hydra.overrides.task)  # not resolved
    words = [*overrides, sweep["subdir"], hydra.job.config_name]
    files: dict[str, str] = {}
    for source in hydra.runtime.config_sources:
        folder = Path(hydra.runtime.cwd, source.path)
        if source.schema == "pkg" and not source.path.startswith("hydra"):
            return None
        if source.schema == "file":
            files |= {str(file): file.read_text() for file in sorted(folder.rglob("*.yaml"))}
    own = [text for file, text in files.items() if not file.startswith(f"{conf_folder()}{os.sep}")]
    if any(re.search(r"\$\{(?!tuned:|nsvm\.)([\w.]+:|hydra\.)", str(text)) for text in (*words, *own)):
        return None
    content = [nsvm_cli.__version__, words[-2:], files, code_sha256()]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def search_folder(folder: str | None) -> list[str]:
    """Return the override that is equivalent to ``--config-dir FOLDER``; none without a folder."""
    if folder is None:
        return []
    if not Path(folder).is_dir():
        raise InputError(f"--config-dir: there is no folder {folder!r}")
    return [f"hydra.searchpath=[{quoted(f'file://{Path(folder).absolute()}')}]"]


def complete_overrides(
    prefix: str, parsed_args: argparse.Namespace, given: Sequence[str] = (), **_: Any
) -> list[str]:
    """Return Hydra's completions of ``prefix`` after the ``given`` overrides and the typed ones."""
    folder = parsed_args.config_dir
    os.environ["COMP_LINE"] = " ".join(["nsvm", *given, *parsed_args.words, prefix])  # where Hydra reads it
    flags = ["--shell-completion", *([] if folder is None else [f"--config-dir={folder}"])]
    with contextlib.redirect_stdout(io.StringIO()) as answer, _parts_known([*flags, *parsed_args.words]):
        run_app(lambda config: None, [*flags, "query=bash"])
    completions = answer.getvalue().split()
    if len(completions) == 1 and completions[0].endswith(".") and completions[0] != prefix:
        return complete_overrides(completions[0], parsed_args, given)  # else the shell would end the word
    return completions


LAUNCHERS = {"joblib": "'nsvm[joblib]'", "ray": "'nsvm[ray]'", "submitit": "'nsvm[slurm]'"}
"""Packages of the launchers that Hydra does not include."""

MEANT = {"learning_rate": "lr", "epochs": "steps", "iterations": "steps", "lambda": "lam", "model": "network"}
"""Names of settings in other libraries, and their names here."""


def _line_of(error: Exception) -> str:
    """Return the message of an error of Hydra in one line, with suggestions for unknown names."""
    text = str(error) or str(error.__cause__)
    text = text.replace("InputError raised while resolving interpolation: ", "")
    if isinstance(error, MissingConfigException) and (file := error.missing_cfg_file):
        group, _, option = file.rpartition("/") if file.startswith("hydra/") else file.partition("/")
        launchers = LAUNCHERS if group == "hydra/launcher" else {}
        if package := launchers.get(option.partition("_")[0]):
            return f"hydra/launcher={option} needs a plugin of Hydra: pip install {package}"
        if error.options is not None:
            hint = did_you_mean(option, {*error.options, *launchers})
            hint += f"; {OWN_PART}" if group in _groups() - {"experiment"} else ""
            return f"{group}={option}: there is no such {group}; {hint}"
    if match := re.search(r"Could not (?:override|delete from config\.?) '([^'@]+)'", text):
        section = getattr(error.__cause__, "parent_node", None)  # the section without the key
        key = getattr(error.__cause__, "full_key", None) or match[1].replace("/", ".")
        return _no_such_setting(key, map(str, section or ()))
    if match := re.search(r"(?:Ambiguous value for argument|Sweep parameters) '(.+)'", text):
        return f"{match[1]} has several values: to train with all, add -m; a list is written KEY=[A,B]"
    if "Missing mandatory value" in text:
        return f"{getattr(error, 'full_key', None) or text.split()[-1]} needs a value"
    if isinstance(error, OverrideParseException):
        advice = "expected KEY=VALUE, with quotes around special characters: \"dataset.path='my data.csv'\""
        return f"cannot read the override {error.override!r}: {advice}"
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"{error.problem_mark.name}, line {error.problem_mark.line + 1}: {error.problem}"
    if "Config group override must be" in text:
        return "a group takes the name of an option, such as kernel=rbf"
    if isinstance(error, HydraException):
        return text
    key = getattr(error, "full_key", None)
    return text.partition("\n")[0] + (f" (in {key})" if key else "")


def _no_such_setting(key: str, names: Iterable[str]) -> str:
    """Return the message about an unknown setting, given the names of the settings in its section."""
    section, _, name = key.rpartition(".")
    if section.startswith("hydra"):
        return f"{key}: Hydra has no such setting; nsvm train --cfg hydra shows all"
    options: dict[str, list[str]] = {}
    for group in _groups() - {"experiment"}:
        for file in sorted((conf_folder() / group).glob("*.yaml")):
            for other in re.findall(r"^ *(\w+):", file.read_text(), re.MULTILINE):
                options.setdefault(f"{group}.{other}", []).append(f"{group}={file.stem}")
    if key in options:
        plugins = f"a part of your own takes +{key}=VALUE"
        return f"{key}: there is no such setting here, but with {' or '.join(options[key])}; {plugins}"
    here = {f"{section}.{other}" for other in names} if section else _groups().union(names) - {*OTHER_KEYS}
    here = here or {other for other in options if other.startswith(f"{section}.")} or _groups()
    return f"{key}: there is no such setting; {did_you_mean(MEANT.get(name, key), here, options)}"


def _groups() -> set[str]:
    """Return the names of the groups to choose an option from."""
    folders = {folder.name for folder in conf_folder().iterdir() if folder.is_dir()}
    return folders.difference(OTHER_FOLDERS)
