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

if TYPE_CHECKING:  # torch takes seconds to import: not before there is something to train
    from nsvm_cli.runs.experiment import Experiment

FLAGS = ("--help -h", "--hydra-help", "--version", "--resolve", "--run -r", "--multirun -m")
WITH_VALUE = (
    *("--cfg -c", "--info -i", "--package -p", "--config-path -cp", "--config-name -cn", "--config-dir -cd"),
    "--experimental-rerun",
)
"""The flags that Hydra documents."""


def train_arguments(parser: CommandParser) -> None:
    """Add the flags, most of which are Hydra's, and the overrides."""
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
    given = {f"--{name.replace('_', '-')}": value for name, value in vars(line).items() if name != "words"}
    flags = [flag if value is True else f"{flag}={value}" for flag, value in given.items() if value]
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
    """Go on with a run, with its own settings but for those that the words change."""
    run = Path(name if Path(name).is_dir() else name.strip("'\"")).absolute()
    if not name or not (run / CONFIG).is_file():
        raise InputError(f"resume={name}: expected the directory of a run, with its config.yaml")
    changes = _changes(words, recorded := read_config(run))
    allow_mismatch = expect_flag("allow_mismatch", changes.pop("allow_mismatch", False))
    changed = [word for word in words if not word.startswith("allow_mismatch=")]
    job = Run(run, {**NO_JOB, **command_in(read_status(run))}, changes=changed)
    with job.recorded():
        settings = parse_settings(with_values(recorded, changes))
        load_plugins(changes.get("plugins", ()))  # never those of a run directory, which may be a stranger's
        asked, logger = [], settings.logger.get("name", "none")
        if settings.memory_budget > changes.get("memory_budget", MEMORY_BUDGET):
            asked.append(f"memory_budget={settings.memory_budget}")
        if logger != "none" and "logger" not in changes:  # it may write or send data anywhere
            asked.append(f"logger={logger}")
        if asked:
            raise InputError(f"{run} asks for {' '.join(asked)}: if that is intended, add {' '.join(asked)}")
        job.train(settings, "resume", allow_mismatch)


