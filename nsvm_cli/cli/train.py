"""``nsvm train``: compose a configuration, train, write a run directory."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from nsvm_cli.cli.hydra_app import plain_values, run_app
from nsvm_cli.cli.plugins import load_plugins
from nsvm_cli.errors import InputError, RunError, plainly

if TYPE_CHECKING:
    from nsvm_cli.config.settings import Settings

STARTED = time.time()


@dataclass(frozen=True)
class RunOptions:
    """What the command line says of run directories: these words are not part of a configuration."""

    resume: Path | None = None
    inexact: bool = False
    overwrite: bool = False
    changes: tuple[str, ...] = ()


def train(arguments: list[str]) -> None:
    """Trains one model, or with ``-m`` one for each combination of overrides."""
    options, words = _options(arguments)
    if {"-m", "--multirun"} & {*words}:
        if options.resume:
            raise InputError("resume=RUN goes with one run: the same sweep, started again, goes on by itself")
        if not _names(words, "hydra.sweep.dir"):
            words.append(f"hydra.sweep.dir={_sweep_folder(words)}")
    elif options.resume:
        words = _composed_like(options.resume, words)
    run_app(functools.partial(_job, options), words)


def _options(arguments: list[str]) -> tuple[RunOptions, list[str]]:
    found: dict[str, Any] = {}
    words = []
    for word in arguments:
        key, _, value = word.partition("=")
        if key in ("inexact", "overwrite"):
            if value not in ("true", "false"):
                raise InputError(f"{key}: expected true or false, got {value!r}")
            found[key] = value == "true"
        elif key == "resume":
            found[key] = Path(value if Path(value).is_dir() else value.strip("'\"")).absolute()
            if not (found[key] / "config.yaml").is_file():
                raise InputError(f"resume={value}: expected the directory of a run, with its config.yaml")
        else:
            words.append(word)
    options = RunOptions(**found, changes=tuple(word for word in words if not word.startswith("-")))
    if options.resume and options.overwrite:
        raise InputError("resume=RUN goes on with a run, overwrite=true begins anew: expected one of them")
    return options, words


def _composed_like(run: Path, words: list[str]) -> list[str]:
    """What composes the settings that change in a run, beside others that go unread."""
    from nsvm_cli.storage.run_directory import read_config

    for word in words:
        if word.startswith(("-", "hydra.")) and not word.startswith(("--config-dir", "-cd")):
            raise InputError(f"{word} does not go with resume=RUN, whose settings are in its config.yaml")
    # a setting is known in the company of its own kind
    groups = {word.lstrip("+~").partition(".")[0] for word in words if "." in word.partition("=")[0]}
    parts = {group: part for group, part in read_config(run).items() if isinstance(part, dict)}
    kinds = {group: parts[group]["name"] for group in groups & parts.keys() if "name" in parts[group]}
    kept = [f"{group}={kind}" for group, kind in sorted(kinds.items()) if not _names(words, group)]
    return [*words, *kept, "hydra.run.dir=."]


def _names(words: list[str], key: str) -> bool:
    return any(word.lstrip("+").startswith(f"{key}=") for word in words)


def _sweep_folder(words: list[str]) -> str:
    """The same for the same arguments, so that a sweep that was cut off goes on when it is started again."""
    told = [word for word in words if not word.startswith("-")]
    readable = re.sub(r"[^\w.=,-]+", "_", " ".join(told))[:60].strip("_=,.") or "sweep"
    mark = hashlib.sha256("\0".join(told).encode()).hexdigest()[:8]
    return _quoted(f"outputs/sweep/{readable.replace('=', '_').replace(',', '_')}-{mark}")


def _quoted(text: str) -> str:
    """As Hydra reads it back."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _job(options: RunOptions, config: DictConfig) -> None:
    job = HydraConfig.get()
    directory = options.resume or Path(job.runtime.output_dir)
    sweep = job.mode == RunMode.MULTIRUN
    name = f"job {job.job.num} ({' '.join(job.overrides.task)}): " if sweep else ""
    try:
        settings = _settings(config, options)
        _train(settings, directory, sweep, options)
    except InputError as error:
        raise InputError(f"{name}{error}") from None
    except RunError as error:
        raise RunError(f"{name}{error}{_way_on(directory)}") from None
    except OSError as error:
        raise RunError(f"{name}{plainly(error)}{_way_on(directory)}") from None
    finally:
        with contextlib.suppress(OSError):  # it is not empty once something was trained
            # Hydra's, rather than the user's own
            if not options.resume and directory.stat().st_mtime >= STARTED:
                directory.rmdir()


