"""Functions that use Hydra to compose configurations and start jobs.

Hydra has no public interface for four tasks: to run an application with given arguments (``sys.argv``), to
receive its errors (``HYDRA_FULL_ERROR``), to compose in a program that also uses Hydra (``GlobalHydra``),
and to remove stored configurations (``ConfigStore.repo``).
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
import textwrap
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
"""Keys that determine what happens to an existing run in the directory."""
OTHER_KEYS = ("hydra", "tuned", *RUN_DIRECTORY_KEYS)
"""Keys of a configuration that are not settings of a run."""

OTHER_FOLDERS = ("hydra", "suite", "tune", "tuned")
"""Folders in conf/ whose files are not options of ``nsvm train``."""

TUNED_BY = {"dataset", "network", "kernel", "algorithm"}
"""Groups whose options may occur in the names of entries in conf/tuned/."""

TABLES = {"csv", "openml", "pmlb"}
"""Data sets for which, as for data sets derived from them, the default algorithm is auto."""

COMPOSE_OPTIONS: dict[str, Any] = {}
MAIN_OPTIONS: dict[str, Any] = {}
register_resolver: Any
if hydra.__version__.startswith("1.3."):
    # later versions do this by default, and warn about the argument
    COMPOSE_OPTIONS = MAIN_OPTIONS = {"version_base": "1.3"}
    register_resolver = OmegaConf.register_new_resolver
else:
    # callbacks and log handlers can be trusted, because the user wrote the configuration
    trust = hydra.utils.UNSAFE_DISABLE_EXECUTION_CHECKS  # type: ignore[attr-defined, unused-ignore]
    MAIN_OPTIONS = {"execution_whitelist": trust}
    register_resolver = OmegaConf.register_resolver  # type: ignore[attr-defined, unused-ignore]


def _tuned(key: str, usual: object, *, _root_: DictConfig) -> Any:
    """Return the tuned value of a key for the configuration's parts, or ``usual`` if there is none.

    An entry of ``tuned/KIND.yaml``, such as ``alg4+mlp``, applies to configurations that contain all of its
    parts or classes derived from them. Later entries override earlier entries.
    """
    value = usual
    if (kind := _root_.get("tuned")) is not None:
        import nsvm_cli.trainers  # noqa: F401  # slow to import; registers the classes of all groups

        names = {"all"}
        for group in TUNED_BY:
            name, registry = OmegaConf.select(_root_, f"{group}.name"), Registry.kinds[group]
            names.update([name, *registry.names_of(registry.get(name))])
        file = _tuned_file(kind, _root_)
        for entry, values in _entries(file, file.read_text()).items():
            if names.issuperset(entry.split("+")):
                value = values.get(key, value)
    return OmegaConf.create(value) if isinstance(value, list) else value


def _tuned_file(kind: object, root: DictConfig) -> Path:
    """Return the first file ``tuned/KIND.yaml`` on Hydra's search path."""
    runtime = (root.hydra if "hydra" in root else HydraConfig.get()).runtime
    sources = [source.path for source in runtime.config_sources if source.schema == "file"]
    folders = [Path(runtime.cwd, path, "tuned") for path in [conf_folder(), *sources]]
    files = {file.stem: file for folder in reversed(folders) for file in folder.glob("*.yaml")}
    if str(kind) not in files:
        raise InputError(f"tuned={kind}: there is no such kind of data; {did_you_mean(str(kind), files)}")
    return files[str(kind)]


def _options() -> str:
    """Return the help on the options of each group, which begin a new line for each group."""
    overrides = [*HydraConfig.get().overrides.hydra]  # may include a search path
    options = GlobalHydra.instance().config_loader().get_group_options
    options_of = functools.partial(options, config_name=CONFIG_NAME, overrides=overrides)
    groups = (group for group in options_of("", ObjectType.GROUP) if group not in OTHER_FOLDERS)
    lines = (f"{group}: {', '.join(options_of(group))}" for group in groups)
    return "\n".join(textwrap.fill(line, 80, subsequent_indent="  ") for line in lines)


@functools.cache
def _entries(file: Path, text: str) -> dict[str, dict[str, Any]]:
    """Return the entries of a file of tuned values: a dict from dotted keys to values for each name."""
    try:
        entries: Any = OmegaConf.to_container(OmegaConf.create(text))
        return {name: flat(values) for name, values in entries.items()}
    except (yaml.YAMLError, AttributeError, ValueError):
        raise InputError(f"{file}: expected entries such as alg4: {{optimizer: {{lr: 0.1}}}}") from None