def _changes(words: Sequence[str], recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of words by their keys; InputError if one is no setting, or chooses a part."""
    for word in words:
        key, equals, _ = word.lstrip("+").partition("=")
        is_part = isinstance(recorded.get(key), dict) and key != "logger"
        if is_part or not equals or key.startswith(("~", "hydra")) or key in ("experiment", "overwrite"):
            raise InputError(f"{word} does not go with resume=RUN: name what changes, as in optimizer.lr=0.1")
    given: Any = OmegaConf.to_container(OmegaConf.from_dotlist([word.lstrip("+") for word in words]))
    values = flat(given)
    if name := values.get("logger"):  # the run's own, with its settings, or another
        own = recorded.get("logger")
        values["logger"] = own if isinstance(own, dict) and own.get("name") == name else {"name": name}
    return values


def estimate(words: Sequence[str], config_dir: str | None) -> None:
    """Train for some seconds, and print an estimate for the whole run. Writes no file."""
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
"""What the status of a single run says of the sweep that it is part of."""


@dataclass
class Job:
    """Train with one configuration; Hydra calls it for each.

    A launcher may do so in another process, with a copy. So a job of a sweep that fails returns normally,
    and the process that started it reads the failure in ``status.json``. A single run, which has no launcher,
    stores its failure in ``error``, since Hydra would print more than a line.

    Args:
        sweep: the mark of this start of a sweep, in the statuses of its jobs.
        config_dir: the folder of the user's own configurations, if one was named.
    """

    sweep: str
    config_dir: str | None = None
    error: Exception | None = None
    full_error: bool = field(default_factory=lambda: os.environ.get(FULL_ERROR) == "1")

    def __call__(self, config: DictConfig) -> float | None:
        """Return the validation score, for sweepers that optimise: NaN if the job fails, None without one."""
        hydra = HydraConfig.get()
        several = hydra.mode == RunMode.MULTIRUN
        words: Any = OmegaConf.to_container(hydra.overrides.task)  # ${oc.env:X} stays as it was written
        fields = {**NO_JOB, "overrides": settings_words(words), "config_dir": self.config_dir}
        directory = created = Path(hydra.runtime.output_dir)
        if several:
            fields |= {"job": int(hydra.job.num), "sweep": self.sweep, "sources": sources_sha256(hydra)}
        if several and not hydra.job.chdir:  # a worker of Ray has started in a folder of its cluster
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
            elif not run.held:  # Hydra passes the error on, once the other jobs have ended
                raise
            return math.nan
        finally:
            for folder in {created, directory}:
                _remove_if_unused(folder)


@dataclass
class Run:
    """A run in a directory, and its status there, which is the run's to write once it has ``held`` that.

    The progress and outcome of a job of a sweep are shown by the process that started the sweep, since the
    job may run anywhere, and beside others.

    Args:
        fields: those of the status that say which run it is.
        changes: the words that change the settings of a run that is resumed.
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
        """Train, or leave alone what has finished in the directory, maybe while another sweep held it."""
        if if_exists == "resume" and has_run(self.directory) and self._keeps(settings):
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
            if not self.single and self._keeps(settings):
                return
            self.write("running")
            result = self._loop(experiment, directory, allow_mismatch)
            self.write("finished")
        if self.single:
            from nsvm_cli.terminal.console import show_result

            show_result(result, self.directory)
            draw_missing([self.directory])

    def _keeps(self, settings: Settings) -> bool:
        """Return whether the run that the directory holds has finished with these settings, and say so, also
        where another sweep, or a kill, has left its status.

        Raises:
            InputError: it has finished and cannot be trained for longer; or is not the same, in a sweep.
        """
        at, recorded, finished = self.directory, read_config(self.directory), is_finished(self.directory)
        same = is_record_of(recorded, settings)
        if not self.single and not same:
            advice = "name another hydra.sweep.dir, or overwrite=true"
            raise InputError(f"{at} holds a run with other settings: {advice}")
        if finished and not same and recorded["algorithm"].get("name") != settings.algorithm["name"]:
            raise InputError(f"{at} has finished with another algorithm: start a new run")
        if finished and not same and not checkpoints_in(at):
            raise InputError(f"{at} has finished and has no checkpoint (checkpoint.keep): start a new run")
        if not (finished and same):
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
        with progress as shown, Signals() as signals:
            callbacks, tell = ([shown], shown.say) if shown else ([], self._note)
            return train_run(experiment, directory, callbacks, signals, tell, allow_mismatch, command, sweep)

    def write(self, status: Status, message: str = "") -> None:
        """Write the status of the run. It keeps naming earlier sweeps, one of which may still run."""
        if isinstance(own := self.fields["sweep"], str):
            self.fields["sweep"] = [*sweeps_in(read_status(self.directory)), own]
        write_status(self.directory, status, message, **self.fields)

    def _note(self, line: str) -> None:
        """Add a message to the status of a sweep's job, for the process that shows the sweep."""
        self.fields.setdefault("notices", []).append(line)
        with contextlib.suppress(OSError):  # the disk may be full
            self.write("running")

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """Record an error within the context as the end of the run, and raise it as ``plugin_errors`` does.

        The notices of a sweep's job include the traceback of a bug, or any traceback that is asked for.
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
        """Write how the run ended, unless the directory holds another run.

        A finished run that cannot be trained for longer stays finished.
        """
        if self.single and is_finished(self.directory):
            status, message, fields = "finished", "", {}
        if self.held or not (self.single or has_run(self.directory)):
            self.held = False
            with contextlib.suppress(InputError, OSError), locked(self.directory):  # the disk may be full
                self.fields |= fields
                self.write(status, message)
                self.held = True


def expect_flag(key: str, value: object) -> bool:
    """Return a value that has to be true or false."""
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