def _way_on(directory: Path) -> str:
    """What to do about a run that has failed, once what made it fail has been mended."""
    from nsvm_cli.storage.run_directory import checkpoints_in

    with contextlib.suppress(OSError):
        if checkpoints_in(directory):
            return f"; its last checkpoint is good: nsvm train resume={shlex.quote(str(directory))}"
    return ""


def _settings(config: DictConfig, options: RunOptions) -> Settings:
    """The composed values; or those of the run that is resumed, with what the command line changes."""
    from nsvm_cli.config.settings import parse_settings
    from nsvm_cli.storage.run_directory import read_config

    values = plain_values(config)
    if options.resume:
        composed, values = values, read_config(options.resume)
        for key in (word.lstrip("+~").partition("=")[0].partition("@")[0] for word in options.changes):
            _place(values, composed, key.replace("/", ".").split("."))
    settings = parse_settings(values)
    load_plugins(parse_settings(plain_values(config)).plugins)
    return settings


def _place(values: dict[str, Any], composed: dict[str, Any], names: list[str]) -> None:
    """Copies what lies at a dotted key of the composed values; nothing where there is nothing."""
    name, *below = names
    if name not in composed:
        values.pop(name, None)
    elif below and isinstance(values.get(name), dict) and isinstance(composed[name], dict):
        _place(values[name], composed[name], below)
    else:
        values[name] = composed[name]


def _train(settings: Settings, directory: Path, sweep: bool, options: RunOptions) -> None:
    # torch takes seconds to import: not before the configuration is known to compose
    from nsvm_cli.config.settings import plain
    from nsvm_cli.parallel.distributed import launched
    from nsvm_cli.parallel.signals import Signals
    from nsvm_cli.report.console import Progress
    from nsvm_cli.runs.experiment import prepare
    from nsvm_cli.runs.loop import OnLog
    from nsvm_cli.runs.train import run_worker, train_run
    from nsvm_cli.storage.run_directory import IfExists, RunDirectory, has_run, is_finished, read_config

    if sweep and launched() > 1:
        raise InputError("-m takes one process: expected one run under torchrun, or a sweep without it")
    if sweep and has_run(directory) and not options.overwrite and read_config(directory) != plain(settings):
        raise InputError(
            f"{directory} holds a run with other settings: name another hydra.sweep.dir, or overwrite=true"
        )
    going_on = sweep or options.resume is not None
    if going_on and is_finished(directory) and not options.overwrite:
        _leave_alone(directory, settings)
        return
    experiment = prepare(settings)
    if experiment.problem.processes.rank > 0:
        with Signals() as signals:
            run_worker(experiment, directory, signals=signals)
        return
    title = f"{settings.algorithm['name']} on {settings.dataset['name']}"
    if_exists: IfExists = "overwrite" if options.overwrite else "resume" if going_on else "refuse"
    with (
        RunDirectory(directory, plain(settings), if_exists) as run,
        Progress(title, experiment.trainer.total) as progress,
        Signals() as signals,
    ):
        if is_finished(directory):  # by another process, meanwhile
            _leave_alone(directory, settings)
            return
        result = train_run(experiment, run, [OnLog(progress.show)], signals, progress.say, options.inexact)
    _show(result, directory, settings)


def _leave_alone(directory: Path, settings: Settings) -> None:
    """A finished run, but for a picture that a kill or a full disk has kept from being drawn."""
    from nsvm_cli.storage.run_directory import CURVES, remove_checkpoints

    remove_checkpoints(directory)
    if settings.curves and not (directory / CURVES).exists():
        from nsvm_cli.report.curves import draw_curves

        draw_curves(directory)
    print(f"Finished already: {directory}")


def _show(result: dict[str, Any], directory: Path, settings: Settings) -> None:
    from nsvm_cli.report.console import show_result

    show_result(result, directory)
    if settings.curves:
        from nsvm_cli.report.curves import (
            draw_curves,  # takes a while to import: what is worth knowing comes first
        )

        draw_curves(directory)
