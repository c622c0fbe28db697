"""One job of ``nsvm train``: train with the configuration that Hydra composed, and record the outcome."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from nsvm_cli.cli.pictures import draw_missing
from nsvm_cli.compose.composition import FULL_ERROR, plain_values
from nsvm_cli.config.settings import Settings, is_record_of, parse_settings, plain, with_values
from nsvm_cli.errors import InputError, RunError, message_of
from nsvm_cli.output import answer, details, flash
from nsvm_cli.plugins import code_sha256, explain, load_plugins
from nsvm_cli.storage.files import locked
from nsvm_cli.storage.run_directory import (
    IfExists,
    RunDirectory,
    Status,
    checkpoints_in,
    config_dir_in,
    has_run,
    is_finished,
    overrides_in,
    read_config,
    read_result,
    read_status,
    write_status,
)

if TYPE_CHECKING:  # torch takes seconds to import: not before there is something to train
    from nsvm_cli.runs.experiment import Experiment


@dataclass(frozen=True)
class RunOptions:
    """The words of the command line about run directories; they are not part of a configuration."""

    resume: Path | None = None
    allow_mismatch: bool = False
    overwrite: bool = False
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
        """Return the validation score, for sweepers that optimise: NaN if the job fails, None without one."""
        place = _place(self)
        try:
            _train(composed_settings(config, self.options), place, self)
            result = read_result(place.directory)
            return result.get("validation_accuracy", result.get("validation_r2"))
        except Exception as raised:
            error = explain(raised)
            recorded = _record_failure(error, place, self.full_error)
            if place.number is None:
                self.error = error
            elif not recorded:  # Hydra passes the error on, once the other jobs have ended
                raise error from None
            return math.nan
        finally:
            _remove_if_unused(place.directory)


@dataclass
class Place:
    """The directory of a job, whether the job has held it, and the fields of its status.

    ``number`` is None for a single run. The progress and outcome of a job of a sweep are shown by the process
    that started the sweep, since the job may run anywhere, and beside others.
    """

    directory: Path
    number: int | None
    fields: dict[str, Any]
    held: bool = False

    def write(self, status: Status, message: str = "") -> None:
        """Write the status of the job."""
        write_status(self.directory, status, message, **self.fields)


def _place(job: Job) -> Place:
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
    return Place(job.options.resume or Path(hydra.runtime.output_dir), number, fields)


def composed_settings(config: DictConfig, options: RunOptions) -> Settings:
    """Return the composed settings, or those of the run to resume with what the command line changes."""
    composed = plain_values(config, complete=options.resume is None)  # the run has the missing values
    values = composed
    if options.resume:
        values = read_config(options.resume)
        for key in (word.lstrip("+").partition("=")[0] for word in options.changes):
            value = functools.reduce(lambda section, name: section[name], key.split("."), composed)
            values = with_values(values, {key: value})
    settings, own = parse_settings(values), parse_settings(composed)
    load_plugins(own.plugins)  # never those of a run directory, which may come from someone else
    asked, logger = [], settings.logger.get("name", "none")
    if settings.memory_budget > own.memory_budget:
        asked.append(f"memory_budget={settings.memory_budget}")
    if logger != "none" and settings.logger != own.logger:  # it may write or send data anywhere
        asked.append(f"logger={logger}")
    if words := " ".join(asked):
        raise InputError(f"{options.resume} asks for {words}: if that is intended, add {words}")
    return settings


def _train(settings: Settings, place: Place, job: Job) -> None:
    directory, sweep, options = place.directory, place.number is not None, job.options
    if sweep and not options.overwrite:
        _check_same_run(directory, settings, options.allow_mismatch)
    resuming = sweep or options.resume is not None
    done = resuming and is_finished(directory)
    longer = done and bool(options.resume and options.changes) and _trains_longer(directory, settings)
    if done and not (options.overwrite or longer):
        _leave_alone(place)
        return
    if not sweep:
        flash("loading PyTorch and the data")
    from nsvm_cli.datasets import shared_samples
    from nsvm_cli.parallel.device import take_turns
    from nsvm_cli.runs.experiment import prepare

    if place.number is not None and settings.device != "cpu":
        take_turns(place.number)
    experiment = prepare(settings, shared_samples(job.sweep, job.started) if sweep else None)
    if_exists: IfExists = "overwrite" if options.overwrite else "resume" if resuming else "refuse"
    with RunDirectory(directory, plain(settings), if_exists) as run, _status(place):
        result = _train_run(experiment, run, place, options)
    if not sweep:
        from nsvm_cli.terminal.console import show_result

        show_result(result, directory)
        draw_missing([directory])


def _trains_longer(directory: Path, settings: Settings) -> bool:
    """Return whether the settings of a finished run have changed, as for more steps, and it can go on."""
    from nsvm_cli.runs.checkpoint import identity, mismatches

    recorded = read_config(directory)
    if not mismatches(identity(recorded, {}), plain(settings)):
        return False
    if (was := recorded["algorithm"]["name"]) != settings.algorithm["name"]:
        why = f"with algorithm={was}, and cannot be resumed with another"
    elif not checkpoints_in(directory):
        why = "and has no checkpoint to resume from (checkpoint.keep)"
    else:
        return True
    raise InputError(f"{directory} has finished {why}: start a new run")


def _check_same_run(directory: Path, settings: Settings, allow_mismatch: bool) -> None:
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
    from nsvm_cli.terminal.progress import Progress
    from nsvm_cli.trainers import build_trainer

    settings, total = experiment.settings, experiment.trainer.total
    changes = options.changes if options.resume else ()
    by_key = {word.partition("=")[0]: word for word in (*place.fields["overrides"], *changes)}
    callbacks: list[Progress] = []
    tell: Callable[[str], None] = functools.partial(_note, place)
    with contextlib.ExitStack() as stack:
        if place.number is None:
            algorithm, dataset, seed = settings.algorithm["name"], settings.dataset["name"], settings.seed
            title = f"{algorithm} on {dataset}, seed {seed}"
            callbacks = [stack.enter_context(Progress(title, total))]
            tell = callbacks[0].say
        signals = stack.enter_context(Signals())
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
        )


def _note(place: Place, line: str) -> None:
    """Add a message to the status of a sweep's job, for the process that shows the sweep."""
    place.fields.setdefault("notices", []).append(line)
    with contextlib.suppress(OSError):  # the disk may be full
        place.write("running")


