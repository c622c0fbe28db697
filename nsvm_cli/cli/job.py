"""One job of ``nsvm train``: train with the configuration that Hydra composed, and record the outcome."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from nsvm_cli.cli.pictures import draw
from nsvm_cli.compose.composition import FULL_ERROR, plain_values
from nsvm_cli.errors import InputError, RunError, did_you_mean, message_of
from nsvm_cli.output import answer, details, flash, standard_streams
from nsvm_cli.plugins import code_sha256, explain, load_plugins

if TYPE_CHECKING:
    from nsvm_cli.config.settings import Settings
    from nsvm_cli.runs.callbacks import Say
    from nsvm_cli.runs.experiment import Experiment
    from nsvm_cli.runs.loop import Callback
    from nsvm_cli.storage.run_directory import RunDirectory


@dataclass(frozen=True)
class RunOptions:
    """The words of the command line about run directories; they are not part of a configuration."""

    resume: Path | None = None
    allow_mismatch: bool = False
    overwrite: bool = False
    optimized_metric: str | None = None
    changes: tuple[str, ...] = ()
    config_dir: str | None = None


@dataclass
class Job:
    """Train with one configuration; Hydra calls it for each.

    A launcher may do so in another process, with a copy. So a job of a sweep that fails returns normally,
    and the process that started it reads the failure in ``status.json``. A single run, which has no launcher,
    stores its failure in ``error``, since its directory may be removed already.

    Args:
        options: the options about run directories.
        sweep: the name of the sweep, derived from the words of the command line.
    """

    options: RunOptions
    sweep: str
    started: float = field(default_factory=time.time)
    error: Exception | None = None
    full_error: bool = field(default_factory=lambda: os.environ.get(FULL_ERROR) == "1")

    def __call__(self, config: DictConfig) -> float | None:
        """Return the metric that a sweeper optimises; NaN if the job fails, None without such a metric."""
        place, metric = _place(self), self.options.optimized_metric
        with standard_streams():  # a launcher's process has its own
            try:
                _train(composed_settings(config, self.options), place, self)
                return None if metric is None else _value_of(metric, place.directory)
            except Exception as raised:
                error = explain(raised)
                written = _write_failure(error, place)
                if place.number is None:
                    self.error = _explained(error, place)
                elif not written:  # Hydra passes the error on
                    raise _explained(error, place) from None
                return math.nan
            finally:
                _remove_if_unused(place.directory, self.started)


@dataclass
class Place:
    """The directory of a job, whether the job has held it, and the fields of its status.

    ``number`` is None for a single run. The progress and outcome of a job of a sweep are shown by the process
    that started the sweep, since the job may run anywhere, and beside others. ``full_error`` says whether
    that includes the traceback of an error that is not a bug.
    """

    directory: Path
    number: int | None
    fields: dict[str, Any]
    full_error: bool
    held: bool = False

    @property
    def name(self) -> str:
        """The job's name at the beginning of a line about it; empty for a single run."""
        return "" if self.number is None else f"job {self.number} ({' '.join(self.fields['overrides'])}): "


def _place(job: Job) -> Place:
    from nsvm_cli.storage.run_directory import config_dir_in, overrides_in, read_status

    hydra = HydraConfig.get()
    sweep = hydra.mode == RunMode.MULTIRUN
    number = int(hydra.job.num) if sweep else None
    overrides = OmegaConf.to_container(hydra.overrides.task)  # ${oc.env:X} stays as it was written
    config_dir = job.options.config_dir
    if job.options.resume:  # overrides that only compose the changes are not recorded
        record = read_status(job.options.resume) or {}
        overrides, config_dir = overrides_in(record), config_dir or config_dir_in(record)
    fields = {"job": number, "sweep": job.sweep if sweep else None, "overrides": overrides}
    fields["config_dir"] = config_dir
    directory = job.options.resume or Path(hydra.runtime.output_dir)
    return Place(directory, number, fields, job.full_error)


