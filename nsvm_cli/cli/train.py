"""``nsvm train``: compose configurations, train, and write run directories."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from nsvm_cli.cli.parser import CommandParser, parse
from nsvm_cli.cli.sweep import Sweep
from nsvm_cli.compose.composition import (
    FULL_ERROR,
    RUN_DIRECTORY_KEYS,
    complete_overrides,
    compose_settings,
    plain_values,
    run_app,
    search_folder,
    settings_words,
    sources_sha256,
)
from nsvm_cli.config.settings import Settings, code_of, flat, is_record_of, parse_settings, plain, with_values
from nsvm_cli.errors import InputError, RunError, message_of
from nsvm_cli.memory import MEMORY_BUDGET
from nsvm_cli.output import answer, details, flash, say
from nsvm_cli.page.curves import draw_missing
from nsvm_cli.plugins import load_plugins, plugin_errors
from nsvm_cli.storage.files import locked
from nsvm_cli.storage.run_directory import (
    CONFIG,
    RESULT,
    IfExists,
    RunDirectory,
    Status,
    checkpoints_in,
    command_in,
    has_run,
    is_finished,
    read_config,
    read_json,
    read_status,
    sweeps_in,
    write_status,
)

if TYPE_CHECKING:  # torch takes seconds to import: only once the settings are valid
    from nsvm_cli.runs.experiment import Experiment

FLAGS = ("--help -h", "--hydra-help", "--version", "--resolve", "--run -r", "--multirun -m")
WITH_VALUE = (
    *("--cfg -c", "--info -i", "--package -p", "--config-path -cp", "--config-name -cn", "--config-dir -cd"),
    "--experimental-rerun",
)
"""The flags that Hydra documents; those without a value are ``FLAGS``."""


def train_arguments(parser: CommandParser) -> None:
    """Add the flags, most of them Hydra's, and the overrides."""
    for names in (*FLAGS, "--estimate"):
        parser.add_argument(*names.split(), action="store_true")
    for names in WITH_VALUE:
        choices = ("job", "hydra", "all") if names.startswith("--cfg") else None
        parser.add_argument(*names.split(), choices=choices)
    parser.add_keys("overrides", {"resume=RUN": ""}, more=complete_overrides)


def train(arguments: list[str]) -> None:
    """Train one model, or with ``-m`` one for each combination of overrides."""
    # the value of --info is optional, and would be the next override
    words = [f"{word}=all" if word in ("--info", "-i") else word for word in arguments]
    line = parse("train", words)
    values = {f"--{name.replace('_', '-')}": value for name, value in vars(line).items() if name != "words"}
    flags = [flag if value is True else f"{flag}={value}" for flag, value in values.items() if value]
    for key, _, value in (word.partition("=") for word in line.words):
        if key in ("hydra.run.dir", "hydra.sweep.dir") and value.strip("'\"") in ("", "null"):
            raise InputError(f"{key}={value}: expected a folder; without {key} nsvm makes one in outputs")
    resumed = [word.partition("=")[2] for word in line.words if word.startswith("resume=")]
    if line.multirun and resumed:
        raise InputError("resume=RUN is for one run: the same sweep, started again, resumes by itself")
    if line.multirun and line.estimate:
        raise InputError("--estimate is for one run: leave out -m, and try one job")
    if line.estimate:
        estimate(line.words, line.config_dir)
    elif resumed:
        words = [word for word in line.words if not word.startswith("resume=")]
        if flags:
            raise InputError(f"{flags[0]} does not go with resume=RUN, whose settings are in its config.yaml")
        resume(resumed[-1], words)
    else:
        sweep = Sweep(arguments)
        job = Job(sweep.mark, line.config_dir)
        with sweep.reported():
            run_app(job, [*flags, *line.words])  # Hydra's parser accepts no flag after an override
        if job.error:
            raise job.error


def resume(name: str, words: Sequence[str]) -> None:
    """Resume a run with its recorded settings, except for the changes that the words make."""
    directory = Path(name if Path(name).is_dir() else name.strip("'\"")).absolute()
    if not name or not (directory / CONFIG).is_file():
        raise InputError(f"resume={name}: expected the directory of a run, with its config.yaml")
    changes = _changes(words, recorded := read_config(directory))
    allow_mismatch = expect_flag("allow_mismatch", changes.pop("allow_mismatch", False))
    changed = [word for word in words if not word.startswith("allow_mismatch=")]
    run = Run(directory, {**NO_JOB, **command_in(read_status(directory))}, changes=changed)
    with run.recorded():
        settings = parse_settings(with_values(recorded, changes))
        load_plugins(changes.get("plugins", ()))  # never from config.yaml, which may come from others
        intended, logger = [], settings.logger.get("name", "none")
        if settings.memory_budget > changes.get("memory_budget", MEMORY_BUDGET):
            intended.append(f"memory_budget={settings.memory_budget}")
        if logger != "none" and "logger" not in changes:  # it may write or send data anywhere
            intended.append(f"logger={logger}")
        if intended:
            needed = " ".join(intended)
            raise InputError(f"{directory} asks for {needed}: if that is intended, add {needed}")
        run.train(settings, "resume", allow_mismatch)