def _two_or_more(classes: object) -> str:
    """Return ``two`` if ``dataset.classes`` is a list of two classes, otherwise ``more``."""
    return "two" if isinstance(classes, ListConfig) and len(classes) == 2 else "more"


def _job(*, _root_: DictConfig) -> str:
    """Return the name of a job. Jobs whose settings have the same effect have the same name."""
    values = plain_values(_root_, complete=False)
    mark = hashlib.sha256(json.dumps(with_effect(values), sort_keys=True).encode()).hexdigest()[:8]
    return re.sub(r"[^\w.-]+", "_", f"{values['algorithm']['name']}-{values['seed']}-{mark}")


register_resolver("tuned", _tuned, replace=True)
register_resolver("nsvm.two_or_more", _two_or_more, replace=True)
register_resolver("nsvm.job", _job, replace=True)
register_resolver("nsvm.options", _options, replace=True)


def conf_folder() -> Path:
    """Return the path of conf/."""
    package = Path(nsvm_cli.__file__).parent
    return next(folder for folder in (package / "conf", package.parent / "conf") if folder.is_dir())


@contextlib.contextmanager
def _parts_known(words: Sequence[str]) -> Iterator[None]:
    """Context manager: import plugins, and store a Hydra configuration for each part that has no file."""
    load_plugins(_items(words, "plugins"))
    folders = [str(folder) for folder in (conf_folder(), *_items(words, "hydra.searchpath"))]
    folders += [word.removeprefix("--config-dir=") for word in words if word.startswith("--config-dir=")]
    store, kinds = ConfigStore.instance(), _groups() & Registry.kinds.keys()
    before, store.repo = store.repo, store.repo | {kind: {**store.repo.get(kind, {})} for kind in kinds}
    try:
        store.store("penalties", {"penalties": dict.fromkeys(Registry.kinds.get("penalties", ()))})
        for kind in kinds:
            for name in Registry.kinds[kind]:
                if stored := _without_file(folders, kind, name):
                    store.store(name, group=kind, **stored)
        yield
    finally:
        store.repo = before


def _without_file(folders: Sequence[str], kind: str, name: str) -> dict[str, Any] | None:
    """Return the arguments of ``ConfigStore.store`` for a part that has no YAML file, otherwise None.

    The values come from the file of a base class or, if no base class has a file, from the constructor.
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
    """Return the items of all lists in overrides ``KEY=[...]``."""
    words = [word for word in words if word.lstrip("+").startswith(f"{key}=")]
    values = [override.value() for override in OverridesParser.create().parse_overrides(words)]
    return [item for value in values if isinstance(value, list) for item in value]


def _with_algorithm(words: Sequence[str]) -> list[str]:
    """Return the words, with ``algorithm=auto`` if the data set is a table and no algorithm is selected.

    The file of a data set cannot override the algorithm, because algorithms override data sets. An
    InputError is raised for wrong overrides of groups, because Hydra's message would not help.
    """
    choices: dict[str, list[Any]] = {}
    overrides = [word for word in words if not word.startswith("--")]
    for override in OverridesParser.create().parse_overrides(overrides):
        word, group, value = str(override.input_line), override.key_or_group, override.value()
        if not group:
            raise OverrideParseException(word, "")
        choices[group] = getattr(value, "list", [value])
        chosen = [option for option in choices[group] if isinstance(option, list)]
        nested = any(not isinstance(name, str) for names in chosen for name in names)
        if group in _groups() and (nested or (override.is_add() and override.package is None)):
            names = ", ".join(sorted(file.stem for file in (conf_folder() / group).glob("*.yaml")))
            raise InputError(f"{word}: expected {group}=OPTION, without + or nested lists (known: {names})")
    registry: Any = Registry.kinds.get("dataset", {})  # empty unless a plugin has registered a data set
    data_sets = choices.get("dataset", [None])
    bases = [{name, *(registry.names_of(registry[name]) if name in registry else ())} for name in data_sets]
    is_table = all(map(TABLES.intersection, bases))
    is_open = choices.keys().isdisjoint({"algorithm", "experiment"})
    return [*words, "algorithm=auto"] if is_table and is_open else [*words]


@contextlib.contextmanager
def _in_one_line() -> Iterator[None]:
    """Context manager: turn errors of Hydra and OmegaConf into an InputError."""
    try:
        yield
    except InputError:
        raise
    except RecursionError:
        reason = "include each other in a cycle, or are nested too deeply"
        raise InputError(f"the configuration files {reason}") from None
    except (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError) as error:
        raise InputError(_line_of(error)) from None


def run_app(task: Callable[[DictConfig], float | None], arguments: Sequence[str]) -> None:
    """Run Hydra, which calls ``task`` with the configuration of each job; ``task`` must be picklable.

    Raises:
        InputError: a group, option or key is unknown, or an override cannot be read.
    """
    app = hydra.main(config_path=str(conf_folder()), config_name=CONFIG_NAME, **MAIN_OPTIONS)(task)
    argv = sys.argv
    full_error = os.environ.get(FULL_ERROR, "0")
    os.environ[FULL_ERROR] = "1"  # Hydra then raises its errors instead of printing them
    try:
        with _in_one_line(), _parts_known(arguments):
            sys.argv = ["nsvm train", *_with_algorithm(arguments)]
            app()
    finally:
        os.environ[FULL_ERROR], sys.argv = full_error, argv


COMPOSING_LOCK = threading.RLock()
"""Protects Hydra's global state, since estimators may compose settings in several threads."""


