"""The command ``nsvm train``."""

from __future__ import annotations

import contextlib
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
from nsvm_cli.output import answer, details, flash, saying
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

if TYPE_CHECKING:  # torch takes seconds to import, so functions import it after checking the settings
    from nsvm_cli.runs.experiment import Experiment


def train_arguments(parser: CommandParser) -> None:
    """Add Hydra's flags and ``--estimate``."""
    without_value = ("--help -h", "--hydra-help", "--version", "--resolve", "--run -r", "--multirun -m")
    with_value = ("--info -i", "--package -p", "--config-path -cp", "--config-name -cn", "--config-dir -cd")
    for names in (*without_value, "--estimate"):
        parser.add_argument(*names.split(), action="store_true")
    parser.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
    for names in (*with_value, "--experimental-rerun"):
        parser.add_argument(*names.split())
    parser.add_keys("overrides", {"resume=RUN": ""}, completer=complete_overrides)


def train(arguments: list[str]) -> None:
    """Train one model or, with ``-m``, a model for each combination of the values of overrides."""
    # without =all, argparse would take the next override as the optional value of --info
    words = [f"{word}=all" if word in ("--info", "-i") else word for word in arguments]
    line = parse("train", words)
    values = {f"--{name.replace('_', '-')}": value for name, value in vars(line).items() if name != "words"}
    flags = [flag if value is True else f"{flag}={value}" for flag, value in values.items() if value]
    for key, _, value in (word.partition("=") for word in line.words):
        if key in ("hydra.run.dir", "hydra.sweep.dir") and value.strip("'\"") in ("", "null"):
            raise InputError(
                f"{key}={value}: expected a folder; to use a new folder in outputs, remove {key}"
            )
    resumed = [word.partition("=")[2] for word in line.words if word.startswith("resume=")]
    if line.multirun and resumed:
        raise InputError("resume=RUN cannot be combined with -m; to resume a sweep, run its command again")
    if line.multirun and line.estimate:
        raise InputError("--estimate cannot be combined with -m; remove -m and estimate one job of the sweep")
    if line.estimate:
        estimate(line.words, line.config_dir)
    elif resumed:
        words = [word for word in line.words if not word.startswith("resume=")]
        if flags:
            reason = "a resumed run reads its settings from its config.yaml"
            raise InputError(f"{flags[0]} cannot be combined with resume=RUN: {reason}")
        resume(resumed[-1], words)
    else:
        sweep = Sweep(arguments)
        job = Job(sweep.mark, line.config_dir)
        with sweep.reported():
            run_app(job, [*flags, *line.words])  # Hydra's parser accepts no flag after an override
        if job.error:
            raise job.error


def resume(name: str, words: Sequence[str]) -> None:
    """Resume a run with its recorded settings, changed by the overrides in ``words``."""
    directory = Path(name if Path(name).is_dir() else name.strip("'\"")).absolute()
    if not name or not (directory / CONFIG).is_file():
        raise InputError(f"resume={name}: expected a run directory, which contains config.yaml")
    changes = _changes(words, recorded := read_config(directory))
    allow_mismatch = expect_flag("allow_mismatch", changes.pop("allow_mismatch", False))
    changed = [word for word in words if not word.startswith("allow_mismatch=")]
    run = Run(directory, {**NO_JOB, **command_in(read_status(directory))}, changes=changed)
    with run.recorded():
        settings = parse_settings(with_values(recorded, changes))
        load_plugins(changes.get("plugins", ()))  # never from config.yaml, which may be untrusted
        unconfirmed, logger = [], settings.logger.get("name", "none")
        if settings.memory_budget > changes.get("memory_budget", MEMORY_BUDGET):
            unconfirmed.append(f"memory_budget={settings.memory_budget}")
        if logger != "none" and "logger" not in changes:  # a logger may write or send data anywhere
            unconfirmed.append(f"logger={logger}")
        if unconfirmed:
            needed = " ".join(unconfirmed)
            advice = f"to allow this, add {needed} to the command line"
            raise InputError(f"{directory / CONFIG} sets {needed}; {advice}")
        run.train(settings, "resume", allow_mismatch)