def _leave_alone(place: Place) -> None:
    """Say that a run is finished; a sweep adopts those that another one, or a single run, has left in it."""
    status = read_status(place.directory) or {}
    foreign = place.number is not None and status.get("sweep") != place.fields["sweep"]
    if status.get("status") != "finished" or foreign:
        place.write("finished")
    if place.number is None:
        answer(f"Finished already: {place.directory}")
        draw_missing([place.directory])


@contextlib.contextmanager
def _status(place: Place) -> Iterator[None]:
    """Write the status of a job that holds its directory, unless it fails."""
    place.held = True
    place.write("running")
    try:
        yield
    except KeyboardInterrupt as error:
        with contextlib.suppress(OSError):  # the disk may be full
            place.write("interrupted", str(error))
        raise
    place.write("finished")


def _record_failure(error: Exception, place: Place, full: bool) -> bool:
    """Write the failure of a job to its directory, unless that holds another run; return whether it did.

    The notices of a sweep's job include the traceback of a bug, or with ``full`` of any error. A finished run
    that cannot be trained for longer stays finished.
    """
    directory, fields, single = place.directory, place.fields, place.number is None
    if not place.held and (single or has_run(directory)):
        return False
    full = full or not isinstance(error, (InputError, RunError, OSError))
    if not single and (lines := details(error, full)):
        fields["notices"] = [*fields.get("notices", []), *lines]
    code = 2 if isinstance(error, InputError) else 1
    with contextlib.suppress(InputError, OSError), locked(directory):
        if single and is_finished(directory):
            place.write("finished")
        else:
            write_status(directory, "failed", message_of(error), **fields, exit_code=code)
        return True
    return False


def _remove_if_unused(directory: Path) -> None:
    """Remove the empty directory that Hydra created for a job, and outputs/DATASET_ALGORITHM above it."""
    with contextlib.suppress(OSError):
        directory.rmdir()
        if directory.parent.parent.name == "outputs":
            directory.parent.rmdir()
            directory.parent.parent.rmdir()