def refusals(directory: Path, sweep: str) -> Path:
    """Return the folder, while a sweep runs, for jobs that may not write to their directories."""
    return directory / f".{sweep}"


def composed_settings(config: DictConfig, options: RunOptions) -> Settings:
    """Return the composed settings, or those of the run to resume with what the command line changes."""
    from nsvm_cli.config.settings import parse_settings
    from nsvm_cli.storage.run_directory import read_config

    composed = plain_values(config, complete=options.resume is None)  # the run has the missing values
    values = composed
    if options.resume:
        values = read_config(options.resume)
        for key in (word.lstrip("+~").partition("=")[0].partition("@")[0] for word in options.changes):
            _copy(composed, values, key.replace("/", ".").split("."))
    settings = parse_settings(values)
    own = parse_settings(composed)
    load_plugins(own.plugins)  # never those of a run directory, which may come from someone else
    asked = []
    if settings.memory_budget > own.memory_budget:
        asked.append(f"memory_budget={settings.memory_budget}")
    logger = settings.logger.get("name", "none")
    if logger != "none" and settings.logger != own.logger:  # it may write or send data anywhere
        asked.append(f"logger={logger}")
    if asked:
        words = " ".join(asked)
        raise InputError(f"{options.resume} asks for {words}: if that is intended, add {words}")
    return settings


def _copy(source: dict[str, Any], target: dict[str, Any], names: list[str]) -> None:
    """Copy the value at a dotted key; remove it if the source has none."""
    name, *below = names
    if name not in source:
        target.pop(name, None)
    elif below and isinstance(target.get(name), dict) and isinstance(source[name], dict):
        _copy(source[name], target[name], below)
    else:
        target[name] = source[name]


def _train(settings: Settings, place: Place, job: Job) -> None:
    from nsvm_cli.storage.run_directory import IfExists, RunDirectory, is_finished

    directory, sweep, options = place.directory, place.number is not None, job.options
    if sweep and not options.overwrite:
        _check_same_run(directory, settings, options.allow_mismatch)
    resuming = sweep or options.resume is not None
    longer = resuming and is_finished(directory) and _trains_longer(directory, settings, options)
    if resuming and is_finished(directory) and not (options.overwrite or longer):
        _leave_alone(place, settings)
        return
    if not sweep:
        flash("loading PyTorch and the data")
    # torch takes seconds to import: not before there is something to train
    from nsvm_cli.config.settings import plain
    from nsvm_cli.datasets import shared_samples
    from nsvm_cli.parallel.device import take_turns
    from nsvm_cli.runs.experiment import prepare

    if place.number is not None and settings.device != "cpu":
        take_turns(place.number)
    experiment = prepare(settings, shared_samples(job.sweep, job.started) if sweep else None)
    if_exists: IfExists = "overwrite" if options.overwrite else "resume" if resuming else "refuse"
    with RunDirectory(directory, plain(settings), if_exists) as run:
        if is_finished(directory) and not longer:  # by another process, meanwhile
            _leave_alone(place, settings)
            return
        with _status(place, experiment.trainer.total):
            result = _train_run(experiment, run, place, options)
    if not sweep:
        _show(result, directory, experiment)


def _trains_longer(directory: Path, settings: Settings, options: RunOptions) -> bool:
    """Return whether to continue a finished run with other settings, such as more steps.

    Raises:
        InputError: it cannot, or not without ``allow_mismatch``.
    """
    if not (options.resume and options.changes):
        return False
    from nsvm_cli.config.settings import plain
    from nsvm_cli.runs.checkpoint import identity, mismatches
    from nsvm_cli.storage.run_directory import checkpoints_in, read_config

    recorded = read_config(directory)
    if not (changes := mismatches(identity(recorded, {}), plain(settings))):
        return False
    said = f"{directory} has finished"
    if (was := recorded["algorithm"]["name"]) != settings.algorithm["name"]:
        raise InputError(f"{said} with algorithm={was}, and goes on with no other: start a new run")
    if not checkpoints_in(directory):
        raise InputError(f"{said} and has no checkpoint to go on from (checkpoint.keep): start a new run")
    if not options.allow_mismatch:
        raise InputError(f"{said}, and {'; '.join(changes)}: to train it for longer, add allow_mismatch=true")
    return True