@_in_one_line()
def compose_settings(overrides: list[str], complete: bool = True) -> dict[str, Any]:
    """Return the settings of ``nsvm train`` with these overrides, as plain values.

    Args:
        complete: whether missing values are errors. If not, they are ``???``, which ``build`` skips.

    Raises:
        InputError: a group, option or key is unknown, or an override cannot be read.
    """
    with COMPOSING_LOCK:
        before = GlobalHydra.instance().hydra
        GlobalHydra.instance().clear()
        try:
            with hydra.initialize_config_dir(str(conf_folder()), **COMPOSE_OPTIONS), _parts_known(overrides):
                words = _with_algorithm(overrides)
                # Hydra's section has the search path for ${tuned:...}
                config = hydra.compose(CONFIG_NAME, words, return_hydra_config=True)
        finally:
            GlobalHydra.instance().hydra = before
    return plain_values(config, complete)


@_in_one_line()
def plain_values(config: DictConfig, complete: bool = True) -> dict[str, Any]:
    """Return settings as plain values, with resolved interpolations."""
    parts = {str(key): config[key] for key in config if key not in OTHER_KEYS}
    for key, part in parts.items():
        if OmegaConf.is_config(part):
            parts[key] = OmegaConf.to_container(part, resolve=True, throw_on_missing=complete)
    if isinstance(weights := parts.get("penalties"), dict):
        parts["penalties"] = {name: weight for name, weight in weights.items() if weight is not None}
    return parts


def settings_words(words: Iterable[str]) -> list[str]:
    """Return the overrides of settings: all except ``overwrite`` and ``allow_mismatch``."""
    return [word for word in words if word.partition("=")[0] not in RUN_DIRECTORY_KEYS]


def sources_sha256(hydra: Any) -> str | None:
    """Return a SHA-256 of the configurations and plugins of a sweep.

    Jobs with the same hash and overrides have the same settings. The result is None if the settings could
    also depend on a package with configurations or on a resolver such as ``${oc.env:X}``.
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
    user_files = [text for file, text in files.items() if not file.startswith(f"{conf_folder()}{os.sep}")]
    if any(re.search(r"\$\{(?!tuned:|nsvm\.)([\w.]+:|hydra\.)", str(text)) for text in (*words, *user_files)):
        return None
    content = [nsvm_cli.__version__, words[-2:], files, code_sha256()]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def search_folder(folder: str | None) -> list[str]:
    """Return ``--config-dir FOLDER`` as a list with one override; an empty list for None."""
    if folder is None:
        return []
    if not Path(folder).is_dir():
        raise InputError(f"--config-dir {folder}: there is no such folder")
    return [f"hydra.searchpath=[{quoted(f'file://{Path(folder).absolute()}')}]"]


def complete_overrides(
    prefix: str, parsed_args: argparse.Namespace, given: Sequence[str] = (), **_: Any
) -> list[str]:
    """Return Hydra's completions of ``prefix`` after the overrides in ``given`` and on the command line."""
    folder = parsed_args.config_dir
    os.environ["COMP_LINE"] = " ".join(["nsvm", *given, *parsed_args.words, prefix])  # Hydra reads it there
    flags = ["--shell-completion", *([] if folder is None else [f"--config-dir={folder}"])]
    with contextlib.redirect_stdout(io.StringIO()) as answer, _parts_known([*flags, *parsed_args.words]):
        run_app(lambda config: None, [*flags, "query=bash"])
    completions = answer.getvalue().split()
    if len(completions) == 1 and completions[0].endswith(".") and completions[0] != prefix:
        # otherwise, the shell would treat the word as complete
        return complete_overrides(completions[0], parsed_args, given)
    return completions