def _changes(words: Sequence[str], recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the words by their keys; raise an InputError for a word that is not a setting."""
    for word in words:
        key, equals, _ = word.lstrip("+").partition("=")
        is_part = isinstance(recorded.get(key), dict) and key != "logger"
        if is_part or not equals or key.startswith(("~", "hydra")) or key in ("experiment", "overwrite"):
            raise InputError(f"{word} does not go with resume=RUN: name what changes, as in optimizer.lr=0.1")
    nested: Any = OmegaConf.to_container(OmegaConf.from_dotlist([word.lstrip("+") for word in words]))
    values = flat(nested)
    if name := values.get("logger"):
        section = recorded.get("logger")  # keeps its settings if the name is the same
        same = isinstance(section, dict) and section.get("name") == name
        values["logger"] = section if same else {"name": name}
    return values


def estimate(words: Sequence[str], config_dir: str | None) -> None:
    """Train for a few seconds and print an estimate of the whole run. Writes no file."""
    settings = parse_settings(compose_settings([*search_folder(config_dir), *words]))
    load_plugins(settings.plugins)
    flash("loading PyTorch and the data")
    from nsvm_cli.runs import estimate as trial
    from nsvm_cli.runs.experiment import prepare
    from nsvm_cli.terminal.console import show_rows

    experiment = prepare(settings)
    parts = trial.estimate(experiment, say)
    show_rows([*trial.rows_of(experiment, parts)])
    if any(part.tried < part.steps for part in parts):
        answer("Beyond the steps that were tried, support vectors and seconds follow from a power law.")


NO_JOB: dict[str, Any] = {"job": None, "sweep": None}
"""Fields of the status of a run that is not part of a sweep."""


@dataclass
class Job:
    """Train with one configuration; Hydra calls it with each.

    A launcher may call a copy in another process. A failed job of a sweep therefore returns normally, and the
    process that started the sweep reads the error from ``status.json``. A single run stores it in ``error``,
    because Hydra would print more than one line.

    Args:
        sweep: identifies the sweep in the statuses of its jobs.
        config_dir: the value of ``--config-dir``, a folder with the user's own configurations.
    """

    sweep: str
    config_dir: str | None = None
    error: Exception | None = None
    full_error: bool = field(default_factory=lambda: os.environ.get(FULL_ERROR) == "1")

    def __call__(self, config: DictConfig) -> float | None:
        """Return the validation score, for sweepers that optimise: None without one, NaN if the job fails."""
        hydra = HydraConfig.get()
        several = hydra.mode == RunMode.MULTIRUN
        words: Any = OmegaConf.to_container(hydra.overrides.task)  # as typed: ${oc.env:X} is not resolved
        fields = {**NO_JOB, "overrides": settings_words(words), "config_dir": self.config_dir}
        directory = created = Path(hydra.runtime.output_dir)
        if several:
            fields |= {"job": int(hydra.job.num), "sweep": self.sweep, "sources": sources_sha256(hydra)}
        if several and not hydra.job.chdir:  # a worker of Ray starts in another folder
            os.chdir(hydra.runtime.cwd)
            directory = Path(hydra.sweep.dir, hydra.sweep.subdir).absolute()
        run = Run(directory, fields, self.full_error)
        try:
            with run.recorded():
                settings = parse_settings(plain_values(config))
                load_plugins(settings.plugins)
                overwrite, allow_mismatch = (expect_flag(key, config[key]) for key in RUN_DIRECTORY_KEYS)
                if_exists: IfExists = "overwrite" if overwrite else "resume" if several else "refuse"
                run.train(settings, if_exists, allow_mismatch)
            result = read_json(directory / RESULT)
            return result.get(f"validation_{result.get('metric')}")
        except Exception as error:
            if not several:
                self.error = error
            elif not run.held:  # Hydra raises it again once the other jobs have ended
                raise
            return math.nan
        finally:
            for folder in {created, directory}:
                _remove_if_unused(folder)


@dataclass
class Run:
    """A run in a directory, and its status there.

    A single run shows its progress and result. A job of a sweep may run on any machine and beside other jobs:
    the process that started the sweep reads both from the status.

    Args:
        fields: the fields of the status that identify the run.
        full_error: whether the status of a failed job includes the traceback.
        changes: the words that change the settings of a resumed run.
        held: whether the run may write the status in the directory.
    """

    directory: Path
    fields: dict[str, Any]
    full_error: bool = False
    changes: Sequence[str] = ()
    held: bool = False

    @property
    def single(self) -> bool:
        return self.fields["job"] is None

    def train(self, settings: Settings, if_exists: IfExists, allow_mismatch: bool) -> None:
        """Train, unless the directory holds the finished run, which another sweep may just have trained."""
        if if_exists == "resume" and has_run(self.directory) and self._has_finished(settings):
            return
        self.held = not self.single
        if self.single:
            flash("loading PyTorch and the data")
        from nsvm_cli.parallel.device import take_turns
        from nsvm_cli.runs.experiment import prepare

        if not self.single and settings.device != "cpu":
            take_turns(self.fields["job"])
        experiment = prepare(settings)
        with RunDirectory(self.directory, plain(settings), if_exists, wait=not self.single) as directory:
            self.held = True
            if not self.single and self._has_finished(settings):
                return
            self.write("running")
            result = self._loop(experiment, directory, allow_mismatch)
            self.write("finished")
        if self.single:
            from nsvm_cli.terminal.console import show_result

            show_result(result, self.directory)
            draw_missing([self.directory])

    def _has_finished(self, settings: Settings) -> bool:
        """Return whether the directory holds a finished run with these settings, and report it if so.

        If a killed process or another sweep has written the status, it is written again.

        Raises:
            InputError: a finished run cannot be trained for longer, or a job finds a run with other settings.
        """
        at, recorded = self.directory, read_config(self.directory)
        same = is_record_of(recorded, settings)
        if not self.single and not same:
            advice = "name another hydra.sweep.dir, or overwrite=true"
            raise InputError(f"{at} holds a run with other settings: {advice}")
        if not is_finished(at):
            return False
        if not same:
            if recorded["algorithm"].get("name") != settings.algorithm["name"]:
                raise InputError(f"{at} has finished with another algorithm: start a new run")
            if not checkpoints_in(at):
                reason = "has no checkpoint (checkpoint.keep)"
                raise InputError(f"{at} has finished and {reason}: start a new run")
            return False
        status, result = read_status(at), read_json(at / RESULT)
        if not self.single or status.get("status") != "finished":
            self.fields["kept"] = True
            self.fields["other_code"] = result.get("plugins_sha256") != code_of(settings)
            self.write("finished")
        if self.single:
            stopped = result.get("stopped")
            answer(f"Finished already: {at}{f', stopped: {stopped}' if stopped else ''}")
            draw_missing([at])
        return True

    def _loop(self, experiment: Experiment, directory: RunDirectory, allow_mismatch: bool) -> dict[str, Any]:
        """Train, with progress on stderr; the first signal to stop ends the run in order."""
        from nsvm_cli.parallel.signals import Signals
        from nsvm_cli.runs.train import train_run
        from nsvm_cli.terminal.progress import Progress

        s, sweep = experiment.settings, None if self.single else self.directory.parent.name
        title = f"{s.algorithm['name']} on {s.dataset['name']}, seed {s.seed}"
        words = {word.partition("=")[0]: word for word in (*self.fields["overrides"], *self.changes)}
        command = {"overrides": [*words.values()], "config_dir": self.fields["config_dir"]}
        progress = Progress(title, experiment.trainer) if self.single else contextlib.nullcontext()
        with progress as display, Signals() as signals:
            callbacks, tell = ([display], display.say) if display else ([], self._note)
            return train_run(experiment, directory, callbacks, signals, tell, allow_mismatch, command, sweep)

    def write(self, status: Status, message: str = "") -> None:
        """Write the status, which keeps the names of earlier sweeps: one of them may still be running."""
        if isinstance(sweep := self.fields["sweep"], str):
            self.fields["sweep"] = [*sweeps_in(read_status(self.directory)), sweep]
        write_status(self.directory, status, message, **self.fields)

    def _note(self, line: str) -> None:
        """Add a message to the status of a sweep's job, for the process that shows the sweep."""
        self.fields.setdefault("notices", []).append(line)
        with contextlib.suppress(OSError):  # the disk may be full
            self.write("running")

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """Record an error within the context in the status, and raise it; see also ``plugin_errors``.

        A job of a sweep adds the traceback of a bug to its notices; with ``full_error``, any traceback.
        """
        try:
            with plugin_errors():
                yield
        except KeyboardInterrupt as interrupt:
            self._end("interrupted", str(interrupt))
            raise
        except Exception as error:
            full = self.full_error or not isinstance(error, (InputError, RunError, OSError))
            if full and not self.single:
                self.fields.setdefault("notices", []).extend(details(error))
            self._end("failed", message_of(error), exit_code=2 if isinstance(error, InputError) else 1)
            raise

    def _end(self, status: Status, message: str, **fields: Any) -> None:
        """Write the final status, unless the directory holds another run. A finished run stays finished."""
        if self.single and is_finished(self.directory):
            status, message, fields = "finished", "", {}
        if self.held or not (self.single or has_run(self.directory)):
            self.held = False
            with contextlib.suppress(InputError, OSError), locked(self.directory):  # the disk may be full
                self.fields |= fields
                self.write(status, message)
                self.held = True


def expect_flag(key: str, value: object) -> bool:
    """Return a value that must be true or false; raise an InputError for any other."""
    if not isinstance(value, bool):
        raise InputError(f"{key}: expected true or false, got {value!r}")
    return value


def _remove_if_unused(directory: Path) -> None:
    """Remove the empty directory that Hydra created for a job, and outputs/DATASET_ALGORITHM above it."""
    with contextlib.suppress(OSError):
        directory.rmdir()
        if directory.parent.parent.name == "outputs":
            directory.parent.rmdir()
            directory.parent.parent.rmdir()