def _value_of(metric: str, directory: Path) -> float:
    """Return a figure of a finished run.

    Raises:
        InputError: its result has no such number.
    """
    from nsvm_cli.storage.run_directory import numbers_in, read_result

    numbers = numbers_in(read_result(directory))
    if metric not in numbers:
        why = "; it needs dataset.validation" if metric.startswith("validation_") else ""
        raise InputError(f"optimized_metric={metric}: {did_you_mean(metric, numbers)}{why}")
    return float(numbers[metric])


def _check_same_run(directory: Path, settings: Settings, allow_mismatch: bool) -> None:
    from nsvm_cli.config.settings import is_record_of
    from nsvm_cli.storage.run_directory import has_run, is_finished, read_config, read_result

    if has_run(directory) and not is_record_of(read_config(directory), settings):
        raise InputError(
            f"{directory} holds a run with other settings: name another hydra.sweep.dir, or overwrite=true"
        )
    if allow_mismatch or not is_finished(directory):
        return
    if read_result(directory).get("plugins_sha256") != code_sha256():
        raise InputError(
            f"{directory} holds a run with other code of plugins: name another hydra.sweep.dir, start over "
            "with overwrite=true, or keep it with allow_mismatch=true"
        )


def _train_run(
    experiment: Experiment, run: RunDirectory, place: Place, options: RunOptions
) -> dict[str, Any]:
    """Train, with progress on stderr; the first signal to stop ends the run in order."""
    from nsvm_cli.parallel.signals import Signals
    from nsvm_cli.runs.train import train_run
    from nsvm_cli.trainers import build_trainer

    settings, total = experiment.settings, experiment.trainer.total
    changes = options.changes if options.resume else ()
    by_key = {word.partition("=")[0]: word for word in (*place.fields["overrides"], *changes)}
    pictures = functools.partial(draw, place.directory)
    with _progress(place, settings, total) as (callbacks, tell), Signals() as signals:
        epochs, m = settings.algorithm.get("epochs"), len(experiment.problem.y)
        if epochs and total < (asked := build_trainer(settings.algorithm).total):
            tell(f"algorithm.epochs={epochs} allows {total} of {asked} steps on {m} training samples")
        for remark in experiment.data.remarks():
            tell(remark)
        if settings.validation.every and experiment.trainer.part_steps[-1] == 0:
            tell("validation.every: this solver has an SVM to validate after the last step only")
        return train_run(
            experiment,
            run,
            callbacks,
            signals,
            tell,
            options.allow_mismatch,
            [*by_key.values()],
            place.fields["config_dir"],
            place.fields["sweep"],
            pictures if settings.curves else lambda: None,
        )


@contextlib.contextmanager
def _progress(place: Place, settings: Settings, total: int) -> Iterator[tuple[list[Callback], Say]]:
    """Yield the callbacks that show the progress of a run, and a function that shows a message about it."""
    if place.number is not None:
        yield [], functools.partial(_note, place, total)
        return
    from nsvm_cli.terminal.progress import Progress

    algorithm, dataset, seed = settings.algorithm["name"], settings.dataset["name"], settings.seed
    title = f"{algorithm} on {dataset}, seed {seed}", f"{algorithm} {dataset} seed {seed}"
    with Progress(title, total) as progress:
        yield [progress], progress.say


def _note(place: Place, steps: int, line: str) -> None:
    """Add a message of a sweep's job to its status: on the terminal, jobs would write on one line."""
    from nsvm_cli.storage.run_directory import write_status

    place.fields.setdefault("notices", []).append(line)
    with contextlib.suppress(OSError):  # the disk may be full
        write_status(place.directory, "running", **place.fields, steps=steps)