LAUNCHERS = {"joblib": "'nsvm[joblib]'", "ray": "'nsvm[ray]'", "submitit": "'nsvm[slurm]'"}
"""The package to install for each launcher that is not part of Hydra."""

MEANT = {"learning_rate": "lr", "iterations": "steps", "lambda": "lam", "model": "network"}
"""Maps names of settings in other libraries to their names in nsvm."""


def _line_of(error: Exception) -> str:
    """Return the message of a Hydra error in one line, with similar names for an unknown name."""
    text = str(error) or str(error.__cause__)
    text = text.replace("InputError raised while resolving interpolation: ", "")
    if isinstance(error, MissingConfigException) and (file := error.missing_cfg_file):
        group, _, option = file.rpartition("/") if file.startswith("hydra/") else file.partition("/")
        launchers = LAUNCHERS if group == "hydra/launcher" else {}
        if package := launchers.get(option.partition("_")[0]):
            return f"hydra/launcher={option} requires a Hydra plugin: install it with pip install {package}"
        if error.options is not None:
            hint = did_you_mean(option, {*error.options, *launchers})
            hint += f"; {OWN_PART}" if group in _groups() - {"experiment"} else ""
            return f"{group}={option}: there is no such {group}; {hint}"
    if match := re.search(r"Could not (?:override|delete from config\.?) '([^'@]+)'", text):
        section = getattr(error.__cause__, "parent_node", None)  # the section that lacks the key
        key = getattr(error.__cause__, "full_key", None) or match[1].replace("/", ".")
        return _no_such_setting(key, map(str, section or ()))
    if match := re.search(r"(?:Ambiguous value for argument|Sweep parameters) '(.+)'", text):
        advice = "to train with each value, add -m; for a list, write KEY=[A,B]"
        return f"{match[1]} has several values: {advice}"
    if "Missing mandatory value" in text:
        return f"{getattr(error, 'full_key', None) or text.split()[-1]} requires a value"
    if isinstance(error, OverrideParseException):
        advice = "expected KEY=VALUE, with quotes around special characters: \"dataset.path='my data.csv'\""
        return f"the override {error.override!r} cannot be read: {advice}"
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"{error.problem_mark.name}, line {error.problem_mark.line + 1}: {error.problem}"
    if "Config group override must be" in text:
        return "the value of a group must be the name of an option, such as kernel=rbf"
    if isinstance(error, HydraException):
        return text
    key = getattr(error, "full_key", None)
    return text.partition("\n")[0] + (f" (in {key})" if key else "")


def _no_such_setting(key: str, names: Iterable[str]) -> str:
    """Return the message about an unknown setting whose section contains the settings ``names``."""
    section, _, name = key.rpartition(".")
    if name == "tuned":
        advice = "set it in the file of a data set, such as my_conf/dataset/NAME.yaml"
        return f"{key}: there is no such setting of a run; {advice}, and add --config-dir my_conf"
    options: dict[str, list[str]] = {}
    for group in _groups() - {"experiment"}:
        for file in sorted((conf_folder() / group).glob("*.yaml")):
            for other in re.findall(r"^ *(\w+):", file.read_text(), re.MULTILINE):
                options.setdefault(f"{group}.{other}", []).append(f"{group}={file.stem}")
    if key in options:
        others = f"for your own part, or in a sweep over {section}, write ++{key}=VALUE"
        return f"{key}: this setting exists only with {' or '.join(options[key])}; {others}"
    known = {f"{section}.{other}" for other in names} if section else _groups().union(names) - {*OTHER_KEYS}
    known = known or {other for other in options if other.startswith(f"{section}.")} or _groups()
    return f"{key}: there is no such setting; {did_you_mean(MEANT.get(name, key), known, options)}"


def _groups() -> set[str]:
    """Return the names of the configuration groups, such as ``kernel``."""
    folders = {folder.name for folder in conf_folder().iterdir() if folder.is_dir()}
    return folders.difference(OTHER_FOLDERS)