def _changes(words: Sequence[str], recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of overrides by key; raise an InputError for overrides of whole parts or of Hydra."""
    for word in words:
        key, equals, _ = word.lstrip("+").partition("=")
        is_part = isinstance(recorded.get(key), dict) and key != "logger"
        if is_part or not equals or key.startswith(("~", "hydra")) or key in ("experiment", "overwrite"):
            advice = "override single settings, such as optimizer.lr=0.1"
            raise InputError(f"{word} cannot be combined with resume=RUN: {advice}")
    nested: Any = OmegaConf.to_container(OmegaConf.from_dotlist([word.lstrip("+") for word in words]))
    values = flat(nested)
    if name := values.get("logger"):
        section = recorded.get("logger")  # a logger of the same name keeps its settings
        same = isinstance(section, dict) and section.get("name") == name
        values["logger"] = section if same else {"name": name}
    return values


def estimate(words: Sequence[str], config_dir: str | None) -> None:
    """Train for a few seconds, and print an estimate of the whole run."""
    settings = parse_settings(compose_settings([*search_folder(config_dir), *words]))
    load_plugins(settings.plugins)
    flash("loading PyTorch and the data")
    from nsvm_cli.runs import estimate as trial
    from nsvm_cli.runs.experiment import prepare
    from nsvm_cli.terminal.console import show_rows

    experiment = prepare(settings)
    parts = trial.estimate(experiment)
    show_rows([*trial.rows_of(experiment, parts)])
    if any(part.tried < part.steps for part in parts):
        answer("Support vectors and seconds of the remaining steps are extrapolated by a power law.")


NO_JOB: dict[str, Any] = {"job": None, "sweep": None}
"""Fields in the status of a run that does not belong to a sweep."""


@dataclass
class Job:
    """The function that Hydra calls with the configuration of each run.

    A failed job of a sweep returns normally, because a launcher may call a copy in another process. The
    sweep reads the error from ``status.json``. A failed single run stores the error in ``error``.
    """

    sweep: str
    config_dir: str | None = None
    error: Exception | None = None
    full_error: bool = field(default_factory=lambda: os.environ.get(FULL_ERROR) == "1")

    def __call__(self, config: DictConfig) -> float | None:
        """Train, and return the validation score, or None without a validation set or after a failure."""
        hydra = HydraConfig.get()
        several = hydra.mode == RunMode.MULTIRUN
        # interpolations such as ${oc.env:X} stay unresolved
        words: Any = OmegaConf.to_container(hydra.overrides.task)
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
            elif not run.held:  # Hydra raises the error again when the remaining jobs have ended
                raise
            return None
        finally:
            for folder in {created, directory}:
                with contextlib.suppress(OSError):  # only empty folders can be removed
                    folder.rmdir()
                    if folder.parent.parent.name == "outputs":
                        folder.parent.rmdir()
                        folder.parent.parent.rmdir()


@dataclass
class Run:
    """A run that records its status in its directory.

    Args:
        fields: the fields of the status that identify the run.
        full_error: whether the status of a job includes the traceback of every error.
        changes: the overrides that change the settings of a resumed run.
        held: whether the run may write the status in the directory.
        earlier: the status before the run.
    """

    directory: Path
    fields: dict[str, Any]
    full_error: bool = False
    changes: Sequence[str] = ()
    held: bool = False
    earlier: Mapping[str, Any] = field(default_factory=dict)

    @property
    def single(self) -> bool:
        return self.fields["job"] is None

    def train(self, settings: Settings, if_exists: IfExists, allow_mismatch: bool) -> None:
        """Train, unless the directory already holds the finished run."""
        if if_exists == "resume" and has_run(self.directory) and self._report_if_finished(settings):
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
            if not self.single and self._report_if_finished(settings):
                return
            self.earlier = read_status(self.directory)
            self.write("running")
            result = self._loop(experiment, directory, allow_mismatch)
            self.write("finished")
        if self.single:
            from nsvm_cli.terminal.console import show_result

            show_result(result, self.directory)
            draw_missing([self.directory])

    def _report_if_finished(self, settings: Settings) -> bool:
        """Report a finished run with these settings; return whether the directory holds one."""
        path, recorded = self.directory, read_config(self.directory)
        same = is_record_of(recorded, settings)
        if not self.single and not same:
            advice = "choose another hydra.sweep.dir, or set overwrite=true"
            raise InputError(f"{path} already contains a run with different settings: {advice}")
        if not is_finished(path):
            return False
        if not same:
            if recorded["algorithm"].get("name") != settings.algorithm["name"]:
                raise InputError(
                    f"{path} contains a finished run with a different algorithm: start a new run"
                )
            if not checkpoints_in(path):
                reason = "has no checkpoint to resume from (see checkpoint.keep)"
                raise InputError(f"{path} has finished and {reason}: start a new run")
            return False
        status, result = read_status(path), read_json(path / RESULT)
        if not self.single or status.get("status") != "finished":
            self.fields["kept"] = True
            self.fields["other_code"] = result.get("plugins_sha256") != code_of(settings)
            self.write("finished")
        if self.single:
            stopped = result.get("stopped")
            answer(f"Finished already: {path}{f', stopped: {stopped}' if stopped else ''}")
            draw_missing([path])
        return True

    def _loop(self, experiment: Experiment, directory: RunDirectory, allow_mismatch: bool) -> dict[str, Any]:
        """Train with progress on standard error, and return the result."""
        from nsvm_cli.parallel.signals import Signals
        from nsvm_cli.runs.train import train_run
        from nsvm_cli.terminal.progress import Progress

        s, sweep = experiment.settings, None if self.single else self.directory.parent.name
        title = f"{s.algorithm['name']} on {s.dataset['name']}, seed {s.seed}"
        overrides = {word.partition("=")[0]: word for word in (*self.fields["overrides"], *self.changes)}
        command = {"overrides": [*overrides.values()], "config_dir": self.fields["config_dir"]}
        progress = Progress(title) if self.single else contextlib.nullcontext()
        with progress as display, Signals() as signals, saying(display.say if display else self._note):
            callbacks = [display] if display else []
            return train_run(experiment, directory, callbacks, signals, allow_mismatch, command, sweep)

    def write(self, status: Status, message: str = "") -> None:
        """Write the status, and keep the marks of earlier sweeps, which may still be running."""
        if isinstance(sweep := self.fields["sweep"], str):
            self.fields["sweep"] = [*sweeps_in(read_status(self.directory)), sweep]
        write_status(self.directory, status, message, **self.fields)

    def _note(self, line: str) -> None:
        """Add a message to the status of a job. The process that shows the sweep prints the message."""
        self.fields.setdefault("notices", []).append(line)
        with contextlib.suppress(OSError):  # the disk may be full
            self.write("running")

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """Context manager: write any error to the status of the run, and re-raise the error."""
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
        was = self.earlier.get("status")
        if self.single and is_finished(self.directory):
            status, message, fields = "finished", "", {}
        elif self.single and fields.get("exit_code") == 2 and was in ("running", "interrupted"):
            status, message, fields = was, str(self.earlier.get("message")), {}  # resuming was refused
        if self.held or not (self.single or has_run(self.directory)):
            self.held = False
            with contextlib.suppress(InputError, OSError), locked(self.directory):  # the disk may be full
                self.fields |= fields
                self.write(status, message)
                self.held = True


def expect_flag(key: str, value: object) -> bool:
    """Return the value of ``key``, or raise an InputError if the value is neither true nor false."""
    if not isinstance(value, bool):
        raise InputError(f"{key}: expected true or false, got {value!r}")
    return value