def _leave_alone(place: Place, settings: Settings) -> None:
    """Say that a run is finished, and write the files that a kill or a full disk prevented."""
    from nsvm_cli.storage.run_directory import CURVES, read_status, remove_checkpoints, write_status

    directory, status = place.directory, read_status(place.directory) or {}
    remove_checkpoints(directory, settings.checkpoint)
    foreign = place.number is not None and status.get("sweep") != place.fields["sweep"]  # of another sweep
    if status.get("status") != "finished" or foreign:
        write_status(directory, "finished", **place.fields)
    if place.number is None:
        answer(f"Finished already: {directory}")
        if settings.curves and not (directory / CURVES).exists():
            draw(directory)


def _show(result: dict[str, Any], directory: Path, experiment: Experiment) -> None:
    from nsvm_cli.terminal.console import show_result

    show_result(result, directory)
    settings = experiment.settings
    if settings.curves and settings.logger["name"] == "none":  # for a logger they have been drawn already
        draw(directory)


@contextlib.contextmanager
def _status(place: Place, steps: int) -> Iterator[None]:
    """Write the status of a job that holds its directory, unless it fails; first with its number of steps."""
    from nsvm_cli.storage.run_directory import write_status

    place.held = True
    write_status(place.directory, "running", **place.fields, steps=steps)
    try:
        yield
    except KeyboardInterrupt as error:
        with contextlib.suppress(OSError):  # the disk may be full
            write_status(place.directory, "interrupted", str(error), **place.fields)
        raise
    write_status(place.directory, "finished", **place.fields)


def _write_failure(error: Exception, place: Place) -> bool:
    """Write the failure of a job to its directory, unless that holds another run, or to where the process
    that started the sweep looks for it too. Return whether it could be written.
    """
    from nsvm_cli.storage.files import locked
    from nsvm_cli.storage.run_directory import has_run, write_status

    hydra, sweep = HydraConfig.get(), place.number is not None
    places = [place.directory] if place.held or (sweep and not has_run(place.directory)) else []
    if sweep:
        folder = refusals(Path(hydra.runtime.cwd) / hydra.sweep.dir, place.fields["sweep"])
        places.append(folder / str(place.number))
    for directory in places:
        with contextlib.suppress(InputError, OSError), locked(directory):
            write_status(directory, **_failure(error, place))
            return True
    return False


def _failure(error: Exception, place: Place) -> dict[str, Any]:
    """Return the status of a job that has failed.

    The notices of a sweep's job include the traceback of a bug, or of any error with ``full_error``.
    """
    code = 2 if isinstance(error, InputError) else 1
    status = {"status": "failed", "message": message_of(error), **place.fields, "exit_code": code}
    full = place.full_error or not isinstance(error, (InputError, RunError, OSError))
    if place.number is not None and (lines := details(error, full)):
        status["notices"] = [*place.fields.get("notices", []), *lines]
    return status


def _explained(error: Exception, place: Place) -> Exception:
    """Return the error with the name of the job and how to go on; an unexpected one unchanged."""
    if isinstance(error, OSError):
        error = RunError(message_of(error))
    if isinstance(error, (InputError, RunError)):  # changed in place: it keeps its cause and its notes
        way_on = _way_on(place.directory) if isinstance(error, RunError) else ""
        error.args = (f"{place.name}{error}{way_on}",)
    return error


def _way_on(directory: Path) -> str:
    """Return how to go on with a failed run once the cause is fixed."""
    from nsvm_cli.storage.run_directory import checkpoints_in

    with contextlib.suppress(OSError):
        if checkpoints_in(directory):
            return f"; its last checkpoint is good: nsvm train resume={shlex.quote(str(directory))}"
    return ""


def _remove_if_unused(directory: Path, started: float) -> None:
    """Remove an empty directory that Hydra created for a job, but not one of the user's own.

    With outputs/DATASET_ALGORITHM/TIME, empty folders above it are removed too.
    """
    with contextlib.suppress(OSError):
        if directory.stat().st_mtime >= started:
            directory.rmdir()
            if directory.parent.parent.name == "outputs":
                directory.parent.rmdir()
                directory.parent.parent.rmdir()
